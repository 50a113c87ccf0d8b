"""Comments that somebody wrote into a table itself, as statements for a person to accept.

A comment alone has no state: nothing marks it when the column that it is about has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from lakehouse.curation.standard_fields import COMMENT
from lakehouse.curation.statement_store import NAMESPACE
from lakehouse.curation.survey import Survey
from lakehouse.semantics.claims import Kind
from lakehouse.semantics.facts import OWNER
from lakehouse.semantics.statement_yaml import draft_of
from lakehouse.semantics.statements import Draft
from lakehouse.spec.schema.iceberg_types import fields_of
from lakehouse.table import Table


def written_comments(seen: Survey, tables: Collection[str]) -> list[Draft]:
    """Docs of columns, comments and owners of tables that no statement says.

    What our own statements wrote there is left out, in whatever state they are.

    Args:
        seen: the lakehouse.
        tables: dotted names of the tables to look into.
    """
    texts: dict[tuple[str, str | None], list[str]] = {}
    owned = set()
    for draft in map(seen.draft, seen.statements):
        texts.setdefault((draft.table, draft.column), []).append(draft.text)
        if draft.kind is Kind.OWNER:
            owned.add(draft.table)
    drafts: list[Draft] = []
    for table in seen.tables.values():
        if table.name not in tables or table.name.startswith(f"{NAMESPACE}."):
            continue
        for column, written in _comments(table):
            if not _is_covered(written, texts.get((table.name, column), ())):
                drafts.append(_draft(table, kind="description", column=column, text=written))
        owner = table.properties.get(OWNER)
        if owner and table.name not in owned:
            drafts.append(_draft(table, kind="owner", owner=owner))
    return drafts


def _comments(table: Table) -> Iterator[tuple[str | None, str]]:
    """Column, or None for the table, and what is written about it."""
    schema = table.schema()
    if comment := table.properties.get(COMMENT, "").strip():
        yield None, comment
    for field_id in fields_of(schema):
        if doc := (schema.find_field(field_id).doc or "").strip():
            yield str(schema.find_column_name(field_id)), doc


def _is_covered(written: str, texts: Collection[str]) -> bool:
    """Whether nothing but the texts is written."""
    for text in sorted(texts, key=len, reverse=True):
        written = written.replace(text, "") if text else written
    return not written.strip()


def _draft(table: Table, **written: Any) -> Draft:
    filled = {name: value for name, value in written.items() if value is not None}
    source = f"a comment in schema {table.schema().schema_id} of the table"
    return draft_of(
        {"table": table.name, "author": "comments of the table", "source": source, **filled},
        "comment",
    )
