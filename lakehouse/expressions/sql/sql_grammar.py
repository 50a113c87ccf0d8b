"""The grammar of filters: SQL conditions as people write them, parsed by sqlglot.

Names stand in double quotes or backticks, text in single quotes. Errors point at the word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from lakehouse.errors import InvalidExpressionError

if TYPE_CHECKING:
    # loading sqlglot takes longer than a small scan: only filters that are text do
    from sqlglot import exp

_CONTEXT = 100
"""How much of the text sqlglot shows around an error."""
_SHOWN = 60


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


@lru_cache(maxsize=512)
def parsed(text: str) -> exp.Expr:
    """The tree of a condition; not to be changed: trees are kept by their text.

    Raises:
        InvalidExpressionError: it does not parse; shows where.
    """
    from sqlglot import exp  # noqa: PLC0415 - takes long to load
    from sqlglot.errors import ParseError, SqlglotError  # noqa: PLC0415

    try:
        found: exp.Expr = _dialect().parse_into(exp.Condition, text)[0]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        start = len(first.get("start_context") or "") if len(text) < _CONTEXT else None
        width = len(first.get("highlight") or " ")
        reason = _plain(str(first.get("description") or error), str(first.get("highlight") or ""))
        raise error_at(text, reason, start, width) from error
    except SqlglotError as error:
        raise error_at(text, "a text or a name in quotes is not closed", len(text) - 1) from error
    return found


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
        found = _dialect().tokenize(text)
    except SqlglotError as error:
        raise error_at(text, "a text or a name in quotes is not closed", len(text) - 1) from error
    quotes = (TokenType.IDENTIFIER, TokenType.STRING)
    return [Word(one.text, one.token_type in quotes, one.start, one.end + 1) for one in found]


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
    found = [one.meta for one in node.walk() if "start" in one.meta]
    if not found:
        return None
    start = min(int(one["start"]) for one in found)
    return start, min(max(int(one["end"]) for one in found) - start + 1, _SHOWN)
