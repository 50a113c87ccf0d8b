"""What every materialization says about the table it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from lakehouse.curation.standard_fields import COMMENT
from lakehouse.spec.identifier import split_name
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.table import Table

SNAPSHOT_ID = "lakehouse/snapshot_id"
PARENT_ID = "lakehouse/parent_snapshot_id"
OPERATION = "lakehouse/operation"
INPUTS = "lakehouse/input_snapshot_ids"

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
        snapshot: what the materialization wrote, or found to be up to date.
        inputs: table -> snapshot id that was actually read; None: the table was empty.
        columns: output column -> (input table, input column) pairs it is made from.

    Returns:
        Snapshot ids as text (64-bit integers do not survive GraphQL), the command that reads the
        snapshot, counts and bytes as numbers, schema and lineage in Dagster's own keys.
    """
    summary = snapshot.summary
    # pages show them in this order: what is in it, how to read it, what it came of, where it is
    found: dict[str, dg.MetadataValue] = {}
    if comment := table.properties.get(COMMENT):
        found["lakehouse/description"] = dg.MetadataValue.text(comment)
    for key, entry in _NUMBERS.items():
        if entry in summary:
            found[key] = dg.MetadataValue.int(int(summary[entry]))
    found |= {
        "lakehouse/read_with": dg.MetadataValue.md(
            f"`lakehouse sql 'SELECT * FROM {table.name} FOR VERSION AS OF {snapshot.snapshot_id}'`"
        ),
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
        found["dagster/column_lineage"] = dg.MetadataValue.column_lineage(
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
    return found


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
    said = {field.field_id: field.doc for field in table.schema().fields}
    terms = [
        f"{field.transform}({schema.find_column_name(field.source_id)})"
        for field in table.spec().fields
    ]
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=field.name,
                type=str(field.field_type),
                description=said.get(field.field_id, field.doc),
                constraints=dg.TableColumnConstraints(nullable=not field.required),
            )
            for field in schema.fields
        ],
        constraints=dg.TableConstraints(
            other=[f"partitioned by {', '.join(terms)}"] if terms else []
        ),
    )
