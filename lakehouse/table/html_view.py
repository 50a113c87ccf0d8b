"""What a notebook shows of a table: from its metadata alone, and whatever stands in it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from lakehouse.errors import LakehouseError
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata

_ROWS_MAX = 100
_TEXT_MAX = 300


def table_text(name: str, metadata: TableMetadata) -> str:
    """A table described in one line."""
    size = _said(lambda: _size(metadata.current_snapshot()))
    return (
        f"Table({name!r}, v{metadata.format_version}, snapshot {metadata.current_snapshot_id}, "
        f"{size}, {metadata.location!r})"
    )


def table_html(name: str, metadata: TableMetadata) -> str:
    """A table as a fragment of HTML: what it is, and its columns."""
    facts = {
        "comment": lambda: metadata.properties.get("comment", ""),
        "location": lambda: metadata.location,
        "format version": lambda: str(metadata.format_version),
        "snapshot": lambda: _moment(metadata.current_snapshot()),
        "size": lambda: _size(metadata.current_snapshot()),
        "partitioned by": lambda: partitioning(metadata),
        "sorted by": lambda: sorting(metadata),
        "branches and tags": lambda: ", ".join(
            f"{ref} ({snapshot_ref.type})" for ref, snapshot_ref in metadata.refs.items()
        ),
    }
    lines = [(fact, _said(tell)) for fact, tell in facts.items()]
    return (
        f"<div><strong>{_cell(name)}</strong>"
        + html_table((), [(fact, text) for fact, text in lines if text])
        + html_table(("id", "column", "type", "", "comment"), column_rows(metadata))
        + "</div>"
    )


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Texts as a table of HTML, the first hundred rows of it."""
    head = "".join(f"<th>{_cell(name)}</th>" for name in header)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="text-align:left">{_cell(text)}</td>' for text in row)
        + "</tr>"
        for row in rows[:_ROWS_MAX]
    )
    left = len(rows) - _ROWS_MAX
    more = f"<p>and {left} more</p>" if left > 0 else ""
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<table>{top}<tbody>{body}</tbody></table>{more}"


def _cell(text: str) -> str:
    shown = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
    # what is no letter, mark or sign would be invisible, or turn the line around
    return html.escape("".join(char if char.isprintable() else repr(char)[1:-1] for char in shown))


def _said(tell: Callable[[], str]) -> str:
    """A fact, or why it is unknown: metadata of other writers may name what is not there."""
    try:
        return tell()
    except (LakehouseError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        return f"unknown: {error}"


def column_rows(metadata: TableMetadata) -> Sequence[Sequence[str]]:
    """Field id, name, type, `required`, comment of each column, as text."""
    try:
        fields = metadata.schema().fields
    except LakehouseError as error:
        return [("", f"unknown: {error}", "", "", "")]
    return [
        (
            str(field.field_id),
            field.name,
            str(field.field_type),
            "required" if field.required else "",
            field.doc or "",
        )
        for field in fields
    ]


def partitioning(metadata: TableMetadata) -> str:
    """The terms of the partition spec, such as `day(event_ts)`; empty: there is none."""
    return _terms(
        metadata, ((field.transform, field.source_id) for field in metadata.spec().fields)
    )


def sorting(metadata: TableMetadata) -> str:
    """The columns of the sort order; empty: there is none."""
    fields = metadata.sort_order().fields
    return _terms(metadata, ((field.transform, field.source_id) for field in fields))


def _terms(metadata: TableMetadata, terms: Iterable[tuple[object, int]]) -> str:
    schema = metadata.schema()
    shown = []
    for transform, source in terms:
        column = schema.find_column_name(source) or f"column {source}, which is gone"
        shown.append(column if str(transform) == "identity" else f"{transform}({column})")
    return ", ".join(shown)


def _moment(snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return "none: nothing was written yet"
    at = np.datetime64(snapshot.timestamp_ms, "ms")
    return f"{snapshot.snapshot_id}, {snapshot.operation or 'written'} at {at} UTC"


def _size(snapshot: Snapshot | None) -> str:
    """Rows, files and bytes as the snapshot's summary says (specification: Snapshot Summary)."""
    if snapshot is None:
        return "empty"
    summary = snapshot.summary
    rows, files, size = (
        summary.get(name) for name in ("total-records", "total-data-files", "total-files-size")
    )
    if rows is None or files is None:
        return "size not recorded"
    # deleted rows of files with delete files count
    most = "at most " if summary.get("total-delete-files", "0") != "0" else ""
    return f"{most}{rows} rows in {files} files" + ("" if size is None else f", {size} bytes")
