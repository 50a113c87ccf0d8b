"""Landing files read by ours, value by value beside what they say; and lines counted."""

from __future__ import annotations

import base64
import json
import math
import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from lakehouse.errors import LakehouseError
from lakehouse.ingestion import drift
from lakehouse.ingestion.read_options import ReadOptions
from lakehouse.ingestion.reading.content import UnreadableContentError
from lakehouse.ingestion.reading.file_index import FileIndex
from lakehouse.ingestion.reading.file_parts import look_at, parts_of, read_chunks
from lakehouse.ingestion.reading.formats.record_chunks import Rejects
from lakehouse.ingestion.reading.typing.typed_rows import RowTyper
from lakehouse.ingestion.source import EVENT_TS, LANDING_LINE, UNBUCKETED_TYPES
from lakehouse.ingestion.workers.landing_reader import LandingReader
from tests.hostile.landing_files import DATES, TIMES, TODAY, Landed, Number, landed

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_PLAIN = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_LOOSE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_CODE = re.compile(r"(\+|-?0[0-9])[0-9.]*([eE][+-]?[0-9]+)?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
ROW, NO, ANY = "row", "no row", "either"


@dataclass
class Tally:
    """What came of the rounds."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


@dataclass
class Told:
    """What ours says of a file: each row by line, each reject by line, and its problem."""

    rows: dict[int, dict[str, object]] = field(default_factory=dict)
    rejects: dict[int, tuple[str, str]] = field(default_factory=dict)
    lines: list[int] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)
    problem: str = ""


def round_of(seed: int, tally: Tally) -> None:
    """Read the file of a seed and compare."""
    file = landed(seed)
    what = " ".join(file.made_of)
    try:
        faults = _faults(file, seed)
    except (LakehouseError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        faults = [f"{type(error).__name__}: {error}"]
    except AssertionError as error:
        faults = [f"AssertionError: {error}"]
    tally.outcomes[what, "differs" if faults else "as it says"] += 1
    tally.faults += [f"seed {seed}, {what}, {file.path}: {one}" for one in faults[:3]]


def told_by(file: Landed, parts: list[object] | None = None) -> Told:
    """Both passes over a file, as workers go."""
    source = file.source
    clock = LandingReader("/landing", source, TODAY, {}).clock()
    found, index = Told(), FileIndex()
    stream = pa.BufferReader(file.data)
    try:
        for part in parts or [None]:
            for chunk in read_chunks(stream, file.path, source, part):  # type: ignore[arg-type]
                _add(found, index.add(chunk, source, clock))
    except UnreadableContentError as error:
        found.problem = error.reason
    undeclared = source if source.rescue else replace(source, drift="evolve")
    known = (*source.columns, *file.present)
    changes = drift.resolve(undeclared, known, index.kinds)
    wider = {column.name: column for column in changes.promoted}
    columns = [*(wider.get(one.name, one) for one in known), *changes.added]
    found.columns = {one.name: one.type for one in columns}
    typer, days, lines = RowTyper(source, columns, clock), list(index.lines), Counter[date]()
    try:
        for part in parts or [None]:
            for chunk in read_chunks(stream, file.path, source, part):  # type: ignore[arg-type]
                if chunk.records is None:
                    continue
                rejects = Rejects()
                batch = typer.rows(chunk.records, file.path, days, lines, rejects)
                _add(found, rejects)
                for at in range(0 if batch is None else batch.num_rows):
                    row = {n: batch[n][at].as_py() for n in batch.schema.names}
                    found.rows[row[LANDING_LINE]] = row  # type: ignore[index]
                    found.lines.append(row[LANDING_LINE])  # type: ignore[arg-type]
    except UnreadableContentError:
        pass  # the first pass told it
    assert lines == index.lines, "the passes count otherwise"
    return found


def _add(found: Told, rejects: Rejects) -> None:
    for line, reason, detail in zip(rejects.lines, rejects.reasons, rejects.details, strict=True):
        assert line is not None
        found.rejects[line] = (reason, detail)
        found.lines.append(line)


def _faults(file: Landed, seed: int) -> list[str]:
    told = told_by(file)
    faults = [f"line {n} is told {c} times" for n, c in Counter(told.lines).items() if c > 1]
    if bool(told.problem) != bool(file.problem) and (file.records or file.problem):
        faults.append(f"its problem is {told.problem!r}, not {file.problem!r}")
    if file.problem not in ("", "damaged") and told.problem != file.problem:
        faults.append(f"its problem is {told.problem!r}, not {file.problem!r}")
    missing = file.records.keys() - set(told.lines)
    if missing:
        faults.append(f"lines {sorted(missing)[:5]} are lost of {len(file.records)}")
    extra = set(told.lines) - file.records.keys()
    if extra and file.whole:
        faults.append(f"lines {sorted(extra)[:5]} are not in the file")
    conflicts: Counter[str] = Counter()
    for line, record in file.records.items():
        faults += _of_record(file, told, line, record, conflicts)
    faults += _inferred(file, told, conflicts)
    if file.problem == "" and "parquet" not in file.path and not faults:
        faults += _by_parts(file, told, random.Random(seed))
    return faults


def _of_record(
    file: Landed, told: Told, line: int, record: dict[str, object] | None, conflicts: Counter[str]
) -> list[str]:
    row, reject = told.rows.get(line), told.rejects.get(line)
    if record is None:
        return [] if row is None else [f"line {line} is no record, and a row: {row}"]
    expected, verdict = _expected(file, told.columns, record)
    if row is not None and file.source.rescue is not None:
        row = _with_rest(row, file.source.rescue, expected)
    if row is None:
        if reject and reject[0] == "type conflict":
            conflicts[reject[1].partition(": ")[0]] += 1
        if verdict == ROW:
            return [f"line {line} is no row: {reject}; it says {record}"]
        return []
    if verdict == NO:
        return [f"line {line} is a row: {row}; it says {record}, {expected}"]
    return [
        f"line {line}: {name} is {row[name]!r}, not {value!r}; it says {record.get(name)!r}"
        for name, value in expected.items()
        if not _same(row[name], value)
    ]


def _inferred(file: Landed, told: Told, conflicts: Counter[str]) -> list[str]:
    """A type that was inferred takes most of the values that are there, and changes no code."""
    known = {column.name for column in (*file.source.columns, *file.present)}
    records = [one for one in file.records.values() if one is not None]
    faults = []
    for name, kind in told.columns.items():
        values = [one[name] for one in records if one.get(name) is not None]
        if name in known:
            continue
        large = sum(map(_is_large, values)) if kind == "double" else 0
        many = file.path != "a.parquet" and conflicts[name] * 3 > 2 * len(values)
        if many or large * 2 > len(values):
            faults.append(f"{name} was taken for {kind}, and {conflicts[name]} conflict")
        if name == file.source.bucket and kind in UNBUCKETED_TYPES:
            faults.append(f"the bucket column {name} was taken for {kind}")
        dated = [one.get(name) for one in records if _instant(file, one.get("ts"))[1] == ROW]
        read = file.source.read
        usual = [_usual(str(one), "double", read) for one in dated if one] if file.untyped else []
        if kind != "string" and any(_CODE.fullmatch(one or "") for one in usual):
            faults.append(f"{name} has codes, and was taken for {kind}")
    return faults


def _is_large(value: object) -> bool:
    """A whole number that no double holds."""
    text = value.text if isinstance(value, Number) else ""
    return bool(re.fullmatch(r"-?[0-9]+", text)) and abs(int(text)) > 2**53


def _by_parts(file: Landed, told: Told, chance: random.Random) -> list[str]:
    """A file that is cut says what it says as a whole."""
    size, stream = len(file.data), pa.BufferReader(file.data)
    cuts = sorted({0, *(chance.randrange(1, max(2, size)) for _ in range(3)), size})
    spans = [range(*span) for span in pairwise(cuts)]
    parts = parts_of([look_at(stream, file.path, file.source, span) for span in spans], size)
    if not parts:
        return []
    cut = told_by(file, list(parts))
    # of two kinds that are equally common the one seen first is the column's type
    if cut.columns == told.columns and _shown(cut) != _shown(told):
        return [f"in parts it says otherwise: {sorted(cut.lines)} and {sorted(told.lines)}"]
    return []


def _shown(told: Told) -> str:
    return repr((sorted(told.rows.items()), sorted(told.rejects.items())))


# What a record has to become


def _expected(
    file: Landed, columns: Mapping[str, str], record: dict[str, object]
) -> tuple[dict[str, object], str]:
    """The row, and whether there is one."""
    declared = {column.name for column in file.source.columns}
    row: dict[str, object] = {}
    row[EVENT_TS], verdict = _instant(file, record.get("ts"))
    verdicts = {verdict}
    rescue, rest = file.source.rescue, dict[str, object]()
    for name, value in record.items():
        if value is not None and name not in columns:
            rest[name] = value
            verdicts.add(ROW if rescue else NO)
    for name, column_type in columns.items():
        given = record.get(name)
        value, verdict = _value(file, given, column_type, guessed=name not in declared)
        if rescue and name not in file.source.natural_key and given is not None:
            if verdict == NO:
                value, verdict, rest[name] = None, ROW, given
            elif verdict == ANY:
                value, verdict = _Either(value, given), ROW
        row[name] = value
        verdicts.add(verdict)
        if name in file.source.natural_key and given is None:
            verdicts.add(NO)
    if rescue:
        row[rescue] = _Rest(rest)
    # a number that is infinite as a double spoils its record for some parsers
    if any(isinstance(one, Number) and math.isinf(float(one.text)) for one in record.values()):
        verdicts.add(ANY)
    return row, NO if NO in verdicts else ANY if ANY in verdicts else ROW


def _instant(file: Landed, value: object) -> tuple[object, str]:
    source = file.source
    unit, zone = source.event_time.unit, ZoneInfo(source.event_time.zone)
    verdict = ROW
    if isinstance(value, tuple):
        value, verdict = _from_nanoseconds(value, cut=True)
    if isinstance(value, str) and source.event_time.format is not None:
        value = _by_format(value, source.event_time.format)
    text = value.text if isinstance(value, Number) else value
    if unit != "iso" and isinstance(text, str) and _LOOSE.fullmatch(text):
        micros = Decimal(text) * {"s": 10**6, "ms": 10**3, "us": 1}[unit]
        if abs(micros) > 10**17:
            return None, NO
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(micros))
        verdict = ROW if _PLAIN.fullmatch(text) else ANY
    elif isinstance(value, datetime):
        moment = value
    elif isinstance(value, str) and len(value) >= len("2026-06-02T10"):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None, NO
        verdict = ROW if _ISO.fullmatch(value) else ANY
    else:
        return None, NO
    if moment.tzinfo is None:
        local = moment.replace(tzinfo=zone)
        if local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != moment:
            return None, NO
        moment = local
    moment = moment.astimezone(UTC)
    if not source.first_day <= moment.date() <= TODAY + timedelta(days=1):
        return None, NO
    return moment, verdict


def _from_nanoseconds(value: tuple[object, ...], *, cut: bool) -> tuple[object, str]:
    moment, aware = value
    whole = moment.astype("datetime64[us]")  # type: ignore[attr-defined]
    if whole != moment and not cut:
        return None, NO
    return whole.astype(datetime).replace(tzinfo=UTC if aware else None), ROW


def _value(file: Landed, value: object, column_type: str, *, guessed: bool) -> tuple[object, str]:
    """What a column of this type has to hold; whether the record can be a row."""
    if isinstance(value, str):
        value = _usual(value, column_type, file.source.read)
        if value is None:
            return None, NO
    return _of_usual(file, value, column_type, guessed=guessed)


def _of_usual(
    file: Landed, value: object, column_type: str, *, guessed: bool
) -> tuple[object, str]:
    if value is None:
        return None, ROW
    if isinstance(value, tuple):  # nanoseconds
        value, verdict = _from_nanoseconds(value, cut=file.source.nanoseconds == "cut")
        if verdict == NO:
            return None, NO
    if isinstance(value, np.timedelta64):  # a time of day
        micros = value.astype("timedelta64[us]")
        if micros != value and file.source.nanoseconds != "cut":
            return None, NO
        value = (datetime(1970, 1, 1, tzinfo=UTC) + micros.astype(timedelta)).time()
    decimal = _DECIMAL.fullmatch(column_type)
    if file.untyped:
        return _of_text(str(value), column_type, guessed=guessed)
    if decimal:
        return _of_decimal(value, int(decimal[1]), int(decimal[2]))
    match column_type:
        case "boolean":
            return (value, ROW) if isinstance(value, bool) else (None, NO)
        case "int" | "long":
            return _of_integer(value, column_type)
        case "double" | "float":
            return _of_double(value, column_type)
        case "string":
            return (value, ROW) if isinstance(value, str) else (None, NO)
        case "binary":
            return (value, ROW) if isinstance(value, bytes) else (None, NO)
        case "json":
            return _of_json(value)
    return _of_time(value, column_type)


def _usual(text: str, column_type: str, read: ReadOptions) -> str | None:
    """A text that stands for a value as it is spelled by default; None: options take it not."""
    if column_type == "date" and read.date_format is not None:
        found = _by_format(text, read.date_format)
        return None if found is None else found.partition("T")[0]
    if column_type == "timestamp" and read.timestamp_format is not None:
        return _by_format(text, read.timestamp_format)
    numeric = column_type in ("int", "long", "float", "double") or _DECIMAL.fullmatch(column_type)
    if not numeric or (read.decimal_separator, read.thousands) == (".", None):
        return text
    mantissa, exponent, power = text.partition("e" if "e" in text else "E")
    whole, point, fraction = mantissa.partition(read.decimal_separator)
    if read.thousands is not None and read.thousands in whole:
        first, *groups = whole.lstrip("+-").split(read.thousands)
        if not 1 <= len(first) <= 3 or any(len(group) != 3 for group in groups):
            return None
        whole = whole.replace(read.thousands, "")
    plain = f"{whole}{'.' if point else ''}{fraction}{exponent}{power}"
    digits = whole.lstrip("+-") + fraction
    odd = not re.fullmatch("[0-9]*", digits) or "." in fraction
    return None if odd or not _LOOSE.fullmatch(plain) else plain


def _by_format(text: str, form: str) -> str | None:
    """ISO 8601 text of a time by a pattern; None where there is none."""
    fitting, spelled = (DATES | TIMES)[form]
    if not re.fullmatch(fitting, text, re.ASCII):
        return None
    try:
        return datetime.strptime(text, spelled).isoformat()  # noqa: DTZ007
    except ValueError:
        return None


def _of_integer(value: object, column_type: str) -> tuple[object, str]:
    most = 2**31 if column_type == "int" else 2**63
    if isinstance(value, Number):
        if not re.fullmatch(r"-?\d+", value.text):
            return None, NO
        value = int(value.text)
    if isinstance(value, bool) or not isinstance(value, int):
        return None, NO
    return (value, ROW) if -most <= value < most else (None, NO)


def _of_double(value: object, column_type: str) -> tuple[object, str]:
    if isinstance(value, Number):
        whole = re.fullmatch(r"-?[0-9]+", value.text)
        value = int(value.text) if whole else float(value.text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, NO
    verdict = ROW
    if column_type == "double" and isinstance(value, int) and abs(value) > 2**53:
        if abs(value) > 2**1000 or int(float(value)) != value:
            return None, NO
        verdict = ANY
    if isinstance(value, int) and abs(value) > 2**127:
        return None, NO
    number = float(value)
    if column_type == "float":
        with np.errstate(over="ignore"):
            single = float(np.float32(number))
        if math.isinf(single) and not math.isinf(number):
            return None, NO
        if isinstance(value, int):
            exact = int(single) == value
            return (single, ROW if abs(value) <= 2**24 else ANY) if exact else (None, NO)
        return single, verdict
    return number, verdict


def _of_decimal(value: object, precision: int, scale: int) -> tuple[object, str]:
    text = value.text if isinstance(value, Number) else value
    if isinstance(text, bool) or not isinstance(text, str | int | float | Decimal):
        return None, NO
    verdict = ROW
    if isinstance(text, str):
        if not _LOOSE.fullmatch(text):
            return None, NO
        verdict = ROW if _PLAIN.fullmatch(text) else ANY
    number = Decimal(str(text))
    if not number.is_finite():
        return None, NO
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if number and (exponent < -400 or exponent > 400):
        return None, NO
    scaled = Decimal((sign, digits, 0)).as_integer_ratio()[0] * 10 ** max(0, exponent + scale)
    rest = max(0, -(exponent + scale))
    if scaled % 10**rest or abs(scaled // 10**rest if scaled >= 0 else -scaled // 10**rest) >= (
        10**precision
    ):
        return None, NO
    # zeros beyond the scale
    return number, ANY if rest else verdict


def _of_json(value: object) -> tuple[object, str]:
    if isinstance(value, float) and not math.isfinite(value):
        return None, NO
    if isinstance(value, bytes):
        return _Json(base64.b64encode(value).decode()), ANY
    if isinstance(value, date | time | Decimal):
        return _Json(value), ANY
    return _Json(value), ROW


def _of_time(value: object, column_type: str) -> tuple[object, str]:
    if isinstance(value, Number | bool | int | float | list | dict | bytes | Decimal):
        return None, NO
    verdict = ROW
    if isinstance(value, str):
        if _FINER.search(value):
            return None, NO
        make = {"date": date, "time": time}.get(column_type, datetime)
        try:
            moment = make.fromisoformat(value)
        except ValueError:
            return None, NO
        usual = (
            _ISO.fullmatch(value)
            or (column_type == "date" and re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII))
            or (column_type == "time" and re.fullmatch(r"\d\d:\d\d:\d\d", value, re.ASCII))
        )
        verdict, value = ROW if usual else ANY, moment
    if column_type == "date":
        fits = isinstance(value, date) and not isinstance(value, datetime)
    elif column_type == "time":
        fits = isinstance(value, time) and value.tzinfo is None
    else:
        aware = isinstance(value, datetime) and value.tzinfo is not None
        fits = isinstance(value, datetime) and aware == (column_type == "timestamptz")
    return (value, verdict) if fits else (None, NO)


def _of_text(text: str, column_type: str, *, guessed: bool) -> tuple[object, str]:
    """A field of CSV."""
    if column_type in ("string", "json"):
        return _Json(text) if column_type == "json" else text, ROW
    if column_type == "boolean":
        return {"true": True, "false": False}.get(text.lower()), (
            ROW if text.lower() in ("true", "false") else NO
        )
    if column_type in ("int", "long", "float", "double"):
        if guessed and _CODE.fullmatch(text):
            return None, NO
        if not _LOOSE.fullmatch(text):
            return None, NO
        if re.fullmatch(r"[+-]?[0-9]+", text):
            value, verdict = _value_of_number(str(int(text)), column_type)
        elif column_type in ("int", "long") or math.isinf(float(text)):
            return None, NO
        else:
            value, verdict = _value_of_number(text, column_type)
        return value, verdict if _PLAIN.fullmatch(text) or verdict == NO else ANY
    decimal = _DECIMAL.fullmatch(column_type)
    if decimal:
        return _of_decimal(text, int(decimal[1]), int(decimal[2]))
    return _of_time(text, column_type)


def _value_of_number(text: str, column_type: str) -> tuple[object, str]:
    kind = _of_integer if column_type in ("int", "long") else _of_double
    return kind(Number(text), column_type)


@dataclass(frozen=True)
class _Json:
    """A value that is kept as JSON."""

    value: object


@dataclass(frozen=True)
class _Either:
    """A value that its column takes, or that is kept as it is given."""

    value: object
    given: object


@dataclass(frozen=True)
class _Rest:
    """Fields that are kept as JSON."""

    fields: dict[str, object]


def _with_rest(
    row: dict[str, object], rescue: str, expected: dict[str, object]
) -> dict[str, object]:
    """The row; `expected` takes what it decided where it may."""
    text = row[rescue]
    kept = {} if text is None else json.loads(str(text), parse_float=Number, parse_int=Number)
    wanted = expected[rescue]
    assert isinstance(wanted, _Rest)
    for name, value in list(expected.items()):
        if isinstance(value, _Either):
            expected[name] = None if name in kept else value.value
            if name in kept:
                wanted.fields[name] = value.given
    return {**row, rescue: kept}


def _same(found: object, wanted: object) -> bool:
    if isinstance(wanted, _Rest):
        return (
            isinstance(found, dict)
            and found.keys() == wanted.fields.keys()
            and all(_same_kept(found[name], one) for name, one in wanted.fields.items())
        )
    if isinstance(wanted, _Json):
        if not isinstance(found, str):
            return False
        parsed = json.loads(found, parse_float=Number, parse_int=Number)
        return _same_json(parsed, wanted.value)
    if isinstance(wanted, float) and isinstance(found, float):
        return found == wanted or (math.isnan(found) and math.isnan(wanted))
    if isinstance(wanted, Decimal) and isinstance(found, Decimal):
        return found == wanted
    return type(found) is type(wanted) and found == wanted


def _same_kept(found: object, wanted: object) -> bool:
    if isinstance(wanted, float) and not math.isfinite(wanted):
        return found == {"inf": "Infinity", "-inf": "-Infinity"}.get(str(wanted), "NaN")
    if isinstance(wanted, bytes):
        return found == base64.b64encode(wanted).decode()
    if isinstance(wanted, tuple | np.timedelta64):  # nanoseconds
        return isinstance(found, str)
    return _same_json(found, wanted)


def _same_json(found: object, wanted: object) -> bool:
    if isinstance(found, Number):
        if isinstance(wanted, bool):
            return False
        if isinstance(wanted, Number):
            return Decimal(found.text) == Decimal(wanted.text)
        return isinstance(wanted, int | float | Decimal) and Decimal(found.text) == Decimal(
            str(wanted)
        )
    if isinstance(wanted, dict) and isinstance(found, dict):
        return found.keys() == wanted.keys() and all(
            _same_json(found[name], wanted[name]) for name in wanted
        )
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(_same_json, found, wanted))
    if isinstance(wanted, date | time):
        return found == wanted.isoformat()
    return type(found) is type(wanted) and found == wanted
