"""Profiles in bundles: a bundle's job is of a step or of a profile, and names the code that the profile is of.

Revision: 0022.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("bundle_jobs") as jobs:
        jobs.alter_column("attempt_id", existing_type=sa.String(length=32), nullable=True)
        jobs.add_column(sa.Column("profile_id", sa.String(length=32), nullable=True))
        jobs.add_column(sa.Column("source_sha256", sa.String(length=64), nullable=True))
        jobs.create_foreign_key("fk_bundle_jobs_profile_id_profiles", "profiles", ["profile_id"], ["id"])
    op.create_index(op.f("ix_bundle_jobs_profile_id"), "bundle_jobs", ["profile_id"])
