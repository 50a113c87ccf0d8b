"""How a sample spells its text: encoding, delimiter, numbers, dates and times.

What fits in two ways that make different values is not proposed; a note says both.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import date
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.errors import InvalidInputError, StorageError
from lakehouse.ingestion.proposal.sampled_records import Field, Sample
from lakehouse.ingestion.read_options import ReadOptions
from lakehouse.ingestion.reading.content import (
    HEAD_BYTES,
    UnreadableContentError,
    as_utf8,
    kind_of,
    marked_encoding,
    plain_blocks,
    wide_encoding,
)
from lakehouse.ingestion.reading.formats.csv_records import (
    DELIMITERS,
    excels_delimiter,
    header_delimiter,
)
from lakehouse.ingestion.reading.landing_file import format_of
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.reading.typing.time_patterns import TimePattern
from lakehouse.ingestion.reading.typing.typed_columns import typed_column
from lakehouse.ingestion.source import Source
from lakehouse.ingestion.workers.landing_reader import LandingReader

EVENT_TIME_FORMAT = "event_time_format"
WIDE = frozenset(f"utf-{bits}{end}" for bits in (16, 32) for end in ("", "-le", "-be"))
_MOST_BYTES = 64 << 20
# bytes that cp1252 has not
_NOT_CP1252 = frozenset(b"\x81\x8d\x8f\x90\x9d")
_WORD = re.compile(rb"[A-Za-z]*[\x80-\xff][A-Za-z\x80-\xff]*")
_RARE_DELIMITERS = ("\x01", "^", "~", ":")
_LINES_SEEN, _LINES_JUDGED, _START_BYTES = 200, 5, 1 << 16
_DATES = (
    *(
        form.replace("-", sign)
        for form in ("dd-MM-yyyy", "MM-dd-yyyy", "d-M-yyyy", "M-d-yyyy", "dd-MM-yy", "MM-dd-yy",
                     "d-M-yy", "M-d-yy", "yyyy-MM-dd")
        for sign in "./-"
    ),
    "dd-MMM-yyyy", "dd MMM yyyy", "d MMM yyyy",
)  # fmt: skip
_CLOCKS = (" HH:mm", " HH:mm:ss", " HH:mm:ss.SSS", " H:mm", " hh:mm a", " h:mm a", " hh:mm:ss a",
           "'T'HH:mm:ss")  # fmt: skip


def reader_options(texts: Sequence[str]) -> tuple[dict[str, object], str | None]:
    """What a user says of the reader as `name=value`, and the format of the event time.

    Raises:
        InvalidInputError: there is no such option.
    """
    names = [field.name for field in fields(ReadOptions)]
    options: dict[str, object] = {}
    event_time_format = None
    for text in texts:
        name, equals, value = text.partition("=")
        if name == EVENT_TIME_FORMAT and equals:
            event_time_format = value
        elif name not in names or not equals:
            choices = ", ".join([*names, EVENT_TIME_FORMAT])
            raise InvalidInputError(f"option {text!r}: it is NAME=VALUE, names are {choices}")
        elif name == "skip":
            if not value.isdecimal():
                raise InvalidInputError(f"option {text!r}: it is a number of lines")
            options[name] = int(value)
        elif name in ("header", "accounting"):
            options[name] = value.lower() not in ("false", "no", "0")
        elif name in ("null_values", "units"):
            usual = getattr(ReadOptions(), name)
            options[name] = (*options.get(name, usual), value)  # type: ignore[misc]
        else:
            options[name] = value
    ReadOptions(**options)  # type: ignore[arg-type]
    return options, event_time_format


def text_options(
    sample: Sample, source: Source, wishes: Mapping[str, object], today: date, notes: list[str]
) -> ReadOptions:
    """Encoding and delimiter as the files show them, where the user gave none."""
    reader = LandingReader(sample.folder, source, today, sample.storage_properties)
    encodings: dict[str, str] = {}
    delimiters: set[str | None] = set()
    preambles: set[int] = set()
    word, left = b"", _MOST_BYTES
    for file in sample.files:
        if file.refused is not None or left <= 0:
            continue
        try:
            with reader.open(file) as stream:
                head = stream.read(HEAD_BYTES)
                kind = kind_of(head, wide=True)
                if kind in ("parquet", "avro"):
                    continue
                text = _some(plain_blocks(stream, kind, wide=True), left)
        except (UnreadableContentError, OSError, StorageError):
            continue  # the sample's own reading tells
        left -= len(text)
        encoding = encodings[file.path] = _encoding(text)
        if encoding == "cp1252" and not word and (match := _WORD.search(text)):
            word = match[0]
        start = b"".join(
            as_utf8(iter([text[:_START_BYTES]]), str(wishes.get("encoding", encoding)))
        )
        if format_of(source, file.path, start) == "csv":
            skip, delimiter = _csv_start(start.split(b"\n")[:_LINES_SEEN], wishes)
            preambles.add(skip)
            delimiters.add(delimiter)
    proposed: dict[str, object] = {}
    kinds = set(encodings.values()) - {"ascii"}
    if kinds == {"cp1252"} and "encoding" not in wishes:
        proposed["encoding"] = "cp1252"
        shown = word.decode("cp1252")
        notes.append(
            f"text is no UTF-8: cp1252 (Western Europe) is assumed, which reads {shown!r}; if that "
            "is wrong, say --option encoding=cp1250 or another"
        )
    elif len(kinds) == 1 and kinds <= WIDE:
        proposed["encoding"] = kinds.pop()
    elif kinds - {"utf-8"} and "encoding" not in wishes:
        odd = [
            path
            for path, encoding in sorted(encodings.items())
            if encoding not in ("ascii", "utf-8")
        ]
        notes.append(
            f"{len(odd):,} files are no UTF-8, the first is {odd[0]}: no encoding is proposed; say "
            "--option encoding=NAME, or keep files of different encodings in different sources"
        )
    if len(preambles) == 1 and (lines_before := preambles.pop()):
        proposed["skip"] = lines_before
        notes.append(f"the first {lines_before:,} lines of each CSV file come before its header")
    elif preambles:
        notes.append(
            "CSV files have different numbers of lines before their header "
            f"({', '.join(map(str, sorted(preambles)))}): keep them in different sources"
        )
    if len(delimiters) == 1 and (other_delimiter := delimiters.pop()) not in (None, ","):
        proposed["delimiter"] = other_delimiter
    return ReadOptions(**{**proposed, **wishes})  # type: ignore[arg-type]


def _some(blocks: Iterable[bytes], most: int) -> bytes:
    head = bytearray()
    try:
        for block in blocks:
            head += block
            if len(head) >= most:
                break
    except UnreadableContentError:
        pass  # what comes before the damage is a sample, too
    return bytes(head)


def _encoding(text: bytes) -> str:
    """`ascii`, `utf-8`, a wide one, else `cp1252` or, where that has not all bytes, `latin-1`.

    Text that a mark tells to be UTF-8 is read so under any encoding: it is as good as `ascii`.
    """
    wide = wide_encoding(text[:HEAD_BYTES])
    if wide is not None:
        return wide
    if text.isascii() or marked_encoding(text) is not None:
        return "ascii"
    readable = text.decode("utf-8", "replace")
    invalid = readable.count("\ufffd")
    valid = sum(not text.isascii() for text in readable) - invalid
    if valid >= invalid:
        return "utf-8"
    return "latin-1" if _NOT_CP1252 & set(text) else "cp1252"


def _csv_start(lines: Sequence[bytes], wishes: Mapping[str, object]) -> tuple[int, str | None]:
    """How many lines come before the header of a CSV file, and its delimiter."""
    options = ReadOptions(**wishes)  # type: ignore[arg-type]
    if excel := excels_delimiter(lines[0].decode("utf-8", "replace").lstrip("\ufeff")):
        return options.skip, excel
    skip, delimiter = (
        (options.skip, None) if wishes.keys() & {"skip", "header"} else _preamble(lines, options)
    )
    return skip, delimiter or _delimiter(lines[skip:][:_LINES_JUDGED], options)


def _preamble(lines: Sequence[bytes], options: ReadOptions) -> tuple[int, str | None]:
    """How many lines come before the header of CSV, and its delimiter; (0, None): none do.

    They have other numbers of fields than most records, or most of theirs are empty.
    """
    dialects: list[tuple[int, int, str]] = []
    text = [line.decode("latin-1") for line in lines]
    for sign in DELIMITERS if options.delimiter is None else (options.delimiter,):
        reader = csv.reader(text, delimiter=sign, quotechar=options.quote or None)
        rows: list[tuple[int, list[str]]] = []
        before = 0
        with suppress(csv.Error):
            for row in reader:
                rows.append((before, row))
                before = reader.line_num
        widths = Counter(len(row) for _, row in rows[:-1] if any(row))
        (most, often), *_ = widths.most_common(1) or [(0, 0)]
        header = next(
            (n for n, row in rows if len(row) == most and sum(map(bool, row)) * 2 > most), 0
        )
        if most > 1 and often * 2 > widths.total() and widths.total() >= _LINES_JUDGED:
            dialects.append((often * most, header, sign))
    _, skip, delimiter = max(dialects, default=(0, 0, None))
    return (skip, delimiter) if skip else (0, None)


def _delimiter(lines: Sequence[bytes], options: ReadOptions) -> str | None:
    first = lines[0].removeprefix(b"\xef\xbb\xbf").rstrip(b"\r")
    usual = header_delimiter(first, options)
    if usual is None or usual.encode() in first:
        return usual
    whole = [line for line in lines[:-1] or lines if line.strip()]
    for sign in _RARE_DELIMITERS:
        if len({line.count(sign.encode()) for line in whole}) == 1 and sign.encode() in first:
            return sign
    return usual if usual in DELIMITERS else None


_SIGN, _DIGITS, _DIGIT = "[+-]?", "[0-9]", re.compile("[0-9]")
_COMMA = re.compile(r"[+-]?([0-9]{1,3}(\.[0-9]{3})+|[0-9]+),[0-9]+")
# signs that group digits, beside the other point; only the last ones tell a number by themselves
_GROUPS = {",": (".", " ", "\u00a0", "\u202f", "'", "\u2019"),
           ".": (",", " ", "\u00a0", "\u202f", "'", "\u2019")}  # fmt: skip
_UNIT = (
    "[$\u20ac\u00a3\u00a5\u20b9%]|AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|INR|JPY|KRW|MXN|NOK"
    "|NZD|PLN|SEK|SGD|TRY|USD|ZAR"
)
_OTHERWISE = re.compile(
    rf"[-+]?\(?\s*({_UNIT})?\s*[-+]?\(?[0-9][0-9.,'\s\u2019]*\)?-?\s*({_UNIT})?[)-]?"
)
_ACCOUNTED = re.compile(r"\(|\d[^-]*-")
# words for no value; the first are so wherever they stand
_NO_VALUE = frozenset({"N/A", "n/a", "#N/A", "#NV", "NULL", "\\N"})
_NO_NUMBER = _NO_VALUE | {"-", "--", "NA", "na", "null", "None", "none", "k.A."}
_PLAIN_NUMBER = re.compile(r"[-+]?[0-9.,']+")


def number_options(
    fields: Mapping[str, Field],
    options: ReadOptions,
    wishes: Mapping[str, object],
    notes: list[str],
) -> ReadOptions:
    """Decimal separator and thousands of fields whose values all have one notation."""
    if wishes.keys() & {"decimal_separator", "thousands"}:
        return options
    if not wishes.keys() & {"units", "accounting", "null_values"}:
        options = _more_than_numbers(fields, options, notes)
    spelled = SpelledText(options)
    texts = {
        name: spelled.bare(pa.array(sorted(different), pa.string())).to_pylist()
        for name, field in fields.items()
        if field.untyped
        and (different := set(map(str, field.distinct or ())) - {*options.null_values})
    }
    fitting = {
        (point, group): [
            name for name, spellings in texts.items() if _spelled(spellings, point, group)
        ]
        for point, groups in _GROUPS.items()
        for group in (None, *groups)
    }
    commas, points = (
        {name for (point, _), names in fitting.items() if point == mark for name in names}
        for mark in (",", ".")
    )
    if commas - points and points - commas:
        notes.append(
            f"numbers have a decimal comma in {_named(texts, commas - points)} and a point in "
            f"{_named(texts, points - commas)}: no decimal_separator takes both, and those with a "
            "comma are text"
        )
        return options
    point = "," if commas - points else "."
    grouped = {
        group: set(names)
        for (mark, group), names in fitting.items()
        if mark == point and group and any(group in text for name in names for text in texts[name])
    }
    thousands = max(grouped, key=lambda group: len(grouped[group]), default=None)
    if others := set().union(*grouped.values()) - grouped.get(thousands or "", set()):
        notes.append(f"thousands are grouped otherwise in {_named(texts, others)}: they are text")
    if thousands or point == ",":
        return replace(options, decimal_separator=point, thousands=thousands)
    notes += [
        f"most values of {name} have a decimal comma, not all: it is text; --option "
        "decimal_separator=, reads them, and leaves the others to the rest"
        for name, spellings in texts.items()
        if sum(_COMMA.fullmatch(text) is not None for text in spellings) * 10 >= 9 * len(spellings)
    ]
    return options


def _more_than_numbers(
    fields: Mapping[str, Field], options: ReadOptions, notes: list[str]
) -> ReadOptions:
    """Units, negative numbers of accountants, and words for no value, among numbers.

    A word that may be a text is none where a field of text has it; two currencies of a sample are
    not left out, as no column would tell them apart.
    """
    units: dict[str, list[str]] = {}
    words, of_text, accounting = set[str](), set[str](), list[str]()
    for name, field in fields.items():
        texts = set(map(str, field.distinct or ())) if field.untyped else set()
        numbers = [match for text in texts - _NO_NUMBER if (match := _OTHERWISE.fullmatch(text))]
        if not numbers or len(numbers) < len(texts - _NO_NUMBER):
            of_text |= texts & _NO_NUMBER
            continue
        words |= texts & _NO_NUMBER
        for unit in sorted({group for match in numbers for group in match.groups() if group}):
            units.setdefault(unit, []).append(name)
        if any(_ACCOUNTED.search(match[0]) for match in numbers):
            accounting.append(name)
    if len(currencies := units.keys() - {"%"}) > 1:
        notes.append(
            f"numbers have the units {', '.join(sorted(currencies))}: those are text; a transform "
            "of the source, or a derived table, makes numbers of them"
        )
        units = {unit: names for unit, names in units.items() if unit == "%"}
    if words := words & _NO_VALUE | words - of_text:
        notes.append(f"{', '.join(map(repr, sorted(words)))} stand for no value, in every column")
    for unit, names in units.items():
        notes.append(f"{unit!r} is left out of the numbers of {', '.join(names)}")
    if accounting:
        notes.append(f"{', '.join(accounting)}: (1.50) and 1.50- are -1.50")
    return replace(
        options,
        null_values=(*options.null_values, *sorted(words)),
        units=tuple(units),
        accounting=bool(accounting),
    )


def spelled_otherwise(name: str, field: Field) -> str | None:
    """A note on text that is a number with more: a unit, brackets, the sign at the end."""
    different = [value for value in field.distinct or () if isinstance(value, str)]
    if not different or not all(map(_OTHERWISE.fullmatch, different)):
        return None
    odd = [text for text in different if not _PLAIN_NUMBER.fullmatch(text)]
    if not odd:
        return None
    return (
        f"{name} has numbers with more than a number says ({min(odd)!r}): it is text; read options "
        "(units, accounting), a transform of the source, or a derived table make numbers of it"
    )


def _named(texts: Mapping[str, object], names: Collection[str]) -> str:
    return ", ".join(name for name in texts if name in names)


def _spelled(texts: Sequence[str], point: str, group: str | None) -> bool:
    """Whether all are numbers with these signs, and one of them only so."""
    fraction, grouped, sure = re.escape(point), "(?!)", "(?!)"
    if group is not None:
        grouped = f"{_DIGITS}{{1,3}}(?:{re.escape(group)}{_DIGITS}{{3}})+"
        twice = f"{_DIGITS}{{1,3}}(?:{re.escape(group)}{_DIGITS}{{3}}){{2,}}"
        once = grouped if group in "'\u2019" else twice
        sure = f"{grouped}{fraction}{_DIGITS}+|{once}"
    form = re.compile(f"{_SIGN}(?:{grouped}|{_DIGITS}+)(?:{fraction}{_DIGITS}+)?")
    certain = re.compile(
        f"{_SIGN}(?:{_DIGITS}+{fraction}(?:{_DIGITS}{{1,2}}|{_DIGITS}{{4,}})|{sure})"
    )
    return all(map(form.fullmatch, texts)) and any(map(certain.fullmatch, texts))


def formats_of(field: Field) -> dict[str, list[str]]:
    """Formats that the values of a field fit: `day` or `month` first -> the closest ones first.

    A twentieth of the values may be times in none of them (`########`, the 31st of February); what
    is a time in one is a time in all that are given. A format without a time of day comes only
    where there is none.
    """
    if not field.distinct or any(type(value) is not str for value in field.distinct):
        return {}
    texts = pa.array([str(value) for value in field.distinct])
    # formats begin with a digit, and which digit one is matters to none
    shapes = {_DIGIT.sub("1", str(value)) for value in field.distinct if str(value)[:1].isdigit()}
    times: dict[str, pa.Array] = {}
    for form in (*_DATES, *(map("".join, product(_DATES, _CLOCKS)))):
        if form == "yyyy-MM-dd" or form.startswith("yyyy-MM-dd'T'"):
            continue  # that is ISO 8601
        pattern = TimePattern.parsed("timestamp_format", form)
        if any(re.fullmatch(pattern.regex, shape) for shape in shapes):
            times[form] = typed_column(pattern.iso(texts), "timestamp", from_text=True)[0]
    if not times:
        return {}
    most = pc.coalesce(*times.values())
    strangers = set(texts.filter(most.is_null()).to_pylist())
    if sum(value in strangers for value in field.values) * 20 > len(field.values):
        return {}
    by_order: dict[str, list[str]] = {}
    for form, instants in times.items():
        if instants.null_count == most.null_count:
            by_order.setdefault("month" if form.lstrip("'")[0] == "M" else "day", []).append(form)
    return by_order


def only_format(
    of_fields: Mapping[str, Mapping[str, Sequence[str]]], notes: list[str]
) -> str | None:
    """The format that all of these fields fit, if there is one that cannot be another."""
    if not of_fields:
        return None
    first, *others = of_fields.values()
    orders = {
        order: [form for form in forms if all(form in forms.get(order, ()) for forms in others)]
        for order, forms in first.items()
    }
    fitting = [forms[0] for forms in orders.values() if forms]
    names = ", ".join(of_fields)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        notes.append(
            f"{names}: dates may be {' or '.join(fitting)}, the sample does not tell; text is "
            "proposed, say --option date_format=... or timestamp_format=..."
        )
    else:
        notes.append(f"{names}: dates are spelled in different ways; text is proposed")
    return None
