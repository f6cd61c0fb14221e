"""Alembic migrations; they ship in the wheel and run inside the process (`kernels_db.db.Database.upgrade`)."""
