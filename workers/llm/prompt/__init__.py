"""Build requests: the facts, feedback and privacy of model prompts."""
