"""The server: ASGI application, middleware, OpenAPI document, dashboard files, process."""
