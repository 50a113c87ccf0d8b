"""From names to fields and back: a draft is bound to table uuids and field ids.

It is read again under the names of today.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.errors import InvalidStatementError
from lakehouse.semantics.claims import SLOTS, Shape, Slot
from lakehouse.semantics.evidence import CHECKS, Check
from lakehouse.semantics.sql_names import Renames, sql_mentions, sql_renamed
from lakehouse.semantics.statements import Draft, Reference, Statement

Mention = tuple[str, str | None]
"""(table, column), or (table, None) for the table itself."""

_SQL = (Shape.PREDICATE, Shape.EXPRESSION, Shape.QUERY)


@dataclass(frozen=True, slots=True)
class TableNames:
    """How a table and its fields are called now.

    Attributes:
        name: dotted.
        table_uuid: of the table.
        fields: dotted path -> field id, nested fields too.
    """

    name: str
    table_uuid: str
    fields: Mapping[str, int]

    def path(self, field_id: int) -> str | None:
        """The path of a field; None when the schema has it no more."""
        return next((path for path, number in self.fields.items() if number == field_id), None)


def bind(draft: Draft, tables: Mapping[str, TableNames], now_ms: int) -> Statement:
    """The statement that a draft makes in this catalog.

    Args:
        draft: by names.
        tables: of the catalog, by dotted name.
        now_ms: when it is made.

    Raises:
        InvalidStatementError: it names a table or column that does not exist.
    """
    binder = _Binder(draft.statement_id, draft.table, tables)
    subject = binder.reference((draft.table, draft.column))
    mentions: dict[Mention, None] = dict.fromkeys(binder.mentions(SLOTS[draft.kind], draft.claim))
    if draft.evidence is not None:
        check = draft.evidence
        mentions |= dict.fromkeys(binder.mentions(CHECKS[check.name], check.arguments))
    others = [
        binder.reference(mention) for mention in sorted(mentions, key=lambda m: (m[0], m[1] or ""))
    ]
    references = tuple(dict.fromkeys([subject, *others]))
    return Statement(draft=draft, subject=subject, references=references, written_ms=now_ms)


def claim_mentions(statement: Statement) -> set[Mention]:
    """What the claim is about, its evidence apart, under the names of the binding."""
    draft = statement.draft
    mentions = _binder_of(statement).mentions(SLOTS[draft.kind], draft.claim)
    return {(draft.table, draft.column), *mentions}


def check_mentions(statement: Statement) -> set[Mention]:
    """What the evidence reads, under the names of the binding."""
    check = statement.evidence
    if check is None:
        return set()
    return set(_binder_of(statement).mentions(CHECKS[check.name], check.arguments))


def _binder_of(statement: Statement) -> _Binder:
    fields: dict[str, dict[str, int]] = {}
    uuids = {reference.table: reference.table_uuid for reference in statement.references}
    for reference in statement.references:
        field_ids = fields.setdefault(reference.table, {})
        if reference.column is not None and reference.field_id is not None:
            field_ids[reference.column] = reference.field_id
    tables = {name: TableNames(name, uuids[name], field_ids) for name, field_ids in fields.items()}
    return _Binder(statement.statement_id, statement.draft.table, tables)


def under_present_names(statement: Statement, tables: Mapping[str, TableNames]) -> Draft:
    """The draft as it would be written today: what was renamed since has its new name.

    `tables` by uuid.
    """
    new_tables: dict[str, str] = {}
    new_columns: dict[tuple[str, str], str] = {}
    for reference in statement.references:
        table = tables.get(reference.table_uuid)
        if table is None:
            continue
        if table.name != reference.table:
            new_tables[reference.table] = table.name
        path = None if reference.field_id is None else table.path(reference.field_id)
        if path is not None and reference.column is not None and path != reference.column:
            new_columns[reference.table, reference.column] = path
    draft = statement.draft
    if not new_tables and not new_columns:
        return draft
    renamer = _Renamer(statement, Renames(new_tables, new_columns))
    check = draft.evidence
    return replace(
        draft,
        table=new_tables.get(draft.table, draft.table),
        column=renamer.column(draft.column) if draft.column else None,
        claim=renamer.renamed(SLOTS[draft.kind], draft.claim),
        evidence=check and Check(check.name, renamer.renamed(CHECKS[check.name], check.arguments)),
    )


def split_column(name: str, table: str, tables: Mapping[str, Any]) -> tuple[str, str]:
    """(table, path) of a column, written as `path` of `table` or `namespace.table.path`."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if (prefix := ".".join(parts[:end])) in tables:
            return prefix, ".".join(parts[end:])
    return table, name


def _columns_in(shape: Shape, value: Any) -> Sequence[str]:
    if shape is Shape.COLUMN:
        return [value]
    if shape is Shape.COLUMNS:
        return list(value)
    return [value["column"]] if shape is Shape.SIGN else []


def _other_table(arguments: Mapping[str, Any], table: str, tables: Mapping[str, Any]) -> str:
    """The table that `to` is, or is a column of."""
    to = arguments.get("to", table)
    if isinstance(to, list):
        to = to[0]
    return to if to in tables else split_column(to, table, tables)[0]


@dataclass(frozen=True, slots=True)
class _Binder:
    where: str
    table: str
    tables: Mapping[str, TableNames]

    def reference(self, mention: Mention) -> Reference:
        name, column = mention
        table = self.tables.get(name)
        if table is None:
            raise InvalidStatementError(f"{self.where}: there is no table {name}", table=name)
        if column is None:
            return Reference(name, table.table_uuid)
        if column not in table.fields:
            names = ", ".join(sorted(table.fields))
            raise InvalidStatementError(
                f"{self.where}: {name} has no column {column}; it has {names}", table=name
            )
        return Reference(name, table.table_uuid, column, table.fields[column])

    def mentions(self, slots: Mapping[str, Slot], values: Mapping[str, Any]) -> Iterator[Mention]:
        for name, value in values.items():
            shape = slots[name].shape
            for column in _columns_in(shape, value):
                yield split_column(column, self.table, self.tables)
            if shape is Shape.TABLE:
                yield value, None
            elif shape is Shape.TABLES:
                yield from ((name, None) for name in value)
            elif shape in _SQL:
                yield from self._sql(name, shape, value, values)

    def _sql(
        self, name: str, shape: Shape, sql: str, values: Mapping[str, Any]
    ) -> Iterator[Mention]:
        table = None if shape is Shape.QUERY else self.table
        if name == "to_where":
            table = _other_table(values, self.table, self.tables)
        try:
            yield from sql_mentions(sql, table, self._columns)
        except InvalidStatementError as error:
            raise InvalidStatementError(f"{self.where}: {error.message}") from error

    def _columns(self, table: str) -> frozenset[str] | None:
        names = self.tables.get(table)
        return None if names is None else frozenset(names.fields)


@dataclass(frozen=True, slots=True)
class _Renamer:
    statement: Statement
    renames: Renames

    def column(self, written: str) -> str:
        table, path = split_column(written, self.statement.draft.table, self._mentioned_columns())
        new = self.renames.columns.get((table, path), path)
        if written == path:
            return new
        return f"{self.renames.tables.get(table, table)}.{new}"

    def renamed(self, slots: Mapping[str, Slot], values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._value(slots[name].shape, name, value, values)
            for name, value in values.items()
        }

    def _value(self, shape: Shape, name: str, value: Any, values: Mapping[str, Any]) -> Any:
        if shape is Shape.COLUMN:
            whole = value in self._mentioned_columns() and name == "to"
            return self.renames.tables.get(value, value) if whole else self.column(value)
        if shape is Shape.COLUMNS:
            return [self.column(name) for name in value]
        if shape is Shape.SIGN:
            return {**value, "column": self.column(value["column"])}
        if shape is Shape.TABLE:
            return self.renames.tables.get(value, value)
        if shape is Shape.TABLES:
            return [self.renames.tables.get(name, name) for name in value]
        if shape not in _SQL:
            return value
        table = None if shape is Shape.QUERY else self.statement.draft.table
        if name == "to_where":
            table = _other_table(values, self.statement.draft.table, self._mentioned_columns())
        return sql_renamed(value, table, self._columns, self.renames)

    def _mentioned_columns(self) -> dict[str, frozenset[str]]:
        """The columns that the statement mentions, by table, under the names of its binding."""
        by_table: dict[str, set[str]] = {}
        for reference in self.statement.references:
            names = by_table.setdefault(reference.table, set())
            if reference.column is not None:
                names.add(reference.column)
        return {table: frozenset(names) for table, names in by_table.items()}

    def _columns(self, table: str) -> frozenset[str] | None:
        return self._mentioned_columns().get(table)
