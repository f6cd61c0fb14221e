"""Views: API documents from database rows; they only read."""
