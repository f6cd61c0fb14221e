"""HTTP client of the API, with the terminal views of its answers."""
