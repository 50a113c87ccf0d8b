"""Typed access to decoded JSON: a malformed file is a CorruptMetadataError that says where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakehouse.errors import CorruptMetadataError

_MIN_LONG = -(2**63)
_MAX_LONG = 2**63 - 1


def require_object(value: Any, where: str) -> Mapping[str, Any]:
    """`value` if it is a JSON object."""
    if not isinstance(value, dict):
        raise CorruptMetadataError(f"{where}: expected a JSON object, found {_kind(value)}.")
    return value


def require_list(value: Any, where: str) -> list[Any]:
    """`value` if it is a JSON list."""
    if not isinstance(value, list):
        raise CorruptMetadataError(f"{where}: expected a JSON list, found {_kind(value)}.")
    return value


def optional_list(document: Any, key: str, where: str) -> list[Any]:
    """The list under `key`, empty if absent or null."""
    value = require_object(document, where).get(key)
    return [] if value is None else require_list(value, f"{where}.{key}")


def as_int(value: Any, where: str) -> int:
    """`value` if it is a JSON integer that fits a long."""
    if isinstance(value, int) and not isinstance(value, bool) and _MIN_LONG <= value <= _MAX_LONG:
        return value
    raise CorruptMetadataError(f"{where}: expected a long, found {_kind(value)}.")


def require_int(document: Any, key: str, where: str) -> int:
    """The long under `key`."""
    return as_int(require_object(document, where).get(key), f"{where}.{key}")


def optional_int(document: Any, key: str, where: str) -> int | None:
    """The long under `key`, None if absent or null."""
    value = require_object(document, where).get(key)
    return None if value is None else as_int(value, f"{where}.{key}")


def require_str(document: Any, key: str, where: str) -> str:
    """The string under `key`."""
    value = require_object(document, where).get(key)
    if not isinstance(value, str):
        raise CorruptMetadataError(f"{where}.{key}: expected a string, found {_kind(value)}.")
    return value


def optional_str(document: Any, key: str, where: str) -> str | None:
    """The string under `key`, None if absent or null."""
    return (
        None
        if require_object(document, where).get(key) is None
        else require_str(document, key, where)
    )


def optional_bool(document: Any, key: str, where: str, default: bool) -> bool:
    """The boolean under `key`, `default` if absent or null."""
    value = require_object(document, where).get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise CorruptMetadataError(f"{where}.{key}: expected a boolean, found {_kind(value)}.")
    return value


def string_map(value: Any, where: str) -> dict[str, str]:
    """`value` as a string to string map; null is empty.

    Booleans and integers that older writers left are turned to text.
    """
    if value is None:
        return {}
    result: dict[str, str] = {}
    for key, item in require_object(value, where).items():
        if isinstance(item, str):
            result[key] = item
        elif isinstance(item, bool):
            result[key] = "true" if item else "false"
        elif isinstance(item, int):
            result[key] = str(item)
        else:
            raise CorruptMetadataError(f"{where}.{key}: expected a string, found {_kind(item)}.")
    return result


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return f"{type(value).__name__} {text[:60]}{'...' if len(text) > 60 else ''}"
