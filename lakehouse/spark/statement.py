"""SQL text with its table names found, so that each can be replaced by a view of the right snapshot.

Only the names and their time travel clauses are replaced, in place; the rest of the text reaches Spark as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from lakehouse.errors import InvalidInputError

_CLAUSES = {
    "VERSION": "version",
    "SYSTEM_VERSION": "version",
    "TIMESTAMP": "time",
    "SYSTEM_TIME": "time",
}


@dataclass(frozen=True, slots=True)
class Reference:
    """One mention of a table.

    Attributes:
        name: parts of the dotted name.
        start: offset of the name in the text.
        end: offset behind the name and its time travel clause.
        aliased: whether the text gives it an alias.
        snapshot_id: from `VERSION AS OF 8124`.
        ref: from `VERSION AS OF 'tag'`.
        as_of: from `TIMESTAMP AS OF '...'`.
    """

    name: tuple[str, ...]
    start: int
    end: int
    aliased: bool
    snapshot_id: int | None = None
    ref: str | None = None
    as_of: str | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement.

    Attributes:
        text: as written.
        is_query: whether it only reads.
        references: tables with a dotted name, in the order of the text.
        columns: (name, start, end) of every dotted qualifier of a column that could name a table, shorter ones first.
    """

    text: str
    is_query: bool
    references: tuple[Reference, ...]
    columns: tuple[tuple[tuple[str, ...], int, int], ...]

    def with_views(self, views: Mapping[Reference, str]) -> str:
        """The text with references replaced by view names; `db.table.column` becomes `table.column`."""
        edits: list[tuple[int, int, str]] = []
        for reference, view in views.items():
            alias = "" if reference.aliased else f" AS `{_escaped(reference.name[-1])}`"
            edits.append((reference.start, reference.end, f"`{view}`{alias}"))
        names = {reference.name for reference in views}
        longest = {
            start: (start, end, f"`{_escaped(name[-1])}`")
            for name, start, end in self.columns
            if name in names
        }
        edits += longest.values()
        text = self.text
        for start, end, replacement in sorted(edits, reverse=True):
            text = text[:start] + replacement + text[end:]
        return text


def parse_statement(text: str) -> Statement:
    """Find the tables of a statement.

    Raises:
        InvalidInputError: it does not parse as one statement, or a time travel clause is not a literal.
    """
    try:
        tokens = Spark().tokenize(text)
        trees = [tree for tree in sqlglot.parse(text, dialect="spark") if tree is not None]
    except SqlglotError as error:
        raise InvalidInputError(f"not Spark SQL: {error}") from error
    if len(trees) != 1:
        raise InvalidInputError(f"session.sql takes one statement, not {len(trees)}")
    tree = trees[0]
    references = sorted(_references(tree, tokens), key=lambda reference: reference.start)
    return Statement(
        text, isinstance(tree, exp.Query), tuple(references), tuple(_qualified_columns(tree))
    )


def _references(tree: exp.Expr, tokens: list[Token]) -> Iterator[Reference]:
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if len(parts) < 2 or not all(isinstance(part, exp.Identifier) for part in parts):
            continue
        end = parts[-1].meta["end"] + 1
        plain = Reference(
            tuple(part.name for part in parts), parts[0].meta["start"], end, bool(table.alias)
        )
        yield (
            plain
            if table.args.get("version") is None
            else _travelling(plain, [token for token in tokens if token.start >= end])
        )


def _travelling(reference: Reference, rest: list[Token]) -> Reference:
    """The reference with the time travel clause that begins the rest of the text."""
    words = [token.text.upper() for token in rest[:6]]
    at = words.index("OF") + 1 if "OF" in words else len(rest)
    clause = " ".join(words[:at]).split()
    kind = next((kind for word, kind in _CLAUSES.items() if word in clause), None)
    if at < len(rest) and kind == "time" and rest[at].text.upper() == "TIMESTAMP":
        at += 1
    value = rest[at] if at < len(rest) else None
    if (
        kind is None
        or value is None
        or value.token_type not in (TokenType.NUMBER, TokenType.STRING)
    ):
        raise InvalidInputError(
            f"{'.'.join(reference.name)}: time travel takes a literal: FOR VERSION AS OF 8124 or 'ref', "
            "FOR TIMESTAMP AS OF '2026-06-01 12:00:00'"
        )
    reference = replace(reference, end=value.end + 1)
    if kind == "time":
        return replace(reference, as_of=value.text)
    if value.text.isdigit():
        return replace(reference, snapshot_id=int(value.text))
    return replace(reference, ref=value.text)


def _qualified_columns(tree: exp.Expr) -> Iterator[tuple[tuple[str, ...], int, int]]:
    for column in tree.find_all(exp.Column):
        parts = column.parts
        if len(parts) > 2 and all("start" in part.meta for part in parts):
            # `a.b.c.d` may be a field of a struct: every prefix that could name a table is offered
            for length in range(2, len(parts)):
                prefix = parts[:length]
                yield (
                    tuple(part.name for part in prefix),
                    prefix[0].meta["start"],
                    prefix[-1].meta["end"] + 1,
                )


def _escaped(name: str) -> str:
    return name.replace("`", "``")
