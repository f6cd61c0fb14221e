"""Documents of the API, and the text made from them; no database, no server."""
