"""SQL that changes tables, without a JVM: INSERT, UPDATE, DELETE, MERGE, CREATE, ALTER and DROP.

Each statement becomes the verb of the table that does it. A statement is cut into its clauses at
its keywords, and conditions, values and queries go on as the user wrote them, so that an error
points at the user's own text. What is not here is an error that says where it is: in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, TimestamptzNanoType, TimestamptzType

from lakehouse.errors import InvalidInputError, InvalidSchemaError, TableAlreadyExistsError
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.lake import Lakehouse
from lakehouse.queries import QueryEngine
from lakehouse.row_changes.merge.merge_binding import bind_update
from lakehouse.spec.types.arrow_types import type_to_arrow
from lakehouse.spec.types.type_text import type_from_text
from lakehouse.table import Table
from lakehouse.table.verbs.merge_verbs import MergeBuilder

CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "ALTER", "DROP")
"""First words of the statements that are executed here."""
_TOKEN = re.compile(
    r"""\s+ | --[^\n]* | /\*.*?\*/
    | (?P<text> '(?:[^']|'')*') | (?P<quoted> "(?:[^"]|"")*" | `[^`]*`)
    | (?P<word> [^\W\d]\w*) | (?P<number> \d[\w.]*) | (?P<mark> .)""",
    re.VERBOSE | re.DOTALL,
)
_TYPES = {
    "bigint": "long", "integer": "int", "int8": "long", "int4": "int", "smallint": "int",
    "tinyint": "int", "real": "float", "float4": "float", "float8": "double", "bool": "boolean",
    "text": "string", "varchar": "string", "bytea": "binary", "blob": "binary",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StatementResult:
    """What a statement did, or would do.

    Attributes:
        table: that it is about.
        done: in words, such as "3 rows deleted".
        counts: rows by what became of them; None where nobody counted them.
        snapshot_id: that it made; None where none was.
        dry_run: whether nothing was changed.
    """

    table: str
    done: str
    counts: Mapping[str, int | None] = field(default_factory=dict)
    snapshot_id: int | None = None
    dry_run: bool = False


def is_change(text: str) -> bool:
    """Whether a text begins as a statement that changes something."""
    tokens = _tokens(text)
    return bool(tokens) and _keyword(tokens[0]) in CHANGES


class _Clauses:
    """A statement, read from left to right: words are taken, and the text up to a keyword."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        while self.tokens and self.tokens[-1].text == ";":
            self.tokens.pop()
        if any(token.kind == "mark" and token.text == ";" for token in self.tokens):
            raise InvalidInputError("Only one statement can be run at a time")
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        """The word or mark there, words in capitals; empty for a name in quotes and at the end."""
        at = self.at + ahead
        return _keyword(self.tokens[at]) if at < len(self.tokens) else ""

    def take(self, *words: str) -> bool:
        """Whether the next words are these, which are taken then."""
        if any(self.peek(ahead) != word for ahead, word in enumerate(words)):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Take words that must be there. Raises InvalidInputError."""
        if not self.take(*words):
            self.fail(" ".join(words))

    def fail(self, wanted: str) -> NoReturn:
        """Say what was wanted and what is there. Raises InvalidInputError."""
        actual = repr(self.tokens[self.at].text) if self.at < len(self.tokens) else "its end"
        before = self.text[: self.tokens[self.at - 1].end] if self.at else ""
        raise InvalidInputError(
            f"Not a statement: {wanted} is expected instead of {actual} after {before!r}"
        )

    def end(self) -> None:
        """Nothing comes any more. Raises InvalidInputError."""
        if self.at < len(self.tokens):
            self.fail("its end")

    def identifier(self, what: str) -> str:
        """One name, in quotes or not. Raises InvalidInputError."""
        return self._value(what, "word", "quoted")

    def literal(self, what: str) -> str:
        """A text in quotes, or a number. Raises InvalidInputError."""
        return self._value(what, "text", "number")

    def _value(self, what: str, *kinds: str) -> str:
        if self.at == len(self.tokens) or self.tokens[self.at].kind not in kinds:
            self.fail(what)
        self.at += 1
        return self.tokens[self.at - 1].text

    def path(self, what: str) -> tuple[str, ...]:
        """Names with dots between them. Raises InvalidInputError."""
        parts = [self.identifier(what)]
        while self.take("."):
            parts.append(self.identifier(what))
        return tuple(parts)

    def until(self, *words: str) -> str:
        """The text before one of these words outside parentheses and CASE, or all that is left."""
        first, depth = self.at, 0
        while self.at < len(self.tokens):
            word = self.peek()
            if depth == 0 and self.at > first and word in words:
                break
            depth += (word in _OPENING) - (word in _CLOSING)
            if depth < 0:
                break
            self.at += 1
        if first == self.at:
            return ""
        return self.text[self.tokens[first].start : self.tokens[self.at - 1].end]

    def parenthesized(self) -> list[str]:
        """The parts of `( ... , ... )`. Raises InvalidInputError."""
        self.expect("(")
        parts = [self.until(",")]
        while self.take(","):
            parts.append(self.until(","))
        self.expect(")")
        if not all(parts):
            raise InvalidInputError(f"Not a statement: a part is empty in {self.text!r}")
        return parts

    def rest(self) -> str:
        """All that is left."""
        return self.until()


_OPENING, _CLOSING = {"(", "[", "{", "CASE"}, {")", "]", "}", "END"}


def _keyword(token: _Token) -> str:
    return token.text.upper() if token.kind in {"word", "mark"} else ""


class StatementEngine:
    """Executes statements that change a lakehouse's tables.

    Args:
        lake: whose tables.
        branch: that rows are changed on.
        dry_run: whether to say what would be changed, and change nothing.
    """

    def __init__(self, lake: Lakehouse, *, branch: str = "main", dry_run: bool = False) -> None:
        self._lake = lake
        self._branch = branch
        self._dry_run = dry_run

    def run(self, text: str) -> StatementResult:
        """Execute one statement.

        Raises:
            InvalidInputError: it is none of those that are executed here, or cannot be read.
            NoSuchTableError, InvalidExpressionError, InvalidSchemaError, CommitError, ...: as the
                table's own verbs.
        """
        clauses = _Clauses(text)
        verbs: dict[str, Callable[[_Clauses], StatementResult]] = {
            "INSERT": self._insert, "UPDATE": self._update, "DELETE": self._delete,
            "MERGE": self._merge, "CREATE": self._create, "ALTER": self._alter,
            "DROP": self._drop,
        }  # fmt: skip
        word = clauses.peek()
        if word not in verbs:
            raise InvalidInputError(
                f"Not a statement that is executed here: it begins with {word or 'nothing'!r}, and "
                f"may begin with {', '.join(CHANGES)}, or be a SELECT"
            )
        clauses.take(word)
        return verbs[word](clauses)

    def _insert(self, clauses: _Clauses) -> StatementResult:
        overwrite = clauses.take("OVERWRITE")
        if not overwrite:
            clauses.expect("INTO")
        clauses.take("TABLE")
        table = self._table(clauses)
        known = [column.name for column in table.schema().fields]
        named = clauses.peek() == "(" and clauses.peek(1) not in {"SELECT", "WITH", "VALUES", "("}
        names = [_bare(part) for part in clauses.parenthesized()] if named else known
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InvalidInputError(f"{table.name} has no column {unknown[0]!r}", table=table.name)
        rows = self._rows(clauses, names, table.schema())
        if self._dry_run:
            expected: dict[str, int | None] = {"inserted": rows.num_rows}
            if overwrite:
                expected["deleted"] = self._count(table, None)
            return self._told(table, expected)
        written = (
            table.overwrite(rows, branch=self._branch)
            if overwrite
            else table.append(rows, branch=self._branch)
        )
        counts: dict[str, int | None] = {"inserted": written.rows_inserted}
        if overwrite:
            counts["deleted"] = written.rows_deleted
        snapshot = written.snapshot
        return self._told(table, counts, None if snapshot is None else snapshot.snapshot_id)

    def _rows(self, clauses: _Clauses, names: Sequence[str], schema: Schema) -> pa.Table:
        """Rows of a SELECT or of VALUES, with the names of the columns they are for."""
        values = clauses.peek() == "VALUES"
        query = clauses.rest()
        if not query:
            clauses.fail("a SELECT or VALUES")
        if values:
            query = f"SELECT * FROM ({query}) AS given"
        rows = QueryEngine(self._lake, self._lake.environment, exact=values).run(query)
        if rows.num_columns != len(names):
            raise InvalidInputError(
                f"{rows.num_columns} columns are given for {len(names)}: {', '.join(names)}"
            )
        rows = rows.rename_columns(list(names))
        return _typed_literals(rows, schema) if values else rows

    def _delete(self, clauses: _Clauses) -> StatementResult:
        clauses.expect("FROM")
        table = self._table(clauses)
        where = clauses.rest() if clauses.take("WHERE") else None
        clauses.end()
        if where == "":
            clauses.fail("a condition")
        if self._dry_run:
            return self._told(table, {"deleted": self._count(table, where)})
        deleted = table.delete("true" if where is None else where, branch=self._branch)
        if deleted is None:
            return self._told(table, {"deleted": 0})
        snapshot = deleted.snapshot
        return self._told(
            table,
            {"deleted": deleted.rows_deleted},
            None if snapshot is None else snapshot.snapshot_id,
        )

    def _update(self, clauses: _Clauses) -> StatementResult:
        table = self._table(clauses)
        clauses.expect("SET")
        assignments: dict[str, str] = {}
        while True:
            column = ".".join(clauses.path("a column"))
            clauses.expect("=")
            value = clauses.until(",", "WHERE")
            if not value:
                clauses.fail("a value")
            if column in assignments:
                raise InvalidInputError(f"Column {column!r} is set twice")
            assignments[column] = value
            if not clauses.take(","):
                break
        where = clauses.rest() if clauses.take("WHERE") else None
        clauses.end()
        if where == "":
            clauses.fail("a condition")
        if self._dry_run:
            bind_update(assignments, table.schema())
            matching = self._count(table, where)
            return self._told(table, {"updated": matching})
        updated = table.update(assignments, where, branch=self._branch)
        return self._told(table, {"updated": updated.rows_updated}, updated.snapshot_id)

    def _merge(self, clauses: _Clauses) -> StatementResult:
        clauses.expect("INTO")
        table = self._table(clauses)
        alias = self._alias(clauses, "USING") or table.name.rpartition(".")[2]
        clauses.expect("USING")
        if clauses.peek() == "(":
            clauses.take("(")
            query = clauses.until()
            clauses.expect(")")
            source_name = ""
        else:
            parts = clauses.path("a table or a query in parentheses")
            query = "SELECT * FROM " + ".".join(_quoted(part) for part in parts)
            source_name = parts[-1]
        source_alias = self._alias(clauses, "ON") or source_name
        if not source_alias:
            clauses.fail("an alias of the query")
        if clauses.peek() == "(":
            columns = ", ".join(clauses.parenthesized())
            query = f"SELECT * FROM ({query}) AS {_quoted(source_alias)} ({columns})"
        clauses.expect("ON")
        condition = clauses.until("WHEN")
        rows = QueryEngine(self._lake, self._lake.environment).run(query)
        merging: MergeBuilder = table.merge(
            rows, condition, source_alias=source_alias, target_alias=alias, branch=self._branch
        )
        if clauses.peek() != "WHEN":
            clauses.fail("WHEN")
        while clauses.take("WHEN"):
            merging = merging.when(clauses.until("WHEN"))
        clauses.end()
        if self._dry_run:
            plan = merging.plan()
            return self._told(
                table,
                {
                    "inserted": plan.rows_inserted,
                    "updated": plan.rows_updated,
                    "deleted": plan.rows_deleted,
                },
            )
        merged = merging.execute()
        counts = {
            "inserted": merged.rows_inserted,
            "updated": merged.rows_updated,
            "deleted": merged.rows_deleted,
        }
        return self._told(table, counts, merged.snapshot_id)

    def _create(self, clauses: _Clauses) -> StatementResult:
        clauses.expect("TABLE")
        missing_only = clauses.take("IF", "NOT", "EXISTS")
        name = clauses.path("a table")
        shown = ".".join(name)
        columns = clauses.parenthesized() if clauses.peek() == "(" else None
        terms: list[str] = []
        properties: dict[str, str] = {}
        while clauses.peek() in {"PARTITIONED", "TBLPROPERTIES", "USING"}:
            if clauses.take("PARTITIONED", "BY"):
                terms = clauses.parenthesized()
            elif clauses.take("USING"):
                clauses.expect("ICEBERG")
            else:
                clauses.expect("TBLPROPERTIES")
                properties = _properties(clauses)
        query = clauses.rest() if clauses.take("AS") else None
        clauses.end()
        if (columns is None) == (query is None):
            raise InvalidInputError(f"CREATE TABLE {shown} needs either columns or AS SELECT")
        if missing_only and self._lake.table_exists(name):
            return StatementResult(shown, f"{shown} is there already", dry_run=self._dry_run)
        rows = None if query is None else self._query(query)
        schema: object = _columns(columns or ()) if rows is None else rows.schema
        text = f"{shown} created" + ("" if rows is None else f", {rows.num_rows:,} rows inserted")
        counts = {} if rows is None else {"inserted": rows.num_rows}
        if self._dry_run:
            if self._lake.table_exists(name):
                raise TableAlreadyExistsError(f"Table {shown} already exists.", table=shown)
            return StatementResult(shown, text, counts, dry_run=True)
        table = self._lake.create_table(
            name, schema, partition_by=terms, properties=properties, staged=rows is not None
        )
        if rows is None:
            return StatementResult(shown, text)
        snapshot = table.append(rows).snapshot
        made = None if snapshot is None else snapshot.snapshot_id
        return StatementResult(shown, text, counts, made)

    def _query(self, query: str) -> pa.Table:
        return QueryEngine(self._lake, self._lake.environment).run(query)

    def _drop(self, clauses: _Clauses) -> StatementResult:
        clauses.expect("TABLE")
        existing_only = clauses.take("IF", "EXISTS")
        name = clauses.path("a table")
        purge = clauses.take("PURGE")
        clauses.end()
        shown = ".".join(name)
        if existing_only and not self._lake.table_exists(name):
            return StatementResult(shown, f"there is no {shown}", dry_run=self._dry_run)
        table = self._lake.load_table(name)
        text = f"{shown} dropped" + (", and its files deleted" if purge else "")
        if not purge:
            text += f"; lake.register_table({shown!r}, {table.metadata_location!r}) brings it back"
        if not self._dry_run:
            self._lake.drop_table(name, purge=purge)
        return StatementResult(shown, text, dry_run=self._dry_run)

    def _alter(self, clauses: _Clauses) -> StatementResult:
        clauses.expect("TABLE")
        table = self._table(clauses)
        if clauses.take("RENAME", "TO"):
            name = clauses.path("the new name")
            clauses.end()
            if not self._dry_run:
                self._lake.rename_table(table.name, name)
            return self._said(table, f"renamed to {'.'.join(name)}")
        if clauses.take("SET", "TBLPROPERTIES"):
            properties = _properties(clauses)
            clauses.end()
            if not self._dry_run:
                table.set_properties(properties)
            return self._said(table, f"properties set: {', '.join(sorted(properties))}")
        if clauses.take("UNSET", "TBLPROPERTIES"):
            clauses.take("IF", "EXISTS")
            names = [_literal(part, "a name in quotes") for part in clauses.parenthesized()]
            clauses.end()
            if not self._dry_run:
                table.remove_properties(*names)
            return self._said(table, f"properties removed: {', '.join(sorted(names))}")
        return self._said(table, self._alter_columns(clauses, table))

    def _alter_columns(self, clauses: _Clauses, table: Table) -> str:
        change = UpdateSchema(table.metadata)
        steps: list[Callable[[UpdateSchema], object]] = []
        if clauses.take("ADD"):
            if clauses.take("COLUMNS"):
                parts = clauses.parenthesized()
            else:
                clauses.take("COLUMN")
                parts = [clauses.rest()]
            columns = [_column(part) for part in parts]
            for column in columns:
                if column.required:
                    raise InvalidInputError(
                        f"Column {column.name!r} cannot be NOT NULL: rows that are there have no "
                        "value of it. Leave NOT NULL out"
                    )
                steps.append(partial(_add_column, column=column))
            text = f"{', '.join(column.name for column in columns)} added"
        elif clauses.take("DROP"):
            clauses.take("COLUMN")
            path = clauses.path("a column")
            steps.append(lambda update: update.drop_column(path))
            text = f"{'.'.join(path)} dropped"
        elif clauses.take("RENAME", "COLUMN"):
            path = clauses.path("a column")
            clauses.expect("TO")
            new_name = clauses.identifier("the new name")
            steps.append(lambda update: update.rename_column(path, new_name))
            text = f"{'.'.join(path)} renamed to {new_name}"
        elif clauses.take("ALTER"):
            clauses.take("COLUMN")
            path = clauses.path("a column")
            clauses.take("SET", "DATA")
            if clauses.take("TYPE"):
                kind = _type(clauses.rest())
                steps.append(lambda update: update.update_column(path, kind))
                text = f"{'.'.join(path)} is {kind} now"
            elif clauses.take("DROP", "NOT", "NULL"):
                steps.append(lambda update: update.make_optional(path))
                text = f"{'.'.join(path)} may be null now"
            else:
                clauses.fail("TYPE or DROP NOT NULL")
        else:
            clauses.fail("ADD, DROP, RENAME, ALTER, SET TBLPROPERTIES or UNSET TBLPROPERTIES")
        clauses.end()
        for step in steps:  # errors come before anything is changed, of a dry run too
            step(change)
        change.changes()
        if not self._dry_run:
            with table.update_schema() as update:
                for step in steps:
                    step(update)
        return text

    def _table(self, clauses: _Clauses) -> Table:
        return self._lake.load_table(clauses.path("a table, as namespace.name"))

    @staticmethod
    def _alias(clauses: _Clauses, following: str) -> str | None:
        if clauses.take("AS") or clauses.peek() not in {following, "("}:
            return clauses.identifier("an alias")
        return None

    def _count(self, table: Table, where: str | None) -> int:
        if self._branch not in table.refs():
            return table.scan(where).count()
        return table.scan(where, ref=self._branch).count()

    def _told(
        self, table: Table, counts: Mapping[str, int | None], snapshot_id: int | None = None
    ) -> StatementResult:
        rows = ", ".join(
            f"{'' if count is None else f'{count:,} '}row{'' if count == 1 else 's'} {what}"
            for what, count in counts.items()
        )
        return StatementResult(table.name, rows, counts, snapshot_id, self._dry_run)

    def _said(self, table: Table, text: str) -> StatementResult:
        return StatementResult(table.name, f"{table.name}: {text}", dry_run=self._dry_run)


@dataclass(frozen=True, slots=True)
class _Token:
    """A word, name in quotes, text, number or mark of a statement.

    Attributes:
        kind: which of these.
        text: without quotes.
        start, end: where it stands.
    """

    kind: str
    text: str
    start: int
    end: int


def _tokens(text: str) -> list[_Token]:
    tokens = []
    for match in _TOKEN.finditer(text):
        kind, raw = match.lastgroup, match.group()
        if kind is None:
            continue
        if kind == "mark" and raw in "'\"`":
            raise InvalidInputError(f"Not a statement: {raw} opens a text that nothing closes")
        value = raw
        if kind in {"text", "quoted"}:
            value = raw[1:-1].replace(raw[0] * 2, raw[0])
        tokens.append(_Token(kind, value, match.start(), match.end()))
    return tokens


def _bare(name: str) -> str:
    return name[1:-1] if name[0] in '"`' and name[-1] == name[0] else name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _type(text: str) -> IcebergType:
    name = text.strip()
    return type_from_text(_TYPES.get(name.partition("(")[0].strip().lower(), name))


def _column(text: str) -> NestedField:
    """`name type [NOT NULL] [COMMENT 'text']`. Raises InvalidInputError, InvalidSchemaError."""
    clauses = _Clauses(text)
    name = clauses.identifier("a column")
    kind = clauses.until("NOT", "COMMENT")
    required = clauses.take("NOT", "NULL")
    doc = None
    if clauses.take("COMMENT"):
        doc = clauses.literal("a text in quotes")
    clauses.end()
    if not kind:
        clauses.fail("a type")
    return NestedField(1, name, _type(kind), required=required, doc=doc)


def _add_column(update: UpdateSchema, column: NestedField) -> None:
    update.add_column(column.name, column.field_type, doc=column.doc)


def _columns(parts: Iterable[str]) -> pa.Schema:
    fields = []
    for column in map(_column, parts):
        kind = type_to_arrow(column.field_type, field_ids=False, column=column.name)
        if column.required and pa.types.is_null(kind):
            raise InvalidSchemaError(f"Column {column.name!r} of type unknown must be optional.")
        doc = {"doc": column.doc} if column.doc else None
        fields.append(pa.field(column.name, kind, not column.required, doc))
    return pa.schema(fields)


def _literal(text: str, what: str) -> str:
    """The one literal that a text is."""
    clauses = _Clauses(text)
    literal = clauses.literal(what)
    clauses.end()
    return literal


def _properties(clauses: _Clauses) -> dict[str, str]:
    properties = {}
    for part in clauses.parenthesized():
        pair = _Clauses(part)
        key = pair.literal("a name in quotes")
        pair.expect("=")
        properties[key] = pair.literal("a value in quotes")
        pair.end()
    return properties


def _typed_literals(rows: pa.Table, schema: Schema) -> pa.Table:
    """Literals of VALUES with the types of their columns; nothing is rounded or cut."""
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        known = next((field for field in schema.fields if field.name == name), None)
        if known is None or known.field_type.is_struct:
            columns.append(column)
            continue
        kind = type_to_arrow(known.field_type)
        try:
            columns.append(_literal_column(column, kind, known))
        except pa.ArrowException as error:
            raise InvalidInputError(
                f"a value given for column {name!r} is no {known.field_type}: {error}"
            ) from error
    return pa.table(columns, names=rows.column_names)


def _literal_column(column: pa.ChunkedArray, kind: pa.DataType, known: NestedField) -> pa.Array:
    zoned = isinstance(known.field_type, TimestamptzType | TimestamptzNanoType)
    if zoned and pa.types.is_string(column.type):
        try:  # as in filters, a time without a zone is in UTC
            return pc.assume_timezone(column.cast(pa.timestamp(kind.unit)), "UTC").cast(kind)
        except pa.ArrowInvalid:
            return column.cast(kind)
    return column.cast(kind)
