"""Jobs that keep tables in shape: one step a table, each in the pool of its table, so that no writer is disturbed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg

from assets.requests import COMPACT_JOB, EXPIRE_JOB, RETAIN_LAST_TAG, TABLES_TAG
from assets.sources import pool
from lakehouse.errors import LakehouseError
from lakehouse.maintenance.file_groups import CompactionOptions
from lakehouse.maintenance.policy import MaintenancePolicy, policy_of
from lakehouse.maintenance.report import Report
from lakehouse.orchestration.materialization import SNAPSHOT_ID
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.spec.properties import TableProperties
from lakehouse.table import Table

# the project's defaults; a table's own properties of these names win
PROJECT_POLICY = {"lakehouse.maintenance.min-input-files": "2"}


def policy(table: Table) -> MaintenancePolicy:
    """How a table of the pipeline wants to be maintained."""
    return policy_of(table.metadata.properties, PROJECT_POLICY)


def maintenance_jobs(tables: Sequence[str]) -> list[dg.JobDefinition]:
    """Compaction and expiry of the pipeline's tables."""
    return [
        _job(COMPACT_JOB, tables, _compact, "Turn small files into few; rows stay the same."),
        _job(
            EXPIRE_JOB, tables, _expire, "Forget snapshots beyond retention and remove exactly the files that only they reached."
        ),
    ]


def _compact(table: Table, tags: Mapping[str, str]) -> Report:  # noqa: ARG001 - one signature for every kind of work
    target = TableProperties(table.metadata.properties).target_file_size_bytes
    return table.compact(CompactionOptions.under(policy(table), target))


def _expire(table: Table, tags: Mapping[str, str]) -> Report:
    keep = tags.get(RETAIN_LAST_TAG)
    if keep is None:
        return table.expire_snapshots()
    return table.expire_snapshots(older_than=datetime.now(UTC), retain_last=int(keep))


def _job(
    name: str, tables: Sequence[str], work: Callable[[Table, Mapping[str, str]], Report], description: str
) -> dg.JobDefinition:
    steps = [_step(name, table, work) for table in tables]

    @dg.job(name=name, description=f"{description} Tag `{TABLES_TAG}` with table names to choose some.")
    def maintenance() -> None:
        for step in steps:
            step()

    return maintenance


def _step(job: str, name: str, work: Callable[[Table, Mapping[str, str]], Report]) -> dg.OpDefinition:
    @dg.op(
        name=f"{job}__{name.replace('.', '__')}",
        pool=pool(name),
        out=dg.Out(dg.Nothing),
        description=f"{job} {name}",
    )
    def step(context: dg.OpExecutionContext, lakehouse: LakehouseResource) -> Iterator[dg.Output[None]]:
        chosen = context.run_tags.get(TABLES_TAG)
        lake = lakehouse.lake()
        if (chosen is None or name in chosen.split(",")) and lake.table_exists(name):
            table = lake.load_table(name)
            before = table.metadata.current_snapshot_id
            try:
                report = work(table, context.run_tags)
            except LakehouseError as error:
                raise dg.Failure(description=error.message, allow_retries=error.retryable) from error
            context.log.info(f"{report.title()}: {', '.join(f'{label} {value}' for label, value in report.facts())}")
            if table.refresh().metadata.current_snapshot_id != before:
                context.log_event(dg.AssetObservation(asset_key=name.split("."), metadata=_metadata(table, report.facts())))
        yield dg.Output(None)

    return step


def _metadata(table: Table, facts: Iterable[tuple[str, object]]) -> Mapping[str, dg.MetadataValue]:
    snapshot = table.current_snapshot()
    summary = {} if snapshot is None else snapshot.summary
    found = {label: dg.MetadataValue.text(str(value)) for label, value in facts}
    numbers = {"dagster/row_count": "total-records", "lakehouse/files": "total-data-files", "lakehouse/bytes": "total-files-size"}
    return {
        SNAPSHOT_ID: dg.MetadataValue.text(str(table.metadata.current_snapshot_id)),
        **{key: dg.MetadataValue.int(int(summary[entry])) for key, entry in numbers.items() if entry in summary},
        **found,
    }
