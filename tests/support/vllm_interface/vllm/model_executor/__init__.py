"""Model code."""
