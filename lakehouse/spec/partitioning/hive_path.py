"""Partition values out of Hive-style paths: `dt=2026-06-09/region=eu/part-0.parquet`."""

from __future__ import annotations

from urllib.parse import unquote

from lakehouse.errors import InvalidInputError

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_texts(relative_path: str) -> dict[str, str | None]:
    """Column -> value of each `column=value` folder, URL-decoded; None for Hive's name of null.

    Raises:
        InvalidInputError: a column comes twice, or a folder below a partition folder is none.
    """
    found: dict[str, str | None] = {}
    *folders, _ = relative_path.split("/")
    for folder in folders:
        column, equals, value = folder.partition("=")
        if not equals or not column:
            raise InvalidInputError(
                f"{relative_path}: folder {folder!r} is not of the form column=value",
                file=relative_path,
            )
        name = unquote(column)
        if name in found:
            raise InvalidInputError(
                f"{relative_path}: column {name!r} occurs twice", file=relative_path
            )
        found[name] = None if value == HIVE_NULL else unquote(value)
    return found


def folder_texts(location: str) -> dict[str, str | None]:
    """Column -> value of the `column=value` folders that a file lies in, whatever lies between.

    Of two folders of one column the inner one counts.
    """
    pairs = (folder.partition("=") for folder in location.split("/")[:-1])
    return {
        unquote(column): None if value == HIVE_NULL else unquote(value)
        for column, equals, value in pairs
        if equals and column
    }


def is_hidden(relative_path: str) -> bool:
    """Whether Hive and Spark skip a file: part of its path begins with `.` or `_` (not `_x=1`)."""
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part)
        for part in relative_path.split("/")
    )
