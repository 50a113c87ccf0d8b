"""Parsed SQL conditions as terms of bound columns: what names and functions mean."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from pyiceberg.types import BooleanType, IcebergType, StringType

from lakehouse.errors import InvalidExpressionError, InvalidSchemaError
from lakehouse.expressions.bound_filter import Column, Term, Value
from lakehouse.expressions.filter_text import describe_term
from lakehouse.expressions.functions.sql_casts import typed_literal
from lakehouse.expressions.functions.sql_functions import FUNCTIONS
from lakehouse.expressions.sql import typed_calls as sql
from lakehouse.expressions.sql.sql_grammar import error_at, parsed, shape_of, span
from lakehouse.spec.schema.iceberg_types import type_from_name

if TYPE_CHECKING:
    # loading sqlglot takes longer than a small scan: only filters that are text do
    from sqlglot import exp

Resolve = Callable[[str], Column]
"""The column of a dotted name. Raises InvalidExpressionError."""

_SHOWN = 60
_SYNONYMS = {
    "char_length": "length", "character_length": "length", "len": "length", "ceiling": "ceil",
    "ifnull": "coalesce", "nvl": "coalesce", "iff": "if", "substr": "substring", "to_date": "date",
    "days": "date", "dayofmonth": "day", "weekofyear": "week", "startswith": "starts_with",
    "endswith": "ends_with", "prefix": "starts_with", "suffix": "ends_with", "rlike": "regexp_like",
    "regexp_matches": "regexp_like", "is_nan": "isnan", "datetrunc": "date_trunc",
    "day_of_year": "dayofyear", "doy": "dayofyear", "dayofweek_iso": "isodow",
}  # fmt: skip
_PARTS = frozenset(
    ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "isodow", "doy",
     "dayofyear"]
)  # fmt: skip
_COMPARISONS = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_OPERATORS = {
    "Mul": "*", "Div": "/", "IntDiv": "//", "Mod": "%", "DPipe": "||", "RegexpLike": "regexp_like",
}  # fmt: skip
_HANDLED = frozenset(
    ["this", "expression", "expressions", "typed", "safe", "low", "high", "symmetric", "ifs",
     "default", "to", "negate", "quoted", "is_string", "table", "db", "catalog", "query", "unnest",
     "field", "unit", "true", "false"]
)  # fmt: skip
"""Parts of sqlglot's nodes that are read or say nothing; a node with others is refused."""
_INTERVALS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000,
    "hour": 3_600_000_000, "day": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
_TYPES = {
    "text": "string", "varchar": "string", "char": "string", "nchar": "string", "bigint": "long",
    "int": "int", "double": "double", "float": "float", "boolean": "boolean", "date": "date",
    "time": "time", "uuid": "uuid", "timestampntz": "timestamp", "timestamp": "timestamp",
    "timestamptz": "timestamptz", "timestampltz": "timestamptz", "timestamp_ns": "timestamp_ns",
    "varbinary": "binary", "binary": "binary",
}  # fmt: skip
_DIFFER = {
    "concat": "with a null argument it is null in Spark and not in DuckDB; write a || b",
    "dayofweek": "Sunday is 1 in Spark and 0 in DuckDB; isodow is 1 on Mondays in both",
    "weekday": "Monday is 0 in Spark and 1 in DuckDB; isodow is 1 on Mondays in both",
    "now": "a filter does not know the time; write it as text, such as '2026-06-01T00:00:00+00:00'",
    "datediff": "Spark and DuckDB order its arguments differently; "
    "compare a with b + interval 5 days",
    "trunc": "it cuts numbers and dates; write date_trunc('month', ts) or floor(x)",
}


def read_filter(text: str, resolve: Resolve) -> Term:
    """A condition as a term.

    Args:
        text: SQL, without WHERE.
        resolve: finds columns.

    Raises:
        InvalidExpressionError: it does not parse, or means nothing; shows where.
    """
    shape = shape_of(text)
    if shape is not None:
        # an error has to point at what was written
        with suppress(InvalidExpressionError):
            return _Reader(shape.text, resolve, shape.literals).term(shape.tree)
    return _Reader(text, resolve).term(parsed(text))


def read_parsed(node: exp.Expr, text: str, resolve: Resolve) -> Term:
    """`read_filter` of a condition that is part of something parsed already."""
    return _Reader(text, resolve).term(node)


class _Reader:
    def __init__(
        self, text: str, resolve: Resolve, literals: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._text = text
        self._resolve = resolve
        self._literals = literals

    def term(self, node: exp.Expr) -> Term:
        """What a part of the tree means; errors point at it."""
        try:
            return self._term(node)
        except InvalidExpressionError as error:
            self._raise_at(node, error)

    @contextmanager
    def _at(self, node: exp.Expr) -> Iterator[None]:
        try:
            yield
        except InvalidExpressionError as error:
            self._raise_at(node, error)

    def _raise_at(self, node: exp.Expr, error: InvalidExpressionError) -> NoReturn:
        place = None if "position" in error.context else span(node)
        if place is None:
            raise error
        raise error_at(self._text, error.message, *place) from error

    def _term(self, node: exp.Expr) -> Term:
        kind = type(node).__name__
        if {key for key, value in node.args.items() if value} - _HANDLED:
            kind = "what has parts that are not read"
        if kind in _COMPARISONS:
            return sql.compare(_COMPARISONS[kind], *self._pair(node))
        if kind in ("Add", "Sub"):
            return self._sum(node, "+" if kind == "Add" else "-")
        if kind in _OPERATORS:
            return sql.call(_OPERATORS[kind], *self._pair(node))
        read = getattr(self, f"read_{kind.lower()}", None)
        if read is None:
            shown = node.sql(dialect="duckdb")[:_SHOWN]
            raise InvalidExpressionError(f"{shown} cannot be used in a filter")
        term: Term = read(node)
        return term

    def _pair(self, node: exp.Expr) -> tuple[Term, Term]:
        return self.term(node.this), self.term(node.args["expression"])

    def read_paren(self, node: exp.Paren) -> Term:
        return self.term(node.this)

    def read_and(self, node: exp.Connector) -> Term:
        name = "and" if type(node).__name__ == "And" else "or"
        return sql.call(name, *(self._condition(part) for part in node.flatten()))

    read_or = read_and

    def _condition(self, node: exp.Expr) -> Term:
        with self._at(node):
            term = self._term(node)
            if not sql.is_null(term) and not isinstance(sql.type_of(term), BooleanType):
                raise InvalidExpressionError(
                    f"a condition is expected here, not a {sql.type_of(term)}"
                )
            return term

    def read_not(self, node: exp.Not) -> Term:
        return sql.call("not", self._condition(node.this))

    def read_is(self, node: exp.Is) -> Term:
        what = node.args["expression"]
        given = self.term(node.this)
        kind = type(what).__name__
        if kind == "Null":
            return sql.call("is null", given)
        if kind == "Boolean":
            return sql.same(given, Value(bool(what.this), BooleanType()))
        if kind == "Column" and what.name.lower() == "nan":
            return sql.nan_test(given)
        raise InvalidExpressionError("expected null, true, false or nan after is")

    def read_nullsafeeq(self, node: exp.NullSafeEQ) -> Term:
        return sql.same(*self._pair(node))

    def read_nullsafeneq(self, node: exp.NullSafeNEQ) -> Term:
        return sql.call("not", sql.same(*self._pair(node)))

    def read_in(self, node: exp.In) -> Term:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            raise InvalidExpressionError("a filter cannot look into other tables")
        return sql.member(
            self.term(node.this), [self.term(expression) for expression in node.expressions]
        )

    def read_between(self, node: exp.Between) -> Term:
        if node.args.get("symmetric"):
            raise InvalidExpressionError(
                "between symmetric is not supported: write both comparisons"
            )
        given = self.term(node.this)
        low, high = self.term(node.args["low"]), self.term(node.args["high"])
        return sql.call("and", sql.compare(">=", given, low), sql.compare("<=", given, high))

    def read_like(self, node: exp.Like | exp.ILike, escape: str | None = None) -> Term:
        given, pattern = self._pair(node)
        if not isinstance(pattern, Value) or not isinstance(pattern.value, str | None):
            raise InvalidExpressionError("the pattern of like must be a text in single quotes")
        test = _pattern_test(given, pattern, escape, ignore_case=type(node).__name__ == "ILike")
        return sql.call("not", test) if node.args.get("negate") else test

    read_ilike = read_like

    def read_escape(self, node: exp.Escape) -> Term:
        escape = node.args["expression"]
        if type(escape).__name__ != "Literal" or len(escape.name) != 1:
            raise InvalidExpressionError("escape is followed by one character in single quotes")
        return self.read_like(node.this, escape.name)

    def read_column(self, node: exp.Column | exp.Dot) -> Term:
        return self._resolve(".".join(_path(node)))

    read_dot = read_column

    def read_literal(self, node: exp.Literal) -> Term:
        text = self._literals.get(str(node.this), str(node.this))
        if node.is_string:
            return Value(text)
        try:
            number = Decimal(text)
        except ArithmeticError as error:
            raise InvalidExpressionError(f"{text} is no number") from error
        return Value(int(text) if text.isdigit() else number)

    def read_boolean(self, node: exp.Boolean) -> Term:
        return Value(bool(node.this), BooleanType())

    def read_null(self, _: exp.Null) -> Term:
        return sql.NULL

    def read_hexstring(self, node: exp.HexString) -> Term:
        digits = self._text[node.meta["start"] + 2 : node.meta["end"]]
        try:
            return Value(bytes.fromhex(digits))
        except ValueError as error:
            raise InvalidExpressionError(
                "X'...' takes an even number of hexadecimal digits"
            ) from error

    def read_neg(self, node: exp.Neg) -> Term:
        given = self.term(node.this)
        if isinstance(given, Value) and isinstance(given.value, int | Decimal):
            return Value(
                given.value.copy_negate() if isinstance(given.value, Decimal) else -given.value
            )
        return sql.call("negative", given)

    def _sum(self, node: exp.Expr, name: str) -> Term:
        right = node.args["expression"]
        if type(right).__name__ == "Interval":
            with self._at(right):
                micros = _interval(right)
            return sql.call(
                "shift", self._moment(node.this), Value(micros if name == "+" else -micros)
            )
        return sql.call(name, *self._pair(node))

    def _moment(self, node: exp.Expr) -> Term:
        term = self.term(node)
        if isinstance(term, Value) and isinstance(term.value, str):
            raise InvalidExpressionError(
                "write a time that an interval is added to as timestamp '...'"
            )
        return term

    def read_cast(self, node: exp.Cast) -> Term:
        given, kind = self.term(node.this), _type(node.to)
        name = "try_cast" if type(node).__name__ == "TryCast" else "cast"
        if isinstance(given, Value) and isinstance(given.value, str):
            try:
                return Value(typed_literal(given.value, kind))
            except InvalidExpressionError:
                if name == "cast":
                    raise
                return sql.NULL
        return sql.cast(given, kind, name)

    read_trycast = read_cast

    def read_case(self, node: exp.Case) -> Term:
        given = None if node.this is None else self.term(node.this)
        args: list[Term] = []
        for arg in node.args["ifs"]:
            args += [
                self._condition(arg.this)
                if given is None
                else sql.compare("=", given, self.term(arg.this)),
                self.term(arg.args["true"]),
            ]
        default = node.args.get("default")
        return sql.call("case", *args, *([] if default is None else [self.term(default)]))

    def read_if(self, node: exp.If) -> Term:
        default = node.args.get("false")
        results = [node.args["true"], *([] if default is None else [default])]
        return sql.call(
            "case", self._condition(node.this), *(self.term(result) for result in results)
        )

    def read_extract(self, node: exp.Extract) -> Term:
        part = node.this.name.lower()
        if part not in _PARTS:
            raise InvalidExpressionError(f"extract knows {', '.join(sorted(_PARTS))}, not {part}")
        return sql.call(_SYNONYMS.get(part, part), self.term(node.args["expression"]))

    def read_anonymous(self, node: exp.Anonymous) -> Term:
        written = str(node.this).lower()
        name = _SYNONYMS.get(written, written)
        args = [self.term(expression) for expression in node.expressions]
        if name == "isnan":
            name = "is nan"
        elif name == "isnull":
            name = "is null"
        elif written not in _SYNONYMS and (name not in FUNCTIONS or not FUNCTIONS[name].public):
            raise InvalidExpressionError(_unknown(written))
        function = FUNCTIONS[name]
        if len(args) < function.least or (function.most is not None and len(args) > function.most):
            raise InvalidExpressionError(f"{written} does not take {len(args)} arguments")
        if name == "starts_with" and isinstance(args[1], Value):
            return sql.prefix_test(args[0], args[1])
        if name == "is nan":
            return sql.nan_test(args[0])
        return sql.call(name, *args)

    def read_currenttimestamp(self, _: exp.Expr) -> Term:
        raise InvalidExpressionError(_DIFFER["now"])

    read_currentdate = read_currenttimestamp


def _type(node: exp.DataType) -> IcebergType:
    """The type of the table format that a type of SQL is."""
    written = node.sql(dialect="duckdb").lower()
    name = str(getattr(node.this, "value", node.this)).lower()
    if name == "decimal":
        sizes = [expression.name for expression in node.expressions] or ["18", "3"]
        wanted = f"decimal({sizes[0]}, {sizes[1] if len(sizes) > 1 else 0})"
    else:
        wanted = (
            _TYPES.get(name, "")
            if not node.expressions or name in ("varchar", "char", "text")
            else ""
        )
    try:
        return type_from_name(wanted)
    except InvalidSchemaError as error:
        known = ", ".join(sorted({*_TYPES.values(), "decimal(P, S)"}))
        raise InvalidExpressionError(
            f"{written} is no type of a filter; known are {known}"
        ) from error


def _interval(node: exp.Interval) -> int:
    """Microseconds."""
    unit = node.args["unit"].name.lower().rstrip("s") if node.args.get("unit") else ""
    if unit not in _INTERVALS or type(node.this).__name__ != "Literal":
        raise InvalidExpressionError(
            f"an interval is a number of {', '.join(_INTERVALS)}; "
            "months and years have no fixed length"
        )
    try:
        micros = Decimal(node.this.name) * _INTERVALS[unit]
    except ArithmeticError as error:
        raise InvalidExpressionError(f"{node.this.name!r} is no number") from error
    if micros != micros.to_integral_value() or abs(micros) >= 2**63:
        raise InvalidExpressionError(f"an interval of {micros} microseconds is out of range")
    return int(micros)


def _path(node: exp.Expr) -> Sequence[str]:
    kind = type(node).__name__
    if kind == "Column":
        return [part.name for part in node.parts]  # type: ignore[attr-defined]
    if kind == "Dot":
        return [*_path(node.this), *_path(node.args["expression"])]
    if kind == "Identifier":
        return [node.name]
    raise InvalidExpressionError("names of columns are joined by dots")


def _pattern_test(given: Term, pattern: Value, escape: str | None, *, ignore_case: bool) -> Term:
    """`given like pattern`: a comparison without wildcards, a prefix with one at the end alone."""
    if sql.is_null(pattern) or sql.is_null(given):
        return sql.NULL
    if not isinstance(sql.type_of(given), StringType):
        raise InvalidExpressionError(
            f"{describe_term(given)} is a {sql.type_of(given)}: only strings are like something"
        )
    parts = list(_pattern(pattern.value, escape))
    if not ignore_case and all(not wild for _, wild in parts):
        return sql.compare("=", given, Value("".join(text for text, _ in parts)))
    if not ignore_case and parts[-1] == ("%", True) and all(not wild for _, wild in parts[:-1]):
        prefix = "".join(text for text, _ in parts[:-1])
        return sql.prefix_test(given, Value(prefix)) if prefix else sql.unless_null(given, True)
    normal = "".join(text if wild or text not in "%_\\" else f"\\{text}" for text, wild in parts)
    return sql.call("ilike" if ignore_case else "like", given, Value(normal))


def _pattern(pattern: str, escape: str | None) -> Iterator[tuple[str, bool]]:
    """Characters of a pattern, and whether each is a wildcard."""
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            if position == len(pattern):
                raise InvalidExpressionError(f"the pattern ends with its escape character {escape}")
            yield pattern[position], False
        elif (
            character == "\\"
            and escape is None
            and pattern[position + 1 : position + 2] in ("%", "_", "\\")
        ):
            raise InvalidExpressionError(
                "a backslash in a pattern escapes in Spark and is itself in DuckDB: "
                "add escape '\\' or take another character, as in like '10!%' escape '!'"
            )
        else:
            yield character, character in "%_"
        position += 1


def _unknown(name: str) -> str:
    if name in _DIFFER:
        return f"{name} is left out: {_DIFFER[name]}"
    known = sorted(
        {name for name, function in FUNCTIONS.items() if function.public} | set(_SYNONYMS)
    )
    near = difflib.get_close_matches(name, known, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "docs/filters.md lists those there are"
    return f"no function {name}; {hint}"
