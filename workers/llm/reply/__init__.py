"""Read ideas, lessons and code from a model's reply."""
