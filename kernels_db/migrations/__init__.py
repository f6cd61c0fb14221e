"""Alembic migrations, which ship in the wheel.

They run inside the process (`kernels_db.store.db.Database.upgrade`).
"""
