"""Build requests: facts, feedback and privacy of what a model is told."""
