"""Lines of JSON that are read as columns, by Arrow, and those that are not.

Such a line is an object without objects and arrays in it, and each of its fields has a value of the
kind that the field has in the first line, or null. A pattern says which lines are; Arrow makes of
them what `exact_json` makes of each, in a third of its time. What is left is looked at again, since
its fields may be of other kinds (`1` among `0.5`), as long as that takes much of it.

Each round takes the kinds that come first among the lines that are left, so that kinds of a field
are met in the order of the lines: where as many values are of one kind as of another, the first
decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from lakehouse.ingestion.reading.formats.json_text import LongFraction, exact_json, inexact_lines
from lakehouse.ingestion.reading.formats.line_blocks import LineBlock
from lakehouse.ingestion.reading.formats.record_chunks import ColumnRecords, Values

FIRST_LINES, _FEW_LINES, _MOST_FIELDS = 64, 256, 100
# matching a larger pattern costs more than it gains
_LONGEST_NAMES = 1_500
# a round that takes less of the lines than the first of so many is not worth it
_ROUNDS = 8
_BLANKS = r"[ \t\r]*"
# Arrow refuses what is no JSON, lone surrogates, and numbers that the type has not
_VALUES: Mapping[pa.DataType, str] = {
    pa.null(): "null",
    pa.bool_(): "true|false|null",
    pa.int64(): "0|-?[1-9][0-9]*|null",
    pa.float64(): r"-?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]{1,2})?|[eE][+-]?[0-9]{1,2})|null",
    pa.string(): r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrtu])*"|null',
}
_TYPES: Mapping[type, pa.DataType] = {
    bool: pa.bool_(), int: pa.int64(), float: pa.float64(), LongFraction: pa.float64(),
    str: pa.string(),
}  # fmt: skip
# more digits than the 15 that a double keeps, and their point
_MAY_BE_LONG = "[0-9.]{17}|[0-9]{16}[eE]"


class PlainRecords(ColumnRecords):
    """Objects that Arrow has read; their texts have line ends."""

    def fields(self) -> Mapping[str, Values]:
        """Every field that a record has."""
        return {
            name: values
            for name, values in self._columns.items()
            if values.null_count < len(values) or _matches(self._texts, _key(name)).any()
        }

    def strangers(self, known: frozenset[str]) -> Mapping[int, str]:
        return {
            position: next(
                name
                for name, value in orjson.loads(self.text(position)).items()
                if value is not None and name not in known
            )
            for position in super().strangers(known)
        }

    def text(self, position: int) -> bytes:
        """The line of a record."""
        return super().text(position).removesuffix(b"\n")


def plain_lines(block: LineBlock, start: int = 0) -> tuple[list[PlainRecords], Sequence[int]]:
    """The plain lines of a block from a position on, by round; the positions of the others."""
    lines = _lines(block.text)
    left = np.arange(len(lines))
    unusable = {at for at in block.lengths if at >= start}
    if block.cut and len(lines) > start:
        unusable.add(len(lines) - 1)
    if unusable or start:
        out = np.isin(left, [*unusable])
        out[:start] = True
        lines, left = lines.filter(pa.array(~out)), left[~out]
    taken: list[PlainRecords] = []
    while len(lines) and (not taken or len(lines) > _FEW_LINES):
        schema = _schema(lines)
        plain = None if schema is None else _are_plain(lines, schema)
        if schema is None or plain is None or plain.sum() * _ROUNDS < len(lines):
            break
        texts = lines if plain.all() else lines.filter(pa.array(plain))
        columns = _columns(texts, schema)
        if columns is None:
            break
        numbers = (left[plain] + block.first).tolist()
        taken.append(PlainRecords(numbers, columns, texts))
        lines, left = lines.filter(pa.array(~plain)), left[~plain]
    return taken, sorted([*left.tolist(), *unusable])


def _lines(text: bytes) -> pa.BinaryArray:
    """The lines of a text, with their line ends."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends, [len(text)]]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _schema(lines: pa.BinaryArray) -> pa.Schema | None:
    """The fields of the first lines, of the kinds that come first; None where most are nested.

    A field whose first value is of no such kind has but nulls in plain lines.
    """
    types: dict[str, pa.DataType | None] = {}
    nested, first = 0, lines[:FIRST_LINES].to_pylist()
    for line in first:
        try:
            record = exact_json(line)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        nested += any(isinstance(value, dict | list) for value in record.values())
        for name, value in record.items():
            if value is None:
                types.setdefault(name)
            elif types.get(name) is None:
                is_huge = type(value) is int and value.bit_length() > 63
                types[name] = pa.null() if is_huge else _TYPES.get(type(value), pa.null())
    is_large = len(types) > _MOST_FIELDS or sum(map(len, types)) > _LONGEST_NAMES
    if not types or is_large or 2 * nested > len(first):
        return None
    return pa.schema([(name, type_ or pa.null()) for name, type_ in types.items()])


def _are_plain(lines: pa.BinaryArray, schema: pa.Schema) -> npt.NDArray[np.bool_]:
    plain = _matches(lines, _pattern(schema))
    if pa.float64() in schema.types:
        long = np.flatnonzero(plain & _matches(lines, _MAY_BE_LONG))
        plain[long[inexact_lines(lines.take(pa.array(long)).to_pylist())]] = False
    return plain


def _matches(lines: pa.BinaryArray, pattern: str) -> npt.NDArray[np.bool_]:
    matching = pc.match_substring_regex(lines, pattern)
    return np.array(matching.to_numpy(zero_copy_only=False), np.bool_)


@lru_cache(maxsize=8)
def _pattern(schema: pa.Schema) -> str:
    fields = "|".join(f"{_key(field.name)}{_BLANKS}(?:{_VALUES[field.type]})" for field in schema)
    field = f"(?:{fields}){_BLANKS}"
    return rf"^{_BLANKS}\{{{_BLANKS}(?:{field},{_BLANKS})*{field}\}}{_BLANKS}\n?$"


def _key(name: str) -> str:
    return f'"{re.escape(name)}"{_BLANKS}:'


def _columns(lines: pa.BinaryArray, schema: pa.Schema) -> dict[str, pa.Array] | None:
    """The fields of lines; None where Arrow refuses one of them, such as one with a field twice."""
    _, offsets, text = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)
    start, end = int(ends[lines.offset]), int(ends[lines.offset + len(lines)])
    try:
        lines.cast(pa.string())  # refuses what is not UTF-8
        table = pa_json.read_json(
            pa.BufferReader(text.slice(start, end - start)),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=end - start + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="error"
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.num_rows != len(lines):
        return None
    return {name: table.column(name).combine_chunks() for name in schema.names}
