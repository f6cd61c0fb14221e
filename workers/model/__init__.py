"""Ways to have a model, behind one interface."""
