"""CSV with a header. Blocks of well-formed lines are split whole, others line by line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from lakehouse.ingestion.read_options import ReadOptions
from lakehouse.ingestion.reading.content import UnreadableContentError, not_in_encoding
from lakehouse.ingestion.reading.formats.line_blocks import LineBlock, LineReader
from lakehouse.ingestion.reading.formats.record_chunks import (
    CHUNK_ROWS,
    Chunk,
    ColumnRecords,
    Rejects,
)

DELIMITERS = (",", ";", "\t", "|")
# what the csv module says when a record ends within quotes
_GOES_ON = "unexpected end of data"
_MOST_TRIES = 64
# what Excel writes, and reads, before the header
_EXCELS_DELIMITER = re.compile(r"sep=([^\r\n])\r?", re.IGNORECASE)
_DEFAULT = ReadOptions()
# lines are bounded already, and so are their fields
csv.field_size_limit(1 << 30)


def csv_chunks(
    lines: LineReader, options: ReadOptions = _DEFAULT, names: Sequence[str] = ()
) -> Iterator[Chunk]:
    """The records after the header; a record that spans lines has its last line's number.

    Args:
        lines: of the file.
        options: how they are read.
        names: of the fields, where no header names them.
    """
    reader = _CsvReader(lines.max_line_bytes, options, names)
    for block in lines:
        for start in range(0, len(block.lines), CHUNK_ROWS):
            end = min(start + CHUNK_ROWS, len(block.lines))
            yield reader.read(block, start, end)
    yield reader.finish()


def header_delimiter(line: bytes, options: ReadOptions = _DEFAULT) -> str | None:
    """The delimiter of a CSV file by its first line; None where that is no usable header."""
    reader = _CsvReader(len(line) + 1, options, ())
    try:
        reader.read(LineBlock(1, line, {}), 0, 1)
    except UnreadableContentError:
        return None
    return reader.delimiter if reader.has_header else None


def excels_delimiter(line: str) -> str | None:
    """The delimiter that a line `sep=;` before the header names; None for any other line."""
    match = _EXCELS_DELIMITER.fullmatch(line)
    return None if match is None else match[1]


def ends_its_records(text: bytes, delimiter: str) -> bool:
    """Whether it is certain that each line of a CSV text is a record, so that none goes on."""
    if b'"' not in text:
        return True
    lines = _ended_by_newlines(text.removesuffix(b"\n").split(b"\n"))
    return lines is not None and _well_formed(lines, delimiter, _DEFAULT.quote)


class _CsvReader:
    """Keeps the header, and the record that a line left open."""

    def __init__(self, max_record_bytes: int, options: ReadOptions, names: Sequence[str]) -> None:
        self._max, self._options = max_record_bytes, options
        self._nulls = pa.array(list(options.null_values), pa.string())
        self._header: list[str] = list(names)
        self._delimiter = options.delimiter
        self._escape = None if options.escape == options.quote else options.escape
        # whole runs of quotes where doubling tells; single ones always try whether a record ends
        quote = options.quote.encode()
        runs = b"+" if len(quote) == 1 and self._escape is None else b""
        self._quotes = re.compile(re.escape(quote[-1:]) + runs)
        self._open = _OpenRecord(self._quotes)
        self._last = 0

    @property
    def delimiter(self) -> str:
        """That of the options, else of the first line."""
        return self._delimiter or ","

    @property
    def has_header(self) -> bool:
        """Whether the header was read."""
        return bool(self._header)

    def read(self, block: LineBlock, start: int, end: int) -> Chunk:
        """Records of some lines of a block.

        Raises:
            UnreadableContentError: the header names no column, or is not UTF-8.
        """
        self._last = block.first + end - 1
        special = any(start <= position < end for position in block.lengths) or (
            block.cut and end == len(block.lines)
        )
        special = special or block.first + start <= self._options.skip
        rejects = Rejects()
        if not special and self._header and not self._open.lines and self._is_usual:
            lines = _ended_by_newlines(block.lines[start:end])
            if lines is not None and _well_formed(lines, self.delimiter, self._options.quote):
                numbers = range(block.first + start, block.first + end)
                return Chunk(self._split(lines, numbers, rejects), rejects)
        return Chunk(self._one_by_one(block, range(start, end), rejects), rejects)

    @property
    def _is_usual(self) -> bool:
        """Whether Arrow splits lines of this dialect as they are split one by one."""
        splits_on_one = self._delimiter is not None and self._escape is None
        return splits_on_one and f"{self._delimiter}{self._options.quote}".isascii()

    def finish(self) -> Chunk:
        """What a quote left open at the end of the file."""
        rejects = Rejects()
        if self._open.lines:
            rejects.add(self._last, "malformed CSV", "a quote is not closed", self._open.text())
        return Chunk(None, rejects)

    def _one_by_one(
        self, block: LineBlock, positions: range, rejects: Rejects
    ) -> ColumnRecords | None:
        numbers: list[int] = []
        rows: list[list[str]] = []
        texts: list[bytes] = []
        for position in positions:
            line, number = block.lines[position], block.first + position
            if number <= self._options.skip:
                continue
            cut = block.cut and position == len(block.lines) - 1
            too_long = block.lengths.get(position, 0)
            record = self._line(line, number, too_long, rejects, cut=cut)
            if record is not None:
                numbers.append(number)
                rows.append(record[0])
                texts.append(record[1])
        if not numbers:
            return None
        columns = {
            name: self._nulled(pa.array([row[at] for row in rows], pa.string()))
            for at, name in enumerate(self._header)
        }
        return ColumnRecords(numbers, columns, texts, untyped=True)

    def _line(
        self, line: bytes, number: int, too_long: int, rejects: Rejects, *, cut: bool
    ) -> tuple[list[str], bytes] | None:
        """Take a line that may begin, continue or end a record."""
        self._open.add(line, too_long)
        if cut or self._open.too_long:
            size, text = self._open.too_long, self._open.text()
            self._open = _OpenRecord(self._quotes)
            if cut:
                rejects.add(number, "truncated line", "", text)
            else:
                rejects.add(number, "line too long", f"{size} bytes", text, size=size)
            return None
        if self._open.size > self._max:
            rejects.add(number, "line too long", "a quote is not closed", self._open.text())
            self._open = _OpenRecord(self._quotes)
            return None
        if not self._open.may_end():
            return None
        text = self._open.text()
        decoded = text.decode("utf-8", errors="backslashreplace")
        if number == self._options.skip + 1 and (delimiter := excels_delimiter(decoded)):
            self._delimiter, self._open = delimiter, _OpenRecord(self._quotes)
            return None
        if self._delimiter is None:
            self._delimiter = max(DELIMITERS, key=decoded.count)
        try:
            fields = self._fields(decoded)
        except csv.Error as error:
            if str(error) == _GOES_ON and self._open.tries < _MOST_TRIES:
                return None
            self._open = _OpenRecord(self._quotes)
            rejects.add(number, "malformed CSV", str(error), text)
            return None
        self._open = _OpenRecord(self._quotes)
        wrong = not_in_encoding(text, self._options.encoding)
        if not self._header:
            self._take_header(fields, wrong)
            return None
        if wrong:
            rejects.add(number, "malformed CSV", wrong, text)
            return None
        return self._fitting(fields, number, text, rejects)

    def _fields(self, text: str) -> list[str]:
        """The fields of a record.

        Raises:
            csv.Error: it is none, or goes on.
        """
        if self._escape is not None:
            return _escaped_fields(text, self.delimiter, self._options.quote, self._escape)
        quote = self._options.quote
        reader = csv.reader(
            (line + "\n" for line in text.split("\n")),
            delimiter=self.delimiter,
            quotechar=quote or None,
            quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
            strict=True,
        )
        return next(reader, [])

    def _nulled(self, texts: pa.Array) -> pa.Array:
        """Fields that mean null are null."""
        return pc.if_else(pc.is_in(texts, self._nulls), pa.scalar(None, pa.string()), texts)

    def _take_header(self, fields: list[str], wrong: str | None) -> None:
        if wrong:
            what = "write it as UTF-8, or name its encoding: ReadOptions(encoding=...)"
            raise UnreadableContentError("malformed CSV header", f"{wrong}; {what}")
        names = [name.strip() for name in fields]
        if not any(names):
            raise UnreadableContentError("malformed CSV header", "it names no column")
        self._header = _distinct(names)

    def _fitting(
        self, fields: list[str], number: int, text: bytes, rejects: Rejects
    ) -> tuple[list[str], bytes] | None:
        if len(fields) == len(self._header):
            return fields, text
        if fields:
            rejects.add(number, *_misfit(len(fields), len(self._header)), text)
        else:
            rejects.add(number, "blank line", "", text)
        return None

    def _split(
        self, lines: list[bytes], numbers: Sequence[int], rejects: Rejects
    ) -> ColumnRecords | None:
        """Records of well-formed lines; those with another number of fields are rejected."""
        blank = [at for at, line in enumerate(lines) if not line] if b"" in lines else []
        for at in blank:
            rejects.add(numbers[at], "blank line", "", b"")
        filled = sorted(set(range(len(lines))) - set(blank)) if blank else range(len(lines))
        if not filled:
            return None
        nonblank = [lines[at] for at in filled] if blank else lines
        width = len(self._header)
        misfits: dict[int, int] = {}
        table = _table(b"\n".join(nonblank), self.delimiter, self._options, width, misfits)
        for at, fields in misfits.items():
            line = nonblank[at]
            rejects.add(numbers[filled[at]], *_misfit(fields, width), line)
        good = (
            [at for at in range(len(nonblank)) if at not in misfits]
            if misfits
            else range(len(nonblank))
        )
        if table.num_rows != len(good):
            raise AssertionError(f"{len(good)} lines were split into {table.num_rows} records")
        if not good:
            return None
        columns = {
            name: column.combine_chunks()
            for name, column in zip(self._header, table.columns, strict=True)
        }
        texts = [nonblank[at] for at in good] if misfits else nonblank
        taken = [numbers[filled[at]] for at in good]
        return ColumnRecords(taken, columns, texts, untyped=True)


class _OpenRecord:
    """The lines of a record that may go on."""

    def __init__(self, quotes: re.Pattern[bytes]) -> None:
        self.lines: list[bytes] = []
        self._quotes = quotes
        self.size = self.too_long = self.tries = 0

    def add(self, line: bytes, too_long: int) -> None:
        self.lines.append(line)
        self.size += len(line) + 1
        self.too_long = max(self.too_long, too_long)

    def may_end(self) -> bool:
        """Whether to try: a quote that is not doubled closes what an earlier line opened."""
        if len(self.lines) > 1 and not any(
            len(quotes) % 2 for quotes in self._quotes.findall(self.lines[-1])
        ):
            return False
        self.tries += 1
        return True

    def text(self) -> bytes:
        return b"\n".join(self.lines)


def _distinct(names: list[str]) -> list[str]:
    """Names of which each is once: `a`, `a` are `a`, `a_2`; `` and `` are `` and `column_2`."""
    taken, renamed = {*names}, dict[str, None]()
    numbers = {name: count(2) for name in names}
    for name in names:
        unique = name
        if name in renamed:
            numbered = (f"{name or 'column'}_{number}" for number in numbers[name])
            unique = next(name for name in numbered if name not in taken)
            taken.add(unique)
        renamed[unique] = None
    return [*renamed]


def _ended_by_newlines(lines: list[bytes]) -> list[bytes] | None:
    """The lines without a carriage return at the end; None if there are others."""
    text = b"\n".join(lines)
    if b"\r" not in text:
        return lines
    text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
    return None if b"\r" in text else text.split(b"\n")


def _well_formed(lines: list[bytes], delimiter: str, quote: str) -> bool:
    """Whether each line is a record, quoted by whole fields: all readers split it alike."""
    try:
        texts = pa.array(lines, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    if not quote or not pc.any(pc.match_substring(texts, quote)).as_py():
        return True
    mark, between = re.escape(quote), re.escape(delimiter)
    field = rf"({mark}([^{mark}]|{mark}{mark})*{mark}|[^{mark}{between}]*)"
    return bool(pc.all(pc.match_substring_regex(texts, f"^{field}({between}{field})*$")).as_py())


def _misfit(fields: int, width: int) -> tuple[str, str]:
    return "malformed CSV", f"{fields} fields under {width} names"


def _table(
    data: bytes, delimiter: str, options: ReadOptions, width: int, misfits: dict[int, int]
) -> pa.Table:
    """Columns of text; lines with a wrong number of fields are left out, by position -> fields."""
    names = [f"{at}" for at in range(width)]

    def skipped(row: pa_csv.InvalidRow) -> str:
        misfits[row.number - 1] = row.actual_columns
        return "skip"

    return pa_csv.read_csv(
        BytesIO(data),
        read_options=pa_csv.ReadOptions(
            use_threads=False, column_names=names, block_size=len(data) + 1
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter,
            quote_char=options.quote or False,
            ignore_empty_lines=False,
            invalid_row_handler=skipped,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=list(options.null_values),
            strings_can_be_null=True,
        ),
    )


def _escaped_fields(text: str, delimiter: str, quote: str, escape: str) -> list[str]:
    """The fields of a record whose quotes are escaped.

    Raises:
        csv.Error: as the csv module says of other dialects.
    """
    text, fields, at = text.removesuffix("\r"), list[str](), 0
    if not text:
        return fields
    mark, other = re.escape(quote), re.escape(escape)
    marks = re.compile(f"{other}(?:{mark}|{other})|{mark}")
    while True:
        if text.startswith(quote, at):
            parts, at = list[str](), at + 1
            while True:
                special = marks.search(text, at)
                if special is None:
                    raise csv.Error(_GOES_ON)
                parts.append(text[at : special.start()])
                at = special.end()
                if special[0] == quote:
                    break
                parts.append(special[0][-1])
            held = "".join(parts)
            if at < len(text) and text[at] != delimiter:
                raise csv.Error(f"{delimiter!r} expected after {quote!r}")
        else:
            end = text.find(delimiter, at)
            held = text[at : len(text) if end < 0 else end]
            if "\r" in held or "\n" in held:
                raise csv.Error("new-line character seen in unquoted field")
            at += len(held)
        fields.append(held)
        if at >= len(text):
            return fields
        at += 1
