"""Thrift's compact protocol, in which Parquet's footers and page indexes are: read and edited."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_DEEPEST = 32
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET = range(1, 11)
STRUCT = 12
STOP = b"\x00"


def read_struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """A struct of Thrift's compact protocol as its fields by number, and where it ends.

    Raises:
        IndexError, KeyError, TypeError, ValueError, struct.error: it is not one; callers add the
            file.
    """
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    result: dict[int, Any] = {}
    field_id = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return result, at
        kind, delta = head & 0x0F, head >> 4
        if delta:
            field_id += delta
        else:
            field_id, at = _number(data, at)
        result[field_id], at = _read_value(data, at, kind, depth)


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (I16, I32, I64):
        return _number(data, at)
    if kind == BINARY:
        length, at = _varint(data, at)
        if at + length > len(data):
            raise ValueError("a text is longer than the footer")
        return data[at : at + length], at + length
    if kind == STRUCT:
        return read_struct(data, at, depth + 1)
    if kind in (LIST, SET):
        return _read_list(data, at, depth + 1)
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind == BYTE:
        return data[at], at + 1
    if kind == DOUBLE:
        return struct.unpack_from("<d", data, at)[0], at + 8
    raise ValueError(f"unknown type {kind}")


def _read_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    head = data[at]
    count, kind, at = head >> 4, head & 0x0F, at + 1
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data) - at:
        raise ValueError("a list is longer than the footer")
    items = []
    for _ in range(count):
        if kind in (TRUE, FALSE):
            item, at = data[at] == TRUE, at + 1
        else:
            item, at = _read_value(data, at, kind, depth)
        items.append(item)
    return items, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    result, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at + 1
        shift += 7
        if shift > 70:
            raise ValueError("a number is too long")


def _number(data: bytes, at: int) -> tuple[int, int]:
    raw, at = _varint(data, at)
    return (raw >> 1) ^ -(raw & 1), at


class Field(NamedTuple):
    """Where a field of a struct lies in its bytes: its number, its kind, its value."""

    number: int
    kind: int
    start: int
    end: int


def fields(data: bytes, at: int = 0) -> Iterator[Field]:
    r"""The fields of the struct that begins there; errors are those of `read_struct`.

    >>> [field.number for field in fields(b"\x15\x02\x26\x04\x00")]
    [1, 3]
    """
    number = 0
    while head := data[at]:
        at += 1
        kind, delta = head & 0x0F, head >> 4
        if delta:
            number += delta
        else:
            number, at = _number(data, at)
        start = at
        _, at = _read_value(data, at, kind, 0)
        yield Field(number, kind, start, at)


def structs(data: bytes, at: int) -> Iterator[int]:
    """Where each struct of the list that begins there begins."""
    count, at = data[at] >> 4, at + 1
    if count == 15:
        count, at = _varint(data, at)
    for _ in range(count):
        yield at
        _, at = read_struct(data, at)


def number_at(data: bytes, at: int) -> int:
    r"""The number that stands there.

    >>> number_at(b"\x03", 0)
    -2
    """
    return _number(data, at)[0]


def write_varint(number: int) -> bytes:
    """A number that is not negative, seven bits a byte.

    >>> write_varint(300).hex()
    'ac02'
    """
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def write_number(number: int) -> bytes:
    """A number as fields and lists hold it.

    >>> write_number(-2).hex()
    '03'
    """
    return write_varint(number << 1 if number >= 0 else ~(number << 1))


def write_list(items: Sequence[bytes]) -> bytes:
    """A list of serialized structs."""
    count = len(items)
    head = (
        bytes([count << 4 | STRUCT]) if count < 15 else bytes([0xF0 | STRUCT]) + write_varint(count)
    )
    return head + b"".join(items)


def write_fields(values: Mapping[int, tuple[int, bytes]]) -> bytes:
    """Fields of a struct, (kind, serialized value) by number; a struct's value ends with `STOP`."""
    parts, before = [], 0
    for number, (kind, value) in sorted(values.items()):
        delta = number - before
        parts.append(
            bytes([delta << 4 | kind]) if delta <= 15 else bytes([kind]) + write_number(number)
        )
        parts.append(value)
        before = number
    return b"".join(parts)


def edited(
    data: bytes,
    at: int,
    edits: Mapping[int, Callable[[bytes, int], bytes]],
    more: Mapping[int, tuple[int, bytes]] | None = None,
) -> bytes:
    """The struct that begins there with other values.

    Args:
        data: in which it lies.
        at: where it begins.
        edits: the new value of a field by its number, from the bytes and where the value begins.
        more: fields in place of those that it has, or beside them.
    """
    values = {
        field.number: (
            field.kind,
            edits[field.number](data, field.start)
            if field.number in edits
            else data[field.start : field.end],
        )
        for field in fields(data, at)
    }
    return write_fields(values | dict(more or {})) + STOP
