"""Gates that a job passes, in order, and the verdict that they build."""
