"""The ASGI application: middleware, OpenAPI document, dashboard files, process entry."""
