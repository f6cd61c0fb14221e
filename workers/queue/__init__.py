"""Celery: the application, its tasks, leases, heartbeats and the reconciler."""
