"""The op spec: its schema, its checks, and its resolution into the judge's jobs."""
