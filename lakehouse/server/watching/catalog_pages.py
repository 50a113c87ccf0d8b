"""Pages for people: what is in the catalog. They need no script, and change nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.catalog_walk import walk_namespaces
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.curation.checkup import statements_about
from lakehouse.errors import InvalidIdentifierError, LakehouseError, NoSuchTableError
from lakehouse.server.access.asked_privileges import PRINCIPAL, path_of, reads
from lakehouse.server.http_messages import SEPARATOR, Answer, Call
from lakehouse.server.rest_operation import Served
from lakehouse.spec.identifier import Identifier, dotted
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata

TABLES_MAX = 1000
"""Of the first page; further ones are counted."""
SNAPSHOTS_MAX = 100
"""Of a table's page, the newest."""
_HEADERS = {
    # nothing is run, loaded from elsewhere, framed or kept
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_SUMMARY = (
    ("rows", "total-records"),
    ("files", "total-data-files"),
    ("bytes", "total-files-size"),
    ("committed by", PRINCIPAL),
)


def _visible(value: Any) -> Any:
    """Text whose invisible characters are written out: they could turn a line around."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in value)


_pages = Environment(
    loader=PackageLoader("lakehouse.server.watching"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_visible,
    trim_blocks=True,
    lstrip_blocks=True,
)


def catalog_page(served: Served, _call: Call) -> Answer:
    """Namespaces and their tables."""
    spaces: list[tuple[str, list[tuple[str, str]]]] = []
    shown = left = 0
    for namespace in sorted(walk_namespaces(served.catalog)):
        if not served.caller.sees(namespace):
            continue
        tables = [
            one for one in served.catalog.list_tables(namespace) if served.caller.sees(path_of(one))
        ]
        taken = tables[: max(TABLES_MAX - shown, 0)]
        shown, left = shown + len(taken), left + len(tables) - len(taken)
        spaces.append((dotted(namespace), [(one.name, _path(one)) for one in taken]))
    return _page(
        "catalog.html",
        catalog=served.lake.name,
        warehouse=hide_in_urls(served.lake.warehouse),
        namespaces=spaces,
        left=left,
    )


def table_page(served: Served, call: Call) -> Answer:
    """A table: its columns, snapshots, and what is said of it."""
    try:
        version = served.tables.newest(call.table())
    except (NoSuchTableError, InvalidIdentifierError) as error:
        return _page("missing.html", 404, catalog=served.lake.name, message=error.message)
    metadata = version.metadata
    ordered = sorted(metadata.snapshots, key=lambda one: one.timestamp_ms, reverse=True)
    return _page(
        "table.html",
        catalog=served.lake.name,
        table=str(version.identifier),
        facts=_facts(version),
        columns=_columns(metadata),
        refs=[(name, ref.type, ref.snapshot_id) for name, ref in sorted(metadata.refs.items())],
        properties=sorted(metadata.properties.items()),
        labels=[label for label, _ in _SUMMARY],
        snapshots=[_snapshot(one, metadata) for one in ordered[:SNAPSHOTS_MAX]],
        more_snapshots=max(len(ordered) - SNAPSHOTS_MAX, 0),
        statements=_statements(served, version),
    )


def style_sheet(_served: Served, _call: Call) -> Answer:
    """Of all pages."""
    text = _pages.get_template("style.css").render()
    return Answer(200, text.encode(), _HEADERS, "text/css; charset=utf-8")


def _page(template: str, status: int = 200, **values: object) -> Answer:
    text = _pages.get_template(template).render(values)
    return Answer(status, text.encode(), _HEADERS, "text/html; charset=utf-8")


def _path(identifier: Identifier) -> str:
    namespace = quote(SEPARATOR.join(identifier.namespace), safe="")
    return f"/tables/{namespace}/{quote(identifier.name, safe='')}"


def _facts(version: TableVersion) -> list[tuple[str, str]]:
    metadata = version.metadata
    facts = [
        ("comment", metadata.properties.get("comment", "")),
        ("location", metadata.location),
        ("metadata file", version.metadata_location),
        ("format version", str(metadata.format_version)),
        ("uuid", metadata.table_uuid),
        ("partitioned by", _terms(metadata, metadata.spec().fields)),
        ("sorted by", _terms(metadata, metadata.sort_order().fields)),
    ]
    return [(name, text) for name, text in facts if text]


def _terms(metadata: TableMetadata, fields: Iterable[Any]) -> str:
    schema = metadata.schema()
    shown = []
    for field in fields:
        column = schema.find_column_name(field.source_id) or f"field {field.source_id}"
        name = str(field.transform)
        shown.append(column if name == "identity" else f"{name}({column})")
    return ", ".join(shown)


def _columns(metadata: TableMetadata) -> list[tuple[str, str, str, str, str]]:
    return [
        (
            str(one.field_id),
            one.name,
            str(one.field_type),
            "required" if one.required else "",
            one.doc or "",
        )
        for one in metadata.schema().fields
    ]


def _snapshot(snapshot: Snapshot, metadata: TableMetadata) -> dict[str, Any]:
    at = dt.datetime.fromtimestamp(snapshot.timestamp_ms / 1000, dt.UTC)
    return {
        "id": str(snapshot.snapshot_id),
        "current": snapshot.snapshot_id == metadata.current_snapshot_id,
        "at": at.isoformat(sep=" ", timespec="seconds"),
        "operation": snapshot.operation or "",
        "summary": [snapshot.summary.get(key, "") for _, key in _SUMMARY],
    }


def _statements(served: Served, version: TableVersion) -> dict[str, Any]:
    """What is said of the table, with states; or that it cannot be told."""
    try:
        table = served.lake.load_table(version.identifier)
        stated = statements_about(served.lake, table, reads(served.caller))
    except LakehouseError as error:
        return {"failure": error.message, "rows": []}
    rows = [
        {
            "state": str(one.standing.state),
            "kind": str(one.draft.kind),
            "column": one.draft.column or "",
            "text": one.draft.text
            or ", ".join(f"{key} {value}" for key, value in one.draft.claim.items()),
            "reason": one.standing.reason,
            "author": one.draft.author,
        }
        for one in stated
    ]
    return {"failure": "", "rows": rows}
