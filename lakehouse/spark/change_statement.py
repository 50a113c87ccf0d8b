"""Spark SQL statements that change tables, taken apart: CREATE TABLE, DROP TABLE, INSERT INTO, DELETE FROM, UPDATE.

Only what stands around queries, conditions and column lists is understood here; those stay as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from lakehouse.errors import InvalidInputError

PROVIDERS = frozenset({"lakehouse", "iceberg"})
"""Words behind USING that make a table ours."""

_QUERY_WORDS = frozenset({"SELECT", "VALUES", "WITH", "FROM", "TABLE", "("})
_PLURAL_UNITS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
Name: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`CREATE TABLE [IF NOT EXISTS] name [(columns)] USING lakehouse [...] [AS query]`.

    Attributes:
        columns: the column list as Spark writes one; None when the query says.
        partition_by: terms as `Lakehouse.create_table` takes them.
    """

    name: Name
    if_not_exists: bool
    columns: str | None
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    location: str | None
    query: str | None


@dataclass(frozen=True, slots=True)
class DropTable:
    """`DROP TABLE [IF EXISTS] name [PURGE]`."""

    name: Name
    if_exists: bool
    purge: bool


@dataclass(frozen=True, slots=True)
class Insert:
    """`INSERT INTO [TABLE] name [(columns)] [BY NAME] query`; `by_name` takes the query's columns by their names."""

    name: Name
    columns: tuple[str, ...] | None
    by_name: bool
    query: str


@dataclass(frozen=True, slots=True)
class Delete:
    """`DELETE FROM name [WHERE where]`."""

    name: Name
    where: str | None


@dataclass(frozen=True, slots=True)
class Update:
    """`UPDATE name SET column = value, ... [WHERE where]`; values are expressions as they were written."""

    name: Name
    assignments: tuple[tuple[str, str], ...]
    where: str | None


@dataclass(frozen=True, slots=True)
class NotHere:
    """A change of a table that SQL does not make here; `instead` says what does."""

    name: Name
    instead: str


Change: TypeAlias = CreateTable | DropTable | Insert | Delete | Update | NotHere


def parse_change(text: str) -> Change | None:
    """The change that a statement makes; None for queries and whatever else Spark may know.

    Raises:
        InvalidInputError: it starts as a change and goes on as none.
    """
    try:
        tokens = Spark().tokenize(text)
    except SqlglotError as error:
        raise InvalidInputError(f"not Spark SQL: {error}") from error
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    cursor = _Cursor(text, tokens)
    for words, parse in _STATEMENTS.items():
        if cursor.take(*words):
            return parse(cursor)
    return None


class _Cursor:
    """A place in the tokens of a statement."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self._tokens = tokens
        self._at = 0

    def word(self, ahead: int = 0) -> str:
        """The next word in capitals; empty at the end and for quoted ones."""
        place = self._at + ahead
        if place >= len(self._tokens) or self._tokens[place].token_type in (
            TokenType.STRING,
            TokenType.IDENTIFIER,
        ):
            return ""
        return self._tokens[place].text.upper()

    def take(self, *words: str) -> bool:
        """Step over these words when they come next."""
        if all(self.word(ahead) == word for ahead, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def next(self, what: str) -> Token:
        """Step over one token."""
        if self._at >= len(self._tokens):
            raise InvalidInputError(f"{self.text!r} ends where {what} is expected")
        self._at += 1
        return self._tokens[self._at - 1]

    def done(self) -> None:
        """Raises InvalidInputError unless this is the end."""
        if self._at < len(self._tokens):
            raise InvalidInputError(f"{self.text!r}: {self.rest()!r} is not understood")

    def rest(self) -> str:
        """The text from here to the end; steps over it."""
        if self._at >= len(self._tokens):
            return ""
        begin, self._at = self._tokens[self._at].start, len(self._tokens)
        return self.text[begin : self._tokens[-1].end + 1]

    def name(self) -> Name:
        """A dotted name."""
        parts = [self.next("a table name").text]
        while self.take("."):
            parts.append(self.next("a name").text)
        return tuple(parts)

    def until(self, *stops: str) -> str:
        """The text up to one of the words outside parentheses, or to the end."""
        begin, depth = self._at, 0
        while self._at < len(self._tokens) and (depth or self.word() not in stops):
            depth += (self.word() == "(") - (self.word() == ")")
            self._at += 1
        if begin == self._at:
            raise InvalidInputError(
                f"{self.text!r}: something is missing before {self.word() or 'the end'}"
            )
        return self.text[self._tokens[begin].start : self._tokens[self._at - 1].end + 1]

    def parenthesized(self) -> list[str]:
        """The comma separated items of the parentheses that come next, as text."""
        if not self.take("("):
            raise InvalidInputError(
                f"{self.text!r}: ( is expected before {self.word() or 'the end'}"
            )
        items = [self.until(",", ")")]
        while self.take(","):
            items.append(self.until(",", ")"))
        if not self.take(")"):
            raise InvalidInputError(f"{self.text!r}: a ) is missing")
        return items


def _create(cursor: _Cursor) -> Change | None:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.name()
    columns = ", ".join(cursor.parenthesized()) if cursor.word() == "(" else None
    provider = ""
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    location = query = None
    while (word := cursor.word()) and query is None:
        if cursor.take("USING"):
            provider = cursor.next("a format").text.lower()
        elif cursor.take("PARTITIONED BY") or cursor.take("PARTITIONED", "BY"):
            partition_by = tuple(_term(one) for one in cursor.parenthesized())
        elif cursor.take("TBLPROPERTIES") or cursor.take("OPTIONS"):
            properties |= dict(_property(one, cursor.text) for one in cursor.parenthesized())
        elif cursor.take("COMMENT"):
            properties["comment"] = cursor.next("a comment").text
        elif cursor.take("LOCATION"):
            location = cursor.next("a location").text
        elif cursor.take("AS") or word in _QUERY_WORDS:
            query = cursor.rest()
        elif provider in PROVIDERS:
            raise InvalidInputError(
                f"CREATE TABLE {'.'.join(name)}: {cursor.rest()!r} is not understood"
            )
        else:
            return None
    if provider not in PROVIDERS:
        return None
    if (columns is None) == (query is None):
        raise InvalidInputError(
            f"CREATE TABLE {'.'.join(name)} takes a column list or AS and a query, one of them"
        )
    return CreateTable(name, if_not_exists, columns, partition_by, properties, location, query)


def _term(text: str) -> str:
    """A partition term of Spark in our words: `days(ts)` is `day(ts)`."""
    function, bracket, rest = text.partition("(")
    unit = function.strip().lower()
    return f"{_PLURAL_UNITS.get(unit, unit)}({rest}" if bracket else text.strip().strip("`")


def _property(text: str, statement: str) -> tuple[str, str]:
    tokens = [token for token in Spark().tokenize(text) if token.token_type != TokenType.EQ]
    if len(tokens) < 2:
        raise InvalidInputError(f"{statement!r}: {text!r} is no property; write 'name' = 'value'")
    return "".join(token.text for token in tokens[:-1]), tokens[-1].text


def _drop(cursor: _Cursor) -> Change:
    if_exists = cursor.take("IF", "EXISTS")
    name = cursor.name()
    purge = cursor.take("PURGE")
    cursor.done()
    return DropTable(name, if_exists, purge)


def _insert(cursor: _Cursor) -> Change:
    cursor.take("TABLE")
    name = cursor.name()
    columns = None
    if cursor.word() == "(" and cursor.word(1) not in _QUERY_WORDS:
        columns = tuple(one.strip().strip("`") for one in cursor.parenthesized())
    by_name = cursor.take("BY", "NAME")
    if cursor.word() not in _QUERY_WORDS:
        return NotHere(name, "INSERT INTO name [(columns)] [BY NAME] followed by a query or VALUES")
    return Insert(name, columns, by_name, cursor.rest())


def _delete(cursor: _Cursor) -> Change:
    name = cursor.name()
    where = cursor.rest() if cursor.take("WHERE") else None
    cursor.done()
    return Delete(name, where)


def _update(cursor: _Cursor) -> Change:
    name = cursor.name()
    if not cursor.take("SET"):
        raise InvalidInputError(
            f"{cursor.text!r}: SET is expected before {cursor.word() or 'the end'}; a table alias is not taken"
        )
    assignments = []
    while True:
        column = cursor.next("a column").text
        if not cursor.take("="):
            raise InvalidInputError(
                f"{cursor.text!r}: = is expected behind {column}; whole top-level columns can be set"
            )
        assignments.append((column, cursor.until(",", "WHERE")))
        if not cursor.take(","):
            break
    where = cursor.rest() if cursor.take("WHERE") else None
    cursor.done()
    return Update(name, tuple(assignments), where)


def _not_here(instead: str) -> Callable[[_Cursor], Change]:
    def parse(cursor: _Cursor) -> Change:
        cursor.take("TABLE")
        return NotHere(cursor.name(), instead)

    return parse


_STATEMENTS: Mapping[tuple[str, ...], Callable[[_Cursor], Change | None]] = {
    ("CREATE", "TABLE"): _create,
    ("DROP", "TABLE"): _drop,
    ("INSERT", "INTO"): _insert,
    ("DELETE", "FROM"): _delete,
    ("UPDATE",): _update,
    ("INSERT", "OVERWRITE"): _not_here(
        "table.overwrite(frame, where=...), which replaces the rows that match"
    ),
    ("MERGE", "INTO"): _not_here(
        "table.overwrite(merged_frame, where=...), or UPDATE and INSERT INTO one after the other"
    ),
    ("TRUNCATE", "TABLE"): _not_here("DELETE FROM without WHERE"),
    ("ALTER", "TABLE"): _not_here(
        "table.update_schema(), table.update_partition_spec(), table.update_sort_order() or table.set_properties()"
    ),
    ("CREATE", "OR", "REPLACE", "TABLE"): _not_here(
        "table.overwrite(frame), which keeps history, or DROP TABLE first"
    ),
    ("REPLACE", "TABLE"): _not_here(
        "table.overwrite(frame), which keeps history, or DROP TABLE first"
    ),
}
