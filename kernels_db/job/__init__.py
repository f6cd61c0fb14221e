"""The judge's documents, and the plain functions that both sides of the judge share."""
