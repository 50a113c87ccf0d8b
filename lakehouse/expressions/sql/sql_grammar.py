"""The grammar of filters: SQL conditions as people write them, parsed by sqlglot.

Names stand in double quotes or backticks, text in single quotes. Errors point at the word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from lakehouse.errors import InvalidExpressionError
from lakehouse.kept_by_bytes import MadeOnce

if TYPE_CHECKING:
    # loading sqlglot takes longer than a small scan: only filters that are text do
    from sqlglot import exp

_CONTEXT = 100
"""How much of the text sqlglot shows around an error."""
_SHOWN = 60
_COMPARED = re.compile(
    r"(?<=[<>=])(\s*(?:'(?:[^'\\]|'')*'|(?:0|[1-9][0-9]*)(?:\.[0-9]+)?))"
    r"(?=\s*(?:\)|\Z)|\s+(?:and|or)\b)",
    re.IGNORECASE,
)
"""A literal that is compared, and is all of that side."""
_TEXT_MARK, _NUMBER_MARK = "lakehouse stand-in ", "73059182640"
_MOST_STAND_INS = 64


@cache
def _dialect() -> Any:
    """DuckDB's grammar with backticks; functions are left to us to understand."""
    from sqlglot.dialects.duckdb import DuckDB  # noqa: PLC0415 - takes long to load
    from sqlglot.tokenizer_core import TokenType  # noqa: PLC0415

    known = DuckDB.Parser

    class Filters(DuckDB):
        class Tokenizer(DuckDB.Tokenizer):
            IDENTIFIERS = ['"', "`"]  # noqa: RUF012 - sqlglot's way
            HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012

        class Parser(known):  # type: ignore[misc, valid-type]
            FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012
            FUNCTION_PARSERS = {  # noqa: RUF012
                name: known.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT")
            }
            # `~` matches the whole text in DuckDB and a part of it in PostgreSQL
            RANGE_PARSERS = {  # noqa: RUF012
                token: parse
                for token, parse in known.RANGE_PARSERS.items()
                if token is not TokenType.TILDE
            }

    return Filters()


_PARSED: MadeOnce[exp.Expr] = MadeOnce()
_SHAPED: MadeOnce[exp.Expr | None] = MadeOnce()
_TREE_BYTES = 512
"""What a character of a text takes as a tree, at most."""


def parsed(text: str) -> exp.Expr:
    """The tree of a condition; not to be changed: trees are kept by their text.

    Raises:
        InvalidExpressionError: it does not parse; shows where.
    """
    return _PARSED.of((), text, lambda: _parsed(text), lambda _: _TREE_BYTES * (8 + len(text)))


def _parsed(text: str) -> exp.Expr:
    from sqlglot import exp  # noqa: PLC0415 - takes long to load
    from sqlglot.errors import ParseError, SqlglotError  # noqa: PLC0415

    try:
        tree: exp.Expr | None = _dialect().parse_into(exp.Condition, text)[0]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        start = len(first.get("start_context") or "") if len(text) < _CONTEXT else None
        width = len(first.get("highlight") or " ")
        reason = _plain(str(first.get("description") or error), str(first.get("highlight") or ""))
        raise error_at(text, reason, start, width) from error
    except SqlglotError as error:
        raise error_at(text, "a text or a name in quotes is not closed", len(text) - 1) from error
    if tree is None:
        raise error_at(text, "there is no condition in it", 0)
    return tree


@dataclass(frozen=True, slots=True)
class Shape:
    """A condition as a tree in which some literals are stand-ins.

    Attributes:
        tree: not to be changed.
        text: what was parsed, with stand-ins: positions in the tree are positions in it.
        literals: for what stands in, the text of the literal that was written.
    """

    tree: exp.Expr
    text: str
    literals: Mapping[str, str]


def shape_of(text: str) -> Shape | None:
    """A condition by its shape: those that compare the same with other literals are parsed once.

    Returns:
        None where that is not certain to be what parsing the text gives; so also where it does not
        parse.
    """
    if _TEXT_MARK in text or _NUMBER_MARK in text:
        return None
    parts = _COMPARED.split(text)
    stand_ins: dict[str, str] = {}
    for place in range(1, len(parts), 2):
        written = parts[place].strip()
        if written.startswith("'"):
            name, literal = f"{_TEXT_MARK}{place}", written[1:-1].replace("''", "'")
            parts[place] = f" '{name}'"
        else:
            name, literal = f"{_NUMBER_MARK}{place:04d}", written
            parts[place] = f" {name}"
        stand_ins[name] = literal
    if not 0 < len(stand_ins) <= _MOST_STAND_INS:
        return None
    shaped = "".join(parts)
    tree = _shaped(shaped, tuple(stand_ins))
    return None if tree is None else Shape(tree, shaped, stand_ins)


def _shaped(text: str, stand_ins: tuple[str, ...]) -> exp.Expr | None:
    """The tree of a text with stand-ins; None unless each of them is a literal of it."""
    return _SHAPED.of(
        (),
        (text, stand_ins),
        lambda: _with_stand_ins(text, stand_ins),
        lambda _: _TREE_BYTES * (8 + len(text)),
    )


def _with_stand_ins(text: str, stand_ins: tuple[str, ...]) -> exp.Expr | None:
    from sqlglot import exp  # noqa: PLC0415 - takes long to load

    try:
        tree = parsed(text)
    except InvalidExpressionError:
        return None
    present = sorted(
        str(literal.this)
        for literal in tree.find_all(exp.Literal)
        if bool(literal.is_string) is str(literal.this).startswith(_TEXT_MARK)
        and str(literal.this).startswith((_TEXT_MARK, _NUMBER_MARK))
    )
    return tree if present == sorted(stand_ins) else None


@dataclass(frozen=True, slots=True)
class Word:
    """A word or sign of SQL.

    Attributes:
        text: as written, a quoted name or text without its quotes.
        quoted: whether it is a name or a text in quotes.
        start: where it begins.
        end: behind its last character.
    """

    text: str
    quoted: bool
    start: int
    end: int


def words(text: str) -> list[Word]:
    """The words of SQL, in order. Raises InvalidExpressionError where quotes are not closed."""
    from sqlglot.errors import SqlglotError  # noqa: PLC0415 - takes long to load
    from sqlglot.tokenizer_core import TokenType  # noqa: PLC0415

    try:
        tokens = _dialect().tokenize(text)
    except SqlglotError as error:
        raise error_at(text, "a text or a name in quotes is not closed", len(text) - 1) from error
    quotes = (TokenType.IDENTIFIER, TokenType.STRING)
    return [
        Word(token.text, token.token_type in quotes, token.start, token.end + 1) for token in tokens
    ]


def _plain(description: str, word: str) -> str:
    """What sqlglot says, in words."""
    if description.startswith("Required keyword: 'expression'"):
        return f"something is missing after {word}"
    if description.startswith("Required keyword: 'this'"):
        return f"something is missing before {word}"
    if "Unexpected token" in description:
        return f"{word} is not expected here"
    if description.startswith("Expecting"):
        return f"expected {description.removeprefix('Expecting ')} after {word}"
    return description


def error_at(
    text: str, reason: str, start: int | None, width: int = 1, *, what: str = "filter"
) -> InvalidExpressionError:
    """An error that points at a word of the filter, or of `what` the text is."""
    if start is None:
        return InvalidExpressionError(
            f"cannot read the {what} {text[:_CONTEXT]!r}: {reason}", where=text
        )
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line = text[begin : len(text) if end < 0 else end]
    column = start - begin
    offset = max(column - _SHOWN, 0)
    pointer = " " * (column - offset) + "^" * max(width, 1)
    position = text[:start].count("\n") + 1
    where = f"column {column + 1}" if position == 1 else f"line {position}, column {column + 1}"
    return InvalidExpressionError(
        f"cannot read the {what} at {where}: {reason}\n"
        f"  {line[offset : offset + 2 * _SHOWN]}\n  {pointer}",
        where=text,
        position=start,
    )


def span(node: exp.Expr) -> tuple[int, int] | None:
    """Start and length of a part of a tree in its text; None where sqlglot does not say."""
    places = [part.meta for part in node.walk() if "start" in part.meta]
    if not places:
        return None
    start = min(int(place["start"]) for place in places)
    return start, min(max(int(place["end"]) for place in places) - start + 1, _SHOWN)
