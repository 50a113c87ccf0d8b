"""Values of the type `variant` as bytes and as Python's (Parquet's Variant Binary Encoding).

A value is two byte strings: metadata, which holds the names of all fields of objects once, and the
value, which refers to them by number.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any
from uuid import UUID

from lakehouse.errors import CorruptMetadataError, InvalidInputError

_PRIMITIVE, _SHORT_STRING, _OBJECT, _ARRAY = range(4)
(NULL_TYPE, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE, _DECIMAL4, _DECIMAL8, _DECIMAL16,
 DATE, TIMESTAMPTZ, TIMESTAMP, FLOAT, BINARY, STRING, TIME, TIMESTAMPTZ_NS, TIMESTAMP_NS,
 UUID_TYPE) = range(21)  # fmt: skip
OBJECT, ARRAY = -1, -2
"""Beside the numbers of primitive types, see `type_of`."""
DECIMALS = (_DECIMAL4, _DECIMAL8, _DECIMAL16)
DECIMAL_DIGITS = {_DECIMAL4: 9, _DECIMAL8: 18, _DECIMAL16: 38}
_FORMATS = {
    INT8: "<b", INT16: "<h", INT32: "<i", INT64: "<q", DOUBLE: "<d", DATE: "<i",
    TIMESTAMPTZ: "<q", TIMESTAMP: "<q", FLOAT: "<f", TIME: "<q", TIMESTAMPTZ_NS: "<q",
    TIMESTAMP_NS: "<q",
}  # fmt: skip
_DECIMAL_BYTES = {_DECIMAL4: 4, _DECIMAL8: 8, _DECIMAL16: 16}
_VERSION, _MOST_SHORT, _DIGITS = 1, 63, 38
_DEEPEST = 254
"""So deep that decoding ends within Python's stack, wherever its caller stands."""
_LARGE = 256
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - wall-clock time
_EPOCH_DAY = dt.date(1970, 1, 1)
NULL = b"\x00"
"""The value that is a variant's own null, which is not the absence of a variant."""


class Names:
    """The names of a variant's metadata, to which new ones may be added.

    Args:
        metadata: the bytes; none: no names.

    Raises:
        CorruptMetadataError: bytes that are no metadata of version 1.
    """

    def __init__(self, metadata: bytes | None = None) -> None:
        self._given = metadata
        self.names = [] if metadata is None else list(_names(metadata))
        self._ids: dict[str, int] | None = None

    def id_of(self, name: str) -> int:
        """The number of a name, which is added if it is new."""
        if self._ids is None:
            self._ids = {known: at for at, known in enumerate(self.names)}
        number = self._ids.get(name)
        if number is None:
            number = self._ids[name] = len(self.names)
            self.names.append(name)
            self._given = None
        return number

    def encoded(self) -> bytes:
        """The metadata; the bytes that were given if nothing was added."""
        if self._given is None:
            raw = [name.encode() for name in self.names]
            ends = [0]
            for item in raw:
                ends.append(ends[-1] + len(item))
            width = _width(max(ends[-1], len(raw)))
            head = bytes([_VERSION | (width - 1) << 6]) + len(raw).to_bytes(width, "little")
            self._given = head + _packed(ends, width) + b"".join(raw)
        return self._given


@lru_cache(maxsize=256)
def _names(metadata: bytes) -> tuple[str, ...]:
    if not metadata or metadata[0] & 0x0F != _VERSION:
        raise CorruptMetadataError("a variant's metadata is not of version 1")
    try:
        width = (metadata[0] >> 6) + 1
        count = _number(metadata, 1, width)
        ends = _numbers(metadata, 1 + width, width, count + 1)
        start = 1 + width * (count + 2)
        return tuple(
            _slice(metadata, start + first, start + last).decode() for first, last in pairwise(ends)
        )
    except (IndexError, ValueError) as error:
        raise CorruptMetadataError(f"a variant's metadata cannot be read: {error}") from error


def decode_variant(metadata: bytes, value: bytes) -> Any:
    """A variant as Python's value.

    Objects are dicts, arrays lists, numbers int, float or Decimal, times those of `datetime`
    (instants in UTC); times of nanoseconds are text with nine digits, an instant's with `Z`.

    Args:
        metadata: the names.
        value: the value.

    Raises:
        CorruptMetadataError: bytes that are no variant.

    Example:
        >>> lh.decode_variant(*lh.encode_variant({"a": [1, None, "x"]}))
        {'a': [1, None, 'x']}
    """
    try:
        return _decode(_names(metadata), value, 0, 0)
    except (IndexError, ValueError, OverflowError, struct.error) as error:
        raise CorruptMetadataError(f"a variant's value cannot be read: {error}") from error


def field_of_serialized(variant: bytes, name: str) -> Any:
    """What lies under a name in an object whose metadata and value lie behind each other.

    None where nothing does. Bounds of variants in manifests are such objects (spec: Bounds for
    Variant).

    Raises:
        CorruptMetadataError: bytes that are no variant.
    """
    try:
        width = (variant[0] >> 6) + 1
        count = _number(variant, 1, width)
        end = 1 + width * (count + 2) + _number(variant, 1 + width * (count + 1), width)
        names, value = _names(_slice(variant, 0, end)), variant[end:]
        places = _places(value, 0) if value[0] & 3 == _OBJECT else []
        at = {names[number]: start for number, start, _ in places}.get(name)
        return None if at is None else _decode(names, value, at, 1)
    except (IndexError, ValueError, OverflowError, struct.error) as error:
        raise CorruptMetadataError(f"a variant cannot be read: {error}") from error


def encode_variant(value: Any) -> tuple[bytes, bytes]:
    r"""Python's value as metadata and value of a variant.

    Args:
        value: None, bool, int, float, Decimal, str, bytes, date, time, datetime (naive or aware),
            UUID, or lists and mappings of these with names as keys.

    Raises:
        InvalidInputError: a value of another type, an integer beyond 64 bits, or a decimal of more
            than 38 digits.

    Example:
        >>> lh.encode_variant(True)
        (b'\x01\x00\x00', b'\x04')
    """
    names = Names()
    encoded = encode_with(value, names)
    return names.encoded(), encoded


def variant_json(metadata: bytes, value: bytes) -> str:
    """A variant as JSON: times as ISO 8601, bytes in base64, decimals as numbers.

    Raises CorruptMetadataError for bytes that are no variant.

    Example:
        >>> variant_json(*lh.encode_variant({"n": Decimal("1.50")}))
        '{"n": 1.50}'
    """
    return _as_json(decode_variant(metadata, value))


def _as_json(value: Any) -> str:
    if isinstance(value, dict):
        inside = (f"{json.dumps(name)}: {_as_json(item)}" for name, item in value.items())
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_as_json, value)) + "]"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, dt.date | dt.time | dt.datetime):
        return json.dumps(value.isoformat())
    return json.dumps(value, default=str)


def encode_with(value: Any, names: Names, depth: int = 0) -> bytes:
    """As `encode_variant`, with names that are already there; only the value. The same errors."""
    if depth > _DEEPEST:
        raise InvalidInputError("a value is nested too deeply for a variant")
    for kind, encode in _ENCODERS:
        if isinstance(value, kind):
            return encode(value)
    if isinstance(value, Mapping):
        return object_value(
            {str(key): encode_with(item, names, depth + 1) for key, item in value.items()}, names
        )
    if isinstance(value, Sequence):
        return array_value([encode_with(item, names, depth + 1) for item in value])
    raise InvalidInputError(f"a variant holds no {type(value).__name__}")


def object_value(fields: Mapping[str, bytes], names: Names) -> bytes:
    """An object of values that are already encoded with the same names."""
    order = sorted(fields, key=str.encode)
    ids = [names.id_of(name) for name in order]
    ends = [0]
    for name in order:
        ends.append(ends[-1] + len(fields[name]))
    id_width, width, large = _width(max(ids, default=0)), _width(ends[-1]), len(order) >= _LARGE
    head = _OBJECT | (width - 1) << 2 | (id_width - 1) << 4 | large << 6
    count = len(order).to_bytes(4 if large else 1, "little")
    values = b"".join(fields[name] for name in order)
    return bytes([head]) + count + _packed(ids, id_width) + _packed(ends, width) + values


def array_value(values: Sequence[bytes]) -> bytes:
    """An array of values that are already encoded."""
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    width, large = _width(ends[-1]), len(values) >= _LARGE
    head = bytes([_ARRAY | (width - 1) << 2 | large << 4])
    count = len(values).to_bytes(4 if large else 1, "little")
    return head + count + _packed(ends, width) + b"".join(values)


def fields_of_object(value: bytes, names: Names) -> dict[str, bytes]:
    """The fields of an object, as they are encoded.

    Raises CorruptMetadataError for a value that is none.
    """
    if not value or value[0] & 3 != _OBJECT:
        raise CorruptMetadataError("a variant's value is no object where it has to be one")
    try:
        return {names.names[at]: part for at, part in _parts(value, 0)}
    except (IndexError, ValueError) as error:
        raise CorruptMetadataError(f"a variant's value cannot be read: {error}") from error


def elements_of_array(value: bytes) -> list[bytes]:
    """The elements of an array, as they are encoded.

    Raises CorruptMetadataError for a value that is none.
    """
    if type_of(value) != ARRAY:
        raise CorruptMetadataError("a variant's value is no array where it has to be one")
    try:
        return [part for _, part in _parts(value, 0)]
    except (IndexError, ValueError) as error:
        raise CorruptMetadataError(f"a variant's value cannot be read: {error}") from error


def type_of(value: bytes) -> int:
    """The number of a value's primitive type, `OBJECT` or `ARRAY`.

    Raises CorruptMetadataError for no bytes.
    """
    if not value:
        raise CorruptMetadataError("a variant's value is empty")
    basic, header = value[0] & 3, value[0] >> 2
    return {_PRIMITIVE: header, _SHORT_STRING: STRING, _OBJECT: OBJECT, _ARRAY: ARRAY}[basic]


def primitive_of(value: bytes) -> Any:
    """A primitive value: as `decode_variant` has it, but times and dates as they are stored.

    Raises CorruptMetadataError for bytes that are none.
    """
    kind = type_of(value)
    try:
        if value[0] & 3 == _PRIMITIVE and kind in _FORMATS:
            return struct.unpack_from(_FORMATS[kind], value, 1)[0]
        return _decode((), value, 0, 0)
    except (IndexError, ValueError, struct.error) as error:
        raise CorruptMetadataError(f"a variant's value cannot be read: {error}") from error


def serialized_object(fields: Mapping[str, bytes]) -> bytes:
    """Metadata and value of an object, behind each other, of fields that are encoded primitives."""
    names = Names()
    value = object_value(fields, names)
    return names.encoded() + value


def decimal_value(kind: int, unscaled: int, scale: int) -> bytes:
    """A decimal of one of the `DECIMALS`."""
    raw = unscaled.to_bytes(_DECIMAL_BYTES[kind], "little", signed=True)
    return bytes([kind << 2, scale]) + raw


def unscaled_of(value: Decimal) -> int:
    """The digits of a decimal as a number, exact whatever the precision of the context."""
    number = int("".join(map(str, value.as_tuple().digits)))
    return -number if value.is_signed() else number


def ticks(kind: int, number: int | float) -> bytes:
    """A number of one of the types that are one number: dates, times and so on."""
    return bytes([kind << 2]) + struct.pack(_FORMATS[kind], number)


def _integer(value: int) -> bytes:
    for kind, bits in ((INT8, 7), (INT16, 15), (INT32, 31), (INT64, 63)):
        if -(1 << bits) <= value < 1 << bits:
            return ticks(kind, value)
    return _decimal(Decimal(value))


def _decimal(value: Decimal) -> bytes:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidInputError(f"a variant holds no decimal {value}")
    scale = max(0, -exponent)
    if len(digits) + max(0, exponent) > _DIGITS or scale > _DIGITS:
        raise InvalidInputError(f"a variant's decimals have at most {_DIGITS} digits, not {value}")
    unscaled = unscaled_of(value) * 10 ** max(0, exponent)
    for kind, most in DECIMAL_DIGITS.items():
        if abs(unscaled) < 10**most and scale <= most:
            return decimal_value(kind, unscaled, scale)
    raise InvalidInputError(f"a variant's decimals have at most {_DIGITS} digits, not {value}")


def _text(value: str) -> bytes:
    raw = value.encode()
    if len(raw) <= _MOST_SHORT:
        return bytes([_SHORT_STRING | len(raw) << 2]) + raw
    return bytes([STRING << 2]) + len(raw).to_bytes(4, "little") + raw


def _instant(value: dt.datetime) -> bytes:
    naive = value.tzinfo is None
    plain = value if naive else value.astimezone(dt.UTC).replace(tzinfo=None)
    micros = (plain - _EPOCH) // dt.timedelta(microseconds=1)
    return ticks(TIMESTAMP if naive else TIMESTAMPTZ, micros)


def _time(value: dt.time) -> bytes:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return ticks(TIME, seconds * 1_000_000 + value.microsecond)


_ENCODERS: Sequence[tuple[type, Callable[[Any], bytes]]] = (
    (type(None), lambda _: NULL),
    (bool, lambda value: bytes([(TRUE if value else FALSE) << 2])),
    (int, _integer),
    (float, lambda value: ticks(DOUBLE, value)),
    (str, _text),
    (Decimal, _decimal),
    (bytes, lambda value: bytes([BINARY << 2]) + len(value).to_bytes(4, "little") + value),
    (dt.datetime, _instant),
    (dt.date, lambda value: ticks(DATE, (value - _EPOCH_DAY).days)),
    (dt.time, _time),
    (UUID, lambda value: bytes([UUID_TYPE << 2]) + value.bytes),
)


def _decode(names: Sequence[str], value: bytes, at: int, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    basic, header = value[at] & 3, value[at] >> 2
    if basic == _SHORT_STRING:
        return _slice(value, at + 1, at + 1 + header).decode()
    if basic == _PRIMITIVE:
        return _primitive(value, at + 1, header)
    parts = _places(value, at)
    if basic == _ARRAY:
        return [_decode(names, value, place, depth + 1) for _, place, _ in parts]
    return {names[name]: _decode(names, value, place, depth + 1) for name, place, _ in parts}


def _primitive(value: bytes, at: int, kind: int) -> Any:
    if kind in (NULL_TYPE, TRUE, FALSE):
        return {NULL_TYPE: None, TRUE: True, FALSE: False}[kind]
    if kind in _DECIMAL_BYTES:
        raw = _slice(value, at + 1, at + 1 + _DECIMAL_BYTES[kind])
        unscaled = int.from_bytes(raw, "little", signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        return Decimal((int(unscaled < 0), digits, -value[at]))
    if kind in (BINARY, STRING):
        raw = _slice(value, at + 4, at + 4 + _number(value, at, 4))
        return raw if kind == BINARY else raw.decode()
    if kind == UUID_TYPE:
        return UUID(bytes=_slice(value, at, at + 16))
    if kind not in _FORMATS:
        raise ValueError(f"primitive type {kind} is not known")
    (number,) = struct.unpack_from(_FORMATS[kind], value, at)
    if kind == DATE:
        return _EPOCH_DAY + dt.timedelta(days=number)
    if kind == TIME:
        return (_EPOCH + dt.timedelta(microseconds=number)).time()
    if kind in (TIMESTAMP, TIMESTAMPTZ):
        moment = _EPOCH + dt.timedelta(microseconds=number)
        return moment if kind == TIMESTAMP else moment.replace(tzinfo=dt.UTC)
    if kind in (TIMESTAMP_NS, TIMESTAMPTZ_NS):
        whole = _EPOCH + dt.timedelta(seconds=number // 1_000_000_000)
        suffix = "" if kind == TIMESTAMP_NS else "Z"
        return f"{whole:%Y-%m-%d %H:%M:%S}.{number % 1_000_000_000:09}{suffix}"
    return number


def _parts(value: bytes, at: int) -> Iterable[tuple[int, bytes]]:
    """Name and bytes of each field of an object."""
    for name, start, end in _places(value, at):
        yield name, _slice(value, start, end)


def _places(value: bytes, at: int) -> list[tuple[int, int, int]]:
    """Name (or 0), start and end of each part of an object or array."""
    basic, header = value[at] & 3, value[at] >> 2
    width = (header & 3) + 1
    is_object = basic == _OBJECT
    large = header >> (4 if is_object else 2) & 1
    id_width = (header >> 2 & 3) + 1
    size = 4 if large else 1
    count = _number(value, at + 1, size)
    at += 1 + size
    if count > len(value):
        raise ValueError("it has more parts than bytes")
    ids = _numbers(value, at, id_width, count) if is_object else [0] * count
    at += id_width * count if is_object else 0
    starts = _numbers(value, at, width, count + 1)
    at += width * (count + 1)
    # parts of objects may lie in any order
    ordered = sorted(set(starts))
    following = dict(pairwise(ordered))
    return [
        (name, at + start, at + following.get(start, start))
        for name, start in zip(ids, starts, strict=False)
    ]


def _slice(raw: bytes, start: int, end: int) -> bytes:
    if end > len(raw) or start > end:
        raise ValueError("it ends too early")
    return raw[start:end]


def _number(raw: bytes, at: int, width: int) -> int:
    return int.from_bytes(_slice(raw, at, at + width), "little")


def _numbers(raw: bytes, at: int, width: int, count: int) -> list[int]:
    _slice(raw, at, at + width * count)
    return [_number(raw, start, width) for start in range(at, at + width * count, width)]


def _packed(numbers: Sequence[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def _width(most: int) -> int:
    return max(1, (most.bit_length() + 7) // 8)
