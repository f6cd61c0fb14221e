"""The front door: REST API, status page, command line."""
