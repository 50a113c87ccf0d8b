"""How a source's text is read, in the words of Spark's and DuckDB's readers."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, fields
from typing import Any

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.reading.typing.time_patterns import TimePattern

# codecs of Python that are transformations or escapes, no encodings of files
_NO_ENCODINGS = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
_OF_CSV = ("delimiter", "quote", "escape", "header", "skip", "null_values")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How text is read.

    What an option does not take is quarantined as `type conflict` or `malformed CSV`, and the
    detail names the option.

    Attributes:
        encoding: of text files without a byte order mark, as Python names it: `utf-8`, `latin-1`,
            `cp1252`, `utf-16`.
        delimiter: of CSV, one character; None: the one of `,`, `;`, tab and `|` that the first line
            of each file has most of.
        quote: what encloses fields of CSV, one character; empty: nothing does.
        escape: what stands before a quote within a quoted field, or before itself; None: a quote is
            doubled. Before anything else it is a character of the field.
        header: whether the first line of CSV names the fields; else they are the declared columns,
            in their order.
        skip: so many lines before the header of CSV are no records, nor is a line `sep=;` of
            Excel, which names the delimiter of its file.
        null_values: fields of CSV that are null.
        decimal_separator: of numbers that are text: `.` or `,`.
        thousands: what groups their digits, before each third; None: nothing does.
        units: texts such as `$`, `EUR` or `%`, one of which may stand before or after such a
            number; it is left out.
        accounting: whether `(1.50)` and `1.50-` are the number -1.50.
        date_format: how text spells a `date`, such as `dd.MM.yyyy`; None: ISO 8601. The letters are
            Spark's: `y M d H h m s S a X x`, text in quotes, and what may be left out in brackets.
        timestamp_format: how text spells a `timestamp` or, with an offset (`XXX`), a `timestamptz`.
            The event time has a format of its own.
    """

    encoding: str = "utf-8"
    delimiter: str | None = None
    quote: str = '"'
    escape: str | None = None
    header: bool = True
    skip: int = 0
    null_values: tuple[str, ...] = ("",)
    decimal_separator: str = "."
    thousands: str | None = None
    units: tuple[str, ...] = ()
    accounting: bool = False
    date_format: str | None = None
    timestamp_format: str | None = None

    def __post_init__(self) -> None:
        _check_encoding(self.encoding)
        self._check_csv()
        self._check_numbers()
        if self.date_format is not None:
            pattern = TimePattern.parsed("date_format", self.date_format)
            if pattern.has_time or pattern.has_offset:
                raise _refused("date_format", self.date_format, "a date has no time of day")
        if self.timestamp_format is not None:
            TimePattern.parsed("timestamp_format", self.timestamp_format)

    def _check_csv(self) -> None:
        for name in ("delimiter", "quote", "escape", "thousands"):
            value = getattr(self, name)
            if value is None or (name == "quote" and value == ""):
                continue
            if not isinstance(value, str) or len(value) != 1 or value in "\r\n\0":
                raise _refused(name, value, "it is one character that ends no line")
        if self.delimiter is not None and self.delimiter in (self.quote, self.escape):
            raise _refused("delimiter", self.delimiter, "it is the quote or the escape, too")
        if self.escape is not None and not self.quote:
            raise _refused("escape", self.escape, "nothing is escaped without a quote")
        if type(self.skip) is not int or self.skip < 0:
            raise _refused("skip", self.skip, "it is a number of lines")

    def _check_numbers(self) -> None:
        if self.decimal_separator not in (".", ","):
            raise _refused("decimal_separator", self.decimal_separator, "it is '.' or ','")
        if self.thousands is not None and (
            self.thousands == self.decimal_separator or self.thousands in "0123456789+-eE"
        ):
            raise _refused(
                "thousands", self.thousands, "it is the decimal_separator, or part of numbers"
            )
        for name in ("null_values", "units"):
            texts = getattr(self, name)
            if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
                raise _refused(name, texts, "they are a tuple of texts")
        for unit in self.units:
            if not set(unit) - set("0123456789.,+-()eE "):
                raise _refused("units", unit, "it looks like a part of a number")

    @property
    def used(self) -> dict[str, Any]:
        """The options that are not what they are by default."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }

    @property
    def is_utf8(self) -> bool:
        """Whether text is UTF-8, as it is by default."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig")

    @property
    def is_wide(self) -> bool:
        """Whether ASCII is not what it looks like, as in UTF-16, so that bytes tell nothing."""
        plain = bytes(range(128))
        try:
            return plain.decode(self.encoding) != plain.decode("ascii")
        except UnicodeDecodeError:
            return True

    @property
    def lines_are_records(self) -> bool:
        """Whether a CSV file can be cut at line ends, as it can where it is quoted as usual."""
        return not (self.used.keys() & {"encoding", "quote", "escape", "header", "skip"})

    def check(self, format_: str, columns: dict[str, str]) -> None:
        """Refuse what cannot hold for a source.

        Args:
            format_: of the source's files.
            columns: type of each declared column.

        Raises:
            InvalidInputError: it names the option.
        """
        if format_ == "jsonl":
            for name in self.used.keys() & set(_OF_CSV):
                raise _refused(name, getattr(self, name), "it is of CSV, and format is 'jsonl'")
        if not self.header and not columns:
            raise _refused("header", False, "without a header the columns have to be declared")
        if self.timestamp_format is not None:
            offset = TimePattern.parsed("timestamp_format", self.timestamp_format).has_offset
            kind = "timestamp" if offset else "timestamptz"
            for name in (name for name, column in columns.items() if column == kind):
                has = "an" if offset else "no"
                other = "timestamptz" if offset else "timestamp"
                why = f"it has {has} offset (XXX), so column {name!r} has to be {other}"
                raise _refused("timestamp_format", self.timestamp_format, why)


def _check_encoding(name: str) -> None:
    try:
        codec = codecs.lookup(name)
        "a".encode(name)
    except (LookupError, TypeError, UnicodeError):
        examples = "such as 'utf-8', 'latin-1', 'cp1252' or 'utf-16'"
        raise _refused("encoding", name, f"no such encoding; name one {examples}") from None
    if codec.name in _NO_ENCODINGS or codec.incrementaldecoder is None:
        raise _refused("encoding", name, "files are not written in it")


def _refused(name: str, value: object, why: str) -> InvalidInputError:
    return InvalidInputError(f"read option {name}={value!r}: {why}", option=name)
