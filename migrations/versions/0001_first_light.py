"""The first schema: tables, the write path, what daemons and people may do."""

from outbox.migrate import run_files

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the SQL files of this version, in their order."""
    run_files(revision)
