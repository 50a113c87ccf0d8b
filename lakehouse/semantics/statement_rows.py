"""Statements and verifications as rows of tables: readable by any engine, versioned."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from lakehouse.semantics.claims import plain
from lakehouse.semantics.statement_yaml import draft_of
from lakehouse.semantics.statements import Reference, Statement
from lakehouse.semantics.states import Mark, Verification

STATEMENT_SCHEMA = pa.schema(
    [
        pa.field("statement_id", pa.string(), nullable=False),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_uuid", pa.string(), nullable=False),
        pa.field("field_id", pa.int32()),
        pa.field("column_name", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("author", pa.string()),
        pa.field("source", pa.string()),
        pa.field("written_at", pa.timestamp("us", "UTC"), nullable=False),
        # the whole draft and what it is bound to, as JSON: the columns before are for people and
        # for filters
        pa.field("draft", pa.string(), nullable=False),
        pa.field("references", pa.string(), nullable=False),
    ]
)
"""One row a statement; the table's snapshots are its versions."""

VERIFICATION_SCHEMA = pa.schema(
    [
        pa.field("statement_id", pa.string(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("verified_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("by", pa.string(), nullable=False),
        pa.field("holds", pa.bool_(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("observed", pa.string(), nullable=False),
        pa.field("marks", pa.string(), nullable=False),
    ]
)
"""One row each time that a statement was looked at; the newest counts."""


def statement_rows(statements: Iterable[Statement]) -> pa.Table:
    """Rows of `STATEMENT_SCHEMA`."""
    rows = [
        {
            "statement_id": statement.statement_id,
            "table_name": statement.subject.table,
            "table_uuid": statement.subject.table_uuid,
            "field_id": statement.subject.field_id,
            "column_name": statement.subject.column,
            "kind": str(statement.kind),
            "text": statement.draft.text,
            "author": statement.draft.author,
            "source": statement.draft.source,
            "written_at": statement.written_ms * 1000,
            "draft": _json(statement.draft.to_json()),
            "references": _json([reference.to_json() for reference in statement.references]),
        }
        for statement in statements
    ]
    return pa.Table.from_pylist(rows, schema=STATEMENT_SCHEMA)


def statements_of(rows: pa.Table) -> list[Statement]:
    """Inverse of `statement_rows`.

    Raises InvalidStatementError for a draft that this version does not know.
    """
    statements = []
    for row in rows.select(["statement_id", "draft", "references", "written_at"]).to_pylist():
        references = tuple(
            Reference(stored["table"], stored["uuid"], stored["column"], stored["field_id"])
            for stored in json.loads(row["references"])
        )
        statements.append(
            Statement(
                draft=draft_of(json.loads(row["draft"]), f"stored statement {row['statement_id']}"),
                subject=references[0],
                references=references,
                written_ms=round(row["written_at"].timestamp() * 1000),
            )
        )
    return statements


def verification_rows(verifications: Iterable[Verification]) -> pa.Table:
    """Rows of `VERIFICATION_SCHEMA`."""
    rows = [
        {
            "statement_id": verification.statement_id,
            "digest": verification.digest,
            "verified_at": verification.at_ms * 1000,
            "by": verification.by,
            "holds": verification.holds,
            "reason": verification.reason,
            "observed": _json(plain(verification.observed)),
            "marks": _json({uuid: _mark_json(mark) for uuid, mark in verification.marks.items()}),
        }
        for verification in verifications
    ]
    return pa.Table.from_pylist(rows, schema=VERIFICATION_SCHEMA)


def verifications_of(rows: pa.Table) -> dict[str, Verification]:
    """The newest verification of each statement, by its id."""
    newest: dict[str, Verification] = {}
    for row in sorted(rows.to_pylist(), key=lambda row: row["verified_at"]):
        newest[row["statement_id"]] = Verification(
            statement_id=row["statement_id"],
            digest=row["digest"],
            at_ms=round(row["verified_at"].timestamp() * 1000),
            by=row["by"],
            holds=row["holds"],
            reason=row["reason"] or "",
            observed=json.loads(row["observed"]),
            marks={uuid: _mark(written) for uuid, written in json.loads(row["marks"]).items()},
        )
    return newest


def _mark_json(mark: Mark) -> dict[str, Any]:
    return {
        "snapshot_id": mark.snapshot_id,
        "schema_id": mark.schema_id,
        "rows": mark.rows,
        "owner": mark.owner,
        "columns": {str(field_id): dict(column) for field_id, column in mark.columns.items()},
    }


def _mark(written: dict[str, Any]) -> Mark:
    return Mark(
        snapshot_id=written["snapshot_id"],
        schema_id=written["schema_id"],
        rows=written["rows"],
        owner=written.get("owner"),  # marks of before owners were kept have none
        columns={int(field_id): column for field_id, column in written["columns"].items()},
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
