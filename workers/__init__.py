"""The engine room: Celery tasks, search policy, model access, judge."""
