"""Build API documents from database rows; reads only."""
