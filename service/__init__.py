"""The front door: REST API, dashboard, command line."""
