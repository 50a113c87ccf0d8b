"""Statements about tables, with their states: an extension of the protocol, no part of it.

Statements are kept in tables of the catalog, which every client can read. Here they come with their
states, which follow from metadata, and are written with the checks of names and privileges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lakehouse.curation.checkup import accept, check
from lakehouse.curation.gathering import table_names
from lakehouse.curation.standard_fields import standard_fields, write_standard_fields
from lakehouse.curation.statement_store import NAMESPACE, StatementStore
from lakehouse.curation.survey import survey
from lakehouse.errors import InvalidIdentifierError, InvalidInputError, NoSuchTableError
from lakehouse.semantics.binding import TableNames, bind
from lakehouse.semantics.statement_yaml import draft_of
from lakehouse.semantics.statements import Draft, table_digest
from lakehouse.server.access.asked_privileges import on_table, reads
from lakehouse.server.access.confined_tables import check_updates
from lakehouse.server.access.privileges import ANYONE, Privilege
from lakehouse.server.http_messages import Answer, Call, json_answer
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.json_fields import optional_list, optional_str, require_object

STATEMENTS_MAX = 1000
"""In one request."""
_UNNAMED = "REST"


def table_statements(served: Served, call: Call) -> Answer:
    """The statements about a table with their states, from metadata alone.

    With `snapshot-id` what had been said, and seen, when that snapshot was made; the tables that it
    is compared with are those of now. Statements that mention a table which the caller may not read
    are left out; `digest` is of all of them.
    """
    version = served.tables.newest(call.table())
    as_of_ms = None
    text = call.query.get("snapshot-id")
    if text is not None:
        if not text.removeprefix("-").isdecimal():
            raise InvalidInputError(f"snapshot-id must be a number, not {text[:40]!r}.")
        as_of_ms = version.metadata.snapshot(int(text)).timestamp_ms
    return _answer(served, str(version.identifier), as_of_ms)


def change_statements(served: Served, call: Call) -> Answer:
    """Keep statements about a table, accepted by the caller, and take others back.

    Sent again it changes nothing more. No evidence is run here: what metadata cannot decide stays
    unverified until `lakehouse semantics check` or the table's check in Dagster runs.
    """
    version = served.tables.newest(call.table())
    check_updates(served.catalog, served.tables, served.caller, version.identifier, version, ())
    table = served.lake.load_table(call.table())
    document = call.document()
    written = call.read(lambda: optional_list(document, "statements", "body"))
    removals = call.read(lambda: optional_list(document, "removals", "body"))
    expected = call.read(lambda: optional_str(document, "digest", "body"))
    if not all(isinstance(removal, str) for removal in removals):
        raise InvalidInputError("body.removals: expected a list of ids.")
    if len(written) > STATEMENTS_MAX:
        raise InvalidInputError(f"At most {STATEMENTS_MAX} statements in one request.")
    drafts = call.read(lambda: [_draft(served, statement, table.name) for statement in written])
    names, now_ms = _Readable(served), served.environment.now_ms()
    bound = [bind(draft, names, now_ms) for draft in drafts]
    StatementStore(served.lake).change(table, bound, removals, expected=expected)
    accept(served.lake, bound, _UNNAMED)
    results, _ = check(survey(served.lake, [table.name]), run_evidence=False)
    write_standard_fields(served.lake, standard_fields(results))
    return _answer(served, table.name, None)


def _answer(served: Served, name: str, as_of_ms: int | None) -> Answer:
    seen = survey(served.lake, [name], as_of_ms=as_of_ms)
    results, _ = check(seen.restricted(reads(served.caller)), run_evidence=False)
    table = next(table for table in seen.tables.values() if table.name == name)
    snapshot_id = table.metadata.current_snapshot_id
    return json_answer(
        {
            "table-uuid": table.metadata.table_uuid,
            "snapshot-id": snapshot_id,
            "digest": table_digest(seen.statements, table.metadata.table_uuid),
            "statements": [result.to_json() for result in results],
        }
    )


def _draft(served: Served, written: Any, table: str) -> Draft:
    """A statement of the body; by the caller, where callers are known."""
    draft = draft_of({"table": table, **require_object(written, "body.statements")}, "body")
    if draft.table != table:
        raise InvalidInputError(f"{draft.statement_id} is about {draft.table}, not {table}.")
    caller = served.caller
    return draft if caller is ANYONE else replace(draft, author=str(caller.name))


class _Readable(Mapping[str, TableNames]):
    """Names of tables and columns, of the tables that the caller may read."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._names: dict[str, TableNames | None] = {}

    def __getitem__(self, name: str) -> TableNames:
        if name not in self._names:
            self._names[name] = self._names_of(name)
        names = self._names[name]
        if names is None:
            raise KeyError(name)
        return names

    def __iter__(self) -> Iterator[str]:
        return (name for name, names in self._names.items() if names is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _names_of(self, name: str) -> TableNames | None:
        try:
            identifier = Identifier.parse(name)
            if identifier.namespace[:1] == (NAMESPACE,):
                return None
            if not reads(self._served.caller)(name):
                return None
            return table_names(self._served.lake.load_table(identifier))
        except (InvalidIdentifierError, NoSuchTableError):
            return None


_PATH = "/semantics/namespaces/{namespace}/tables/{table}"
SEMANTICS_OPERATIONS = (
    Operation("GET", _PATH, table_statements, asks=on_table(Privilege.READ)),
    # sent again it does the same once more, which is nothing: no request has to be remembered
    Operation("POST", _PATH, change_statements, asks=on_table(Privilege.WRITE)),
)
