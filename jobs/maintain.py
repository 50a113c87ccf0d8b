"""Jobs that look after tables, each with a step a table; jobs that judge them, and undo."""

from __future__ import annotations

from assets.pipeline import MAINTAINED, WRITTEN
from lakehouse.orchestration import maintenance_jobs, state_job, statement_job, undo_job

# small files into few; manifests by partition; snapshots beyond retention; files that nothing
# names; layouts by measurement
compact, rewrite_manifests, expire, remove_orphans, tuning = maintenance_jobs(MAINTAINED)

lakehouse_state = state_job()
check_statements = statement_job(WRITTEN)
# what a run wrote is gone again
undo = undo_job()
