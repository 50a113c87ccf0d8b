"""Writes statements into fields that every client shows: column docs, `comment` and `owner`.

Only what is not contradicted is written; what becomes contradicted is taken out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakehouse.curation.checkup import Checked, accept, check
from lakehouse.curation.statement_store import StatementStore
from lakehouse.curation.survey import survey
from lakehouse.lake import Lakehouse
from lakehouse.semantics.claims import Kind
from lakehouse.semantics.facts import OWNER
from lakehouse.semantics.statements import Statement
from lakehouse.semantics.states import State

COMMENT = "comment"

_SERVED = (State.VERIFIED, State.UNVERIFIED)
_IN_DOC = (Kind.DESCRIPTION, Kind.UNIT, Kind.CODES, Kind.VALIDITY, Kind.WARNING)
_IN_COMMENT = (Kind.DEPRECATION, Kind.DESCRIPTION, Kind.GRAIN)


@dataclass(frozen=True, slots=True)
class StandardFields:
    """What a table's own metadata should say.

    Attributes:
        docs: column path -> comment; None where nothing is left to be said.
        properties: name -> value.
    """

    docs: Mapping[str, str | None] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


def standard_fields(checked: Iterable[Checked]) -> dict[str, StandardFields]:
    """By dotted table name, from statements and their states."""
    docs: dict[str, dict[str, list[str]]] = {}
    comments: dict[str, list[tuple[int, str]]] = {}
    owners: dict[str, str] = {}
    for statement in checked:
        draft = statement.draft
        served = statement.standing.state in _SERVED
        if draft.column is not None and draft.kind in _IN_DOC and draft.text:
            texts = docs.setdefault(draft.table, {}).setdefault(draft.column, [])
            if served:
                texts.append(draft.text)
        elif draft.column is None and draft.kind in _IN_COMMENT and draft.text and served:
            order = _IN_COMMENT.index(draft.kind)
            comments.setdefault(draft.table, []).append((order, draft.text))
        elif draft.kind is Kind.OWNER and served:
            owners[draft.table] = str(draft.claim["owner"])
    return {
        table: StandardFields(
            {column: " ".join(texts) or None for column, texts in docs.get(table, {}).items()},
            {
                name: value
                for name, value in (
                    (COMMENT, " ".join(text for _, text in sorted(comments.get(table, [])))),
                    (OWNER, owners.get(table, "")),
                )
                if value
            },
        )
        for table in sorted({*docs, *comments, *owners})
    }


def write_standard_fields(lake: Lakehouse, wanted: Mapping[str, StandardFields]) -> list[str]:
    """Write what differs; a table that is there already is left alone.

    Returns the tables that changed.
    """
    changed = []
    for name, fields in wanted.items():
        if not lake.table_exists(name):
            continue
        table = lake.load_table(name)
        schema = table.schema()
        docs = {
            column: doc
            for column, doc in fields.docs.items()
            if column in schema.column_names and (schema.find_field(column).doc or None) != doc
        }
        properties = {
            key: value
            for key, value in fields.properties.items()
            if table.properties.get(key) != value
        }
        if docs:
            with table.update_schema() as update:
                for column, doc in docs.items():
                    update.update_column(column, doc=doc)
        if properties:
            table.set_properties(properties)
        if docs or properties:
            changed.append(name)
    return changed


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did.

    Attributes:
        checked: every statement of the lakehouse with its state now.
        documented: what was written into the tables' own fields.
    """

    checked: Sequence[Checked]
    documented: Sequence[str]


def keep_statements(
    lake: Lakehouse,
    statements: Sequence[Statement],
    by: str,
    *,
    replace: bool = True,
    documents: bool = True,
) -> Imported:
    """Keep statements, check all that there are, and write what holds into the tables' own fields.

    Args:
        lake: the lakehouse.
        statements: bound to its tables.
        by: who read them: what has no evidence is taken on their word.
        replace: whether other statements about the same tables go.
        documents: whether column docs, comments and owners of tables are written.
    """
    StatementStore(lake).put(statements, replace=replace)
    accept(lake, statements, by)
    checked, verifications = check(survey(lake))
    StatementStore(lake).record(verifications)
    written = write_standard_fields(lake, standard_fields(checked)) if documents else []
    return Imported(checked, written)
