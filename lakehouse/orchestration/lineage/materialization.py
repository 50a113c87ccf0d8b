"""What materializations say about tables, and the records of them that Dagster keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

import dagster as dg
from dagster._core.events import DagsterEventBatchMetadata
from dagster._core.execution.context.system import IStepContext

from lakehouse.catalog.branch_catalog import BranchCatalog
from lakehouse.curation.standard_fields import COMMENT
from lakehouse.spec.identifier import split_name
from lakehouse.spec.metadata.snapshot import RUN_ID, Snapshot
from lakehouse.table import Table

SNAPSHOT_ID = "lakehouse/snapshot_id"
PARENT_ID = "lakehouse/parent_snapshot_id"
OPERATION = "lakehouse/operation"
INPUTS = "lakehouse/input_snapshot_ids"
PUBLICATION = "lakehouse/publication"
UNDO_WITH = "lakehouse/undo_with"

ColumnSources = Mapping[str, Sequence[tuple[str, str]]]


def data_version(snapshot: Snapshot) -> dg.DataVersion:
    """The version of an asset's data is the snapshot that holds it."""
    return dg.DataVersion(str(snapshot.snapshot_id))


def materialization_metadata(
    table: Table,
    snapshot: Snapshot,
    inputs: Mapping[str, int | None],
    columns: ColumnSources | None = None,
) -> dict[str, dg.MetadataValue]:
    """Metadata of a materialization (design, section 6).

    Args:
        table: at a version that has the snapshot.
        snapshot: what the materialization wrote, or left, being up to date.
        inputs: table -> snapshot id that was actually read; None: the table was empty.
        columns: output column -> (input table, input column) pairs it is made from.

    Returns:
        Snapshot ids as text (64-bit integers do not survive GraphQL), the command that reads the
        snapshot, that which undoes its run, how and when it is published, counts and bytes as
        numbers, schema and lineage in Dagster's own keys.
    """
    summary = snapshot.summary
    # pages show them in this order: what is in it, how to read it, what it came of, where it is
    metadata: dict[str, dg.MetadataValue] = {}
    if comment := table.properties.get(COMMENT):
        metadata["lakehouse/description"] = dg.MetadataValue.text(comment)
    for key, entry in _NUMBERS.items():
        if entry in summary:
            metadata[key] = dg.MetadataValue.int(int(summary[entry]))
    metadata |= {
        "lakehouse/read_with": dg.MetadataValue.md(
            f"`lakehouse sql 'SELECT * FROM {table.name} FOR VERSION AS OF {snapshot.snapshot_id}'`"
        ),
        PUBLICATION: dg.MetadataValue.text(_publication(table, snapshot)),
        **undo_instructions(summary.get(RUN_ID)),
        SNAPSHOT_ID: dg.MetadataValue.text(str(snapshot.snapshot_id)),
        PARENT_ID: dg.MetadataValue.text(str(snapshot.parent_snapshot_id or "")),
        OPERATION: dg.MetadataValue.text(str(snapshot.operation)),
        INPUTS: dg.MetadataValue.json(
            {name: None if read is None else str(read) for name, read in sorted(inputs.items())}
        ),
        "dagster/column_schema": dg.MetadataValue.table_schema(table_schema(table, snapshot)),
        "dagster/table_name": dg.MetadataValue.text(table.name),
        "dagster/uri": dg.MetadataValue.text(table.location),
        "dagster/storage_kind": dg.MetadataValue.text("iceberg"),
        "lakehouse/metadata_location": dg.MetadataValue.text(table.metadata_location),
    }
    if columns:
        metadata["dagster/column_lineage"] = dg.MetadataValue.column_lineage(
            dg.TableColumnLineage(
                {
                    name: [
                        dg.TableColumnDep(
                            asset_key=dg.AssetKey(split_name(source)), column_name=column
                        )
                        for source, column in sources
                    ]
                    for name, sources in columns.items()
                }
            )
        )
    return metadata


def undo_instructions(run_id: str | None) -> dict[str, dg.MetadataValue]:
    """Metadata: the commands that undo a run; none of what no run wrote."""
    if run_id is None:
        return {}
    commands = f"`lakehouse undo {run_id}` (`--dry-run` says what it would do)"
    return {UNDO_WITH: dg.MetadataValue.md(commands)}


def _publication(table: Table, snapshot: Snapshot) -> str:
    """How others come to see a snapshot."""
    at = f"{snapshot.committed_at:%Y-%m-%d %H:%M:%S} UTC"
    branch = table.catalog.branch if isinstance(table.catalog, BranchCatalog) else None
    if branch is None:
        return f"by itself, {at}"
    if not branch.startswith("run-"):
        return f"on the branch {branch}, {at}"
    return (
        "together with all tables of the run, once its last step has succeeded: an observation of "
        "this asset then says which they are, and when"
    )


def materialized_tables(instance: dg.DagsterInstance, run_id: str) -> dict[dg.AssetKey, str]:
    """The tables that a run materialized, by asset."""
    tables: dict[dg.AssetKey, str] = {}
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        event = entry.dagster_event
        record = None if event is None else event.step_materialization_data.materialization
        if record is not None and SNAPSHOT_ID in record.metadata:
            tables[record.asset_key] = str(record.metadata["dagster/table_name"].value)
    return tables


_NUMBERS = {
    "dagster/row_count": "total-records",
    "lakehouse/files": "total-data-files",
    "lakehouse/bytes": "total-files-size",
    "lakehouse/added_rows": "added-records",
    "lakehouse/added_files": "added-data-files",
    "lakehouse/added_bytes": "added-files-size",
    "lakehouse/removed_files": "deleted-data-files",
    "lakehouse/removed_rows": "deleted-records",
}


def table_schema(table: Table, snapshot: Snapshot) -> dg.TableSchema:
    """The columns of a snapshot, with the partition terms as table constraints.

    What is said of a column is what is said of it now: statements become comments after the data.
    """
    schema = table.metadata.schema_for(snapshot)
    docs = {field.field_id: field.doc for field in table.schema().fields}
    terms = [
        f"{field.transform}({schema.find_column_name(field.source_id)})"
        for field in table.spec().fields
    ]
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=field.name,
                type=str(field.field_type),
                description=docs.get(field.field_id, field.doc),
                constraints=dg.TableColumnConstraints(nullable=not field.required),
            )
            for field in schema.fields
        ],
        constraints=dg.TableConstraints(
            other=[f"partitioned by {', '.join(terms)}"] if terms else []
        ),
    )


def newest_records(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Sequence[str]
) -> list[dg.AssetMaterialization]:
    """The newest materialization of each of the partitions that has one.

    Dagster records a materialization of every partition of a run, all with one data version. One
    that the run does not write is recorded as it was once more (`record_each`), after the run's
    own, so that what reads it is not out of sync.
    """
    if not partitions:
        return []
    newest = instance.event_log_storage.get_latest_storage_id_by_partition(
        key, dg.DagsterEventType.ASSET_MATERIALIZATION, set(partitions)
    )
    if not newest:
        return []
    fetched = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=key, storage_ids=sorted(newest.values())), len(newest)
    )
    records = [record.asset_materialization for record in fetched.records]
    return [record for record in records if record is not None]


def record_each(
    context: dg.AssetExecutionContext,
    events: Sequence[dg.AssetMaterialization | dg.AssetObservation],
) -> None:
    """Record what happened to each partition: as `context.log_event` does, but together."""
    logged = log_together(context.get_step_execution_context(), events)
    # the step yields them
    context.op_execution_context._events.extend(logged)  # noqa: SLF001 - as `log_event` does


def log_together(
    step: IStepContext, events: Sequence[dg.AssetMaterialization | dg.AssetObservation]
) -> list[dg.DagsterEvent]:
    """Log them as one batch, which the instance's storage may store in one transaction."""
    batch = str(uuid4())
    logged = []
    for number, event in enumerate(events, 1):
        place = DagsterEventBatchMetadata(batch, number == len(events))
        if isinstance(event, dg.AssetObservation):
            logged.append(dg.DagsterEvent.asset_observation(step, event, place))
        else:
            logged.append(dg.DagsterEvent.asset_materialization(step, event, place))
    return logged
