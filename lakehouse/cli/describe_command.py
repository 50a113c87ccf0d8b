"""`describe`: what a table or view is, and what has been stated about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from lakehouse.catalog.redaction import hide_secrets
from lakehouse.cli.catalog_commands import TableArgument, table_line
from lakehouse.cli.command_session import Session, command
from lakehouse.cli.semantics_commands import edit_statements, statement_lines
from lakehouse.cli.view_commands import kept_rows
from lakehouse.curation.checkup import statements_about
from lakehouse.maintenance.column_sketches import distinct_counts
from lakehouse.maintenance.shown_plan import human_bytes, listing
from lakehouse.spec.identifier import dotted
from lakehouse.spec.views.view_metadata import OF_VIEW, STORAGE_TABLE
from lakehouse.table import Table
from lakehouse.view import View


@command
def describe(
    session: Session,
    table: TableArgument,
    edit: Annotated[
        bool, typer.Option("--edit", help="Edit the statements about the table as YAML.")
    ] = False,
) -> None:
    """Show a table: schema, partitions, sort order, refs, properties, location, statements.

    Or a view: its SQL, columns, versions, properties; of a materialized one whether it is fresh.

    Example: lakehouse describe raw.flights
    """
    if edit:
        edit_statements(session, table)
        return
    if not session.lake.table_exists(table) and session.lake.view_exists(table):
        shown = view_description(session.lake.load_view(table))
        if STORAGE_TABLE in shown["properties"]:
            shown |= kept_rows(session.lake, table)
        session.show(shown, Group(*_view_lines(shown)))
        return
    handle = session.table(table)
    data = description(handle)
    of = handle.properties.get(OF_VIEW)
    if of is not None and session.lake.view_exists(of):
        data |= kept_rows(session.lake, of)
    stated = statements_about(session.lake, handle)
    if stated:
        data["statements"] = [statement.to_json() for statement in stated]
    session.show(data, Group(*_description_lines(data), *statement_lines(stated)))


def description(table: Table) -> dict[str, Any]:
    """What `describe --json` prints of a table, but for its statements."""
    metadata, schema = table.metadata, table.schema()
    distinct = distinct_counts(metadata)
    return {
        **table_line(table),
        "format_version": metadata.format_version,
        "table_uuid": metadata.table_uuid,
        "location": table.location,
        "metadata_location": table.metadata_location,
        "schema_id": metadata.current_schema_id,
        "spec_id": metadata.default_spec_id,
        "snapshots": len(metadata.snapshots),
        "columns": [
            {
                "id": field.field_id,
                "name": field.name,
                "type": str(field.field_type),
                "required": field.required,
                "distinct": distinct.get(field.name),
                "doc": field.doc,
            }
            for field in schema.fields
        ],
        "partition_spec": [
            {
                "name": field.name,
                "transform": str(field.transform),
                "source": schema.find_column_name(field.source_id),
                "field_id": field.field_id,
            }
            for field in table.spec().fields
        ],
        "sort_order": [
            f"{schema.find_column_name(field.source_id)} {field.transform} {field.direction} "
            f"{field.null_order}"
            for field in metadata.sort_order().fields
        ],
        "refs": {
            name: {"type": ref.type, "snapshot_id": ref.snapshot_id}
            for name, ref in sorted(metadata.refs.items())
        },
        "properties": hide_secrets(metadata.properties),
    }


def _description_lines(data: dict[str, Any]) -> list[RenderableType]:
    spec = (f"{term['transform']}({term['source']})" for term in data["partition_spec"])
    refs = (f"{name} ({ref['type']}) -> {ref['snapshot_id']}" for name, ref in data["refs"].items())
    facts = [
        ("partitioned by", ", ".join(spec) or "nothing"),
        ("sorted by", ", ".join(data["sort_order"]) or "nothing"),
        ("refs", ", ".join(refs) or "none"),
    ]
    rows = [
        (
            column["id"],
            column["name"],
            column["type"],
            "required" if column["required"] else "",
            column["distinct"],
            column["doc"] or "",
        )
        for column in data["columns"]
    ]
    return _page(data, facts, ("#id", "column", "type", "", "#distinct", "doc"), rows)


def view_description(view: View) -> dict[str, Any]:
    """What `describe --json` prints of a view."""
    metadata = view.metadata
    version = metadata.current_version()
    return {
        "name": view.name,
        "type": "view",
        "view_uuid": metadata.view_uuid,
        "location": metadata.location,
        "metadata_location": view.metadata_location,
        "version_id": version.version_id,
        "versions": len(metadata.versions),
        "default_catalog": version.default_catalog,
        "default_namespace": dotted(version.default_namespace),
        "sql": {dialect.dialect: dialect.sql for dialect in version.dialects().values()},
        "columns": [
            {
                "id": field.field_id,
                "name": field.name,
                "type": str(field.field_type),
                "doc": field.doc,
            }
            for field in view.schema().fields
        ],
        "properties": hide_secrets(metadata.properties),
    }


def _view_lines(data: dict[str, Any]) -> list[RenderableType]:
    """The same to be read."""
    rows = [
        (column["id"], column["name"], column["type"], column["doc"] or "")
        for column in data["columns"]
    ]
    return _page(data, data["sql"].items(), ("#id", "column", "type", "doc"), rows)


def _page(
    data: dict[str, Any],
    facts: Iterable[tuple[str, str]],
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
) -> list[RenderableType]:
    """Single values of a description and facts made of it, its properties, then its columns."""
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    single = [
        (name.replace("_", " "), human_bytes(value) if name == "bytes" else str(value))
        for name, value in data.items()
        if not isinstance(value, list | dict)
    ]
    properties = sorted(data["properties"].items())
    listed = [("property", f"{key} = {text}") for key, text in properties]
    for name, text in (*single, *facts, *listed):
        grid.add_row(Text(name, style="dim"), Text(text))
    return [Text(data["name"], style="bold"), grid, listing(columns, rows, limit=len(rows))]
