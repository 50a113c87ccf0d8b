"""Statements about tables: who says what, bound to a table's uuid and field ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakehouse.semantics.claims import Kind
from lakehouse.semantics.evidence import Check


@dataclass(frozen=True, slots=True)
class Reference:
    """A table, or one of its fields, by what never changes.

    The names are those at the time of binding.

    Attributes:
        table: dotted name.
        table_uuid: of the table.
        column: dotted path; None for the table itself.
        field_id: of the column; None for the table itself.
    """

    table: str
    table_uuid: str
    column: str | None = None
    field_id: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "table": self.table,
            "uuid": self.table_uuid,
            "column": self.column,
            "field_id": self.field_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A statement as a person writes it, with names instead of ids.

    Attributes:
        statement_id: unique within the catalog.
        table: dotted name of the table that it is about.
        column: dotted path of the column that it is about; None for the table.
        kind: what it is about.
        claim: slots of the kind, see `claims.SLOTS`.
        text: one sentence for people.
        author: who says so.
        source: where it was written down: a note, a ticket, a page.
        evidence: what shows that it is true; None: nothing can.
        expires: ISO date from which on it says nothing any more.
        superseded_by: id of the statement that replaced it.
    """

    statement_id: str
    table: str
    column: str | None = None
    kind: Kind
    claim: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    author: str = ""
    source: str = ""
    evidence: Check | None = None
    expires: str | None = None
    superseded_by: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, without those that are not given."""
        written: dict[str, Any] = {
            "id": self.statement_id,
            "table": self.table,
            "column": self.column,
            "kind": str(self.kind),
            "text": self.text,
            **self.claim,
            "author": self.author,
            "source": self.source,
            "expires": self.expires,
            "superseded_by": self.superseded_by,
            "evidence": None if self.evidence is None else self.evidence.to_json(),
        }
        return {key: value for key, value in written.items() if value not in (None, "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A draft bound to a catalog: names stand for the fields that they named when it was written.

    Attributes:
        draft: what was written.
        subject: the table or field that it is about.
        references: everything that the claim and its evidence mention, the subject first.
        written_ms: when, milliseconds since the epoch.
    """

    draft: Draft
    subject: Reference
    references: tuple[Reference, ...]
    written_ms: int

    @property
    def statement_id(self) -> str:
        """Unique within the catalog."""
        return self.draft.statement_id

    @property
    def kind(self) -> Kind:
        """The kind of the statement, from its draft."""
        return self.draft.kind

    @property
    def claim(self) -> Mapping[str, Any]:
        """Slots of the kind."""
        return self.draft.claim

    @property
    def evidence(self) -> Check | None:
        """What shows that it is true."""
        return self.draft.evidence

    @property
    def tables(self) -> frozenset[str]:
        """The uuids of the tables that it depends on."""
        return frozenset(reference.table_uuid for reference in self.references)

    def fields_of(self, table_uuid: str) -> frozenset[int]:
        """The fields of a table that it depends on."""
        return frozenset(
            reference.field_id
            for reference in self.references
            if reference.table_uuid == table_uuid and reference.field_id is not None
        )

    def digest(self) -> str:
        """Sixteen hexadecimal digits: a digest of claim, evidence, and bound fields."""
        bound = [(reference.table_uuid, reference.field_id) for reference in self.references]
        return digest_of({"draft": self.draft.to_json(), "bound": bound})


def digest_of(value: object) -> str:
    """Sixteen hexadecimal digits of a plain value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def table_digest(statements: Iterable[Statement], table_uuid: str) -> str:
    """One digest of the statements about a table, whatever their order."""
    return digest_of(
        sorted(
            statement.digest()
            for statement in statements
            if statement.subject.table_uuid == table_uuid
        )
    )
