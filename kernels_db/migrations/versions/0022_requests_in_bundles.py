"""Profiles and tries in bundles: a bundle's job is of a step, of a try, or of a profile of the code that it names.

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
        jobs.add_column(sa.Column("try_id", sa.String(length=32), nullable=True))
        jobs.add_column(sa.Column("source_sha256", sa.String(length=64), nullable=True))
        jobs.create_foreign_key("fk_bundle_jobs_profile_id_profiles", "profiles", ["profile_id"], ["id"])
        jobs.create_foreign_key("fk_bundle_jobs_try_id_candidate_tries", "candidate_tries", ["try_id"], ["id"])
    op.create_index(op.f("ix_bundle_jobs_profile_id"), "bundle_jobs", ["profile_id"])
    op.create_index(op.f("ix_bundle_jobs_try_id"), "bundle_jobs", ["try_id"])
    op.add_column("candidate_tries", sa.Column("returned_at", sa.Float(), nullable=True))
