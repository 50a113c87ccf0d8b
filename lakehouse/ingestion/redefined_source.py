"""What another definition of a source changes of what its tables hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import pyarrow as pa

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.definition_changes import (
    DefinitionChange,
    Effect,
    Layout,
    as_property,
    code_of,
    recorded,
    rename_command,
)
from lakehouse.ingestion.source import LANDING_FILE, Source
from lakehouse.table import Table

_READ_AGAIN = {
    "event_time.column": "events move to other days",
    "event_time.zone": "events without an offset move to other days",
    "event_time.unit": "events move to other days",
    "event_time.format": "events move to other days",
    "natural_key": "other records are the same event",
    "aliases of keys": "other fields tell when an event happened, or which one it is",
}
"""Parts that decide the day or the identity of every record."""
_FROM_NOW_ON = (
    "pattern",
    "format",
    "drift",
    "max_line_bytes",
    "max_rejects",
    "max_fields",
    "nanoseconds",
)
# parts that are recorded where they are used, and what they are where they are not
_OPTIONAL: Mapping[str, Any] = {
    "event_time.format": None,
    "read": {},
    "rescue": None,
    "transform": "",
    "aliases": {},
    "aliases of keys": {},
}
_HARMLESS = ("quarantined_percent_max", "max_rejected")


def source_definition(source: Source) -> dict[str, Any]:
    """What decides which records become which rows, as it is recorded with the ledger."""
    parts: dict[str, Any] = {
        "event_time.column": source.event_time.column,
        "event_time.zone": source.event_time.zone,
        "event_time.unit": source.event_time.unit,
        "natural_key": list(source.natural_key),
        "first_day": str(source.first_day),
        "last_day": None if source.last_day is None else str(source.last_day),
        "columns": {column.name: column.type for column in source.columns},
    }
    parts |= {name: getattr(source, name) for name in (*_FROM_NOW_ON, *_HARMLESS)}
    decisive = {source.event_time.column, *source.natural_key}
    aliases = {column.name: list(column.aliases) for column in source.columns if column.aliases}
    used = {
        "event_time.format": source.event_time.format,
        "read": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in source.read.used.items()
        },
        "rescue": source.rescue,
        "transform": "" if source.transform is None else _digest(source.transform),
        "aliases": {name: of for name, of in aliases.items() if name not in decisive},
        "aliases of keys": {name: of for name, of in aliases.items() if name in decisive},
    }
    return parts | {name: value for name, value in used.items() if value != _OPTIONAL[name]}


def raw_layout(source: Source) -> Layout:
    """How files of the raw table are laid out."""
    return Layout(source.partition_terms, layout_by_age=source.closed_periods)


def source_changes(source: Source, recorded: Mapping[str, Any] | None) -> list[DefinitionChange]:
    """What is different from the definition that the ledger was made by.

    Without layout, and without types of columns, which the raw table itself tells.

    Args:
        source: as it is defined now.
        recorded: what the ledger recorded; None: nothing, so nothing is known to be different.
    """
    now, changes = {**_OPTIONAL, **source_definition(source)}, []
    recorded = None if recorded is None else {**_OPTIONAL, **recorded}
    parts = (*_READ_AGAIN, "first_day", "last_day", "read", *_FROM_NOW_ON)
    for part in (*parts, "rescue", "transform", "aliases", *_HARMLESS):
        if recorded is None or part not in recorded or recorded[part] == now[part]:
            continue
        if part == "aliases of keys" and _only_more(recorded[part], now[part]):
            what = "more aliases of keys"
        else:
            what = part
        effect, meaning = _consequence(what, recorded[part], now[part])
        changes.append(
            DefinitionChange(
                source.table, what, _text(recorded[part]), _text(now[part]), effect, meaning
            )
        )
    declared = (recorded or {}).get("columns", {})
    for name in declared.keys() - now["columns"].keys() if source.columns else ():
        meaning = "it is kept, and filled where records have it"
        new = [c.name for c in source.columns if c.name not in declared]
        if len(new) == 1 and now["columns"][new[0]] == declared[name]:
            meaning += (
                f"; if {new[0]} is its new name in the files, rename it before the next run: "
                f"{rename_command(source.table, name, new[0])}, and say "
                f"Column({new[0]!r}, {declared[name]!r}, aliases=({name!r},)) for older files"
            )
        changes.append(
            DefinitionChange(source.table, f"column {name}", declared[name], None, "keep", meaning)
        )
    return changes


def read_again(source: Source, ledger: Table, listing: pa.Table) -> pa.Table:
    """Files of a listing that are to be read again, in no order.

    They were read by a definition which no longer holds, or their row without a day is pending.

    Args:
        source: as it is defined now.
        ledger: with the definition that its files were read by.
        listing: as `list_landing` returns it.
    """
    changes = source_changes(source, recorded(ledger))
    if any(change.what in _READ_AGAIN for change in changes):
        return listing
    if ledger.metadata.current_snapshot_id is None:
        return listing.slice(0, 0)
    anew = any(change.effect == "recompute" for change in changes)
    more = " or lines > 0 or problem is not null" if anew else ""
    where = f"event_day is null and (pending{more})"
    undated = ledger.scan(where, [LANDING_FILE]).to_arrow()
    return listing.join(undated, keys=LANDING_FILE, join_type="left semi")


def check_all_there(source: Source, ledger: Table, listing: pa.Table) -> None:
    """Refuse a change that needs files which are gone: the table would be a mixture of two.

    Raises:
        InvalidInputError: it names the change and the files.
    """
    changes = [c for c in source_changes(source, recorded(ledger)) if c.what in _READ_AGAIN]
    if not changes:
        return
    rows = ledger.scan("event_day is not null and rows > 0", [LANDING_FILE]).to_arrow()
    landed = listing.select([LANDING_FILE])
    gone = sorted(
        rows.join(landed, keys=LANDING_FILE, join_type="left anti")[LANDING_FILE]
        .unique()
        .to_pylist()
    )
    if gone:
        raise InvalidInputError(
            f"source {source.name!r}: {'; '.join(map(str, changes))}; but {len(gone)} of them are "
            f"gone from the landing folder, the first is {gone[0]}, and their rows would stay as "
            "the former definition made them. Nothing was written. Put the files back, or define "
            "it as before and another source for what lands from now on",
            table=source.table,
            files=gone[:100],
        )


def check_ledger(source: Source, ledger: Table) -> None:
    """Refuse to write days by another definition than the ledger was made by.

    Raises:
        InvalidInputError: the landing files have to be read again first.
    """
    changes = [c for c in source_changes(source, recorded(ledger)) if c.what in _READ_AGAIN]
    if changes:
        raise InvalidInputError(
            f"source {source.name!r}: {'; '.join(map(str, changes))}. Nothing was written: "
            f"materialize {source.ledger_table.replace('.', '/')} first, which reads them",
            table=source.table,
        )


def ledger_property(source: Source) -> dict[str, str]:
    """The property of a ledger that is made by a source."""
    return as_property(source_definition(source))


def _consequence(part: str, before: Any, after: Any) -> tuple[Effect, str]:
    if part in _READ_AGAIN:
        return "recompute", (
            f"{_READ_AGAIN[part]}, so every landing file is read again and all its days, of before "
            "and of now, are written anew"
        )
    if part in ("first_day", "last_day"):
        wider = (
            _last(after) > _last(before)
            if part == "last_day"
            else date.fromisoformat(after) < date.fromisoformat(before)
        )
        if wider:
            return "recompute", "files with lines that had no usable event time are read again"
        return "keep", "rows of days outside stay; such lines are quarantined from now on"
    if part == "more aliases of keys":
        return "recompute", (
            "files that have lines without a usable event time are read again; lakehouse "
            "retry-quarantine takes lines again that had no key"
        )
    if part == "read":
        return "recompute", (
            "files that could not be read, or have lines without a usable event time, are read "
            "again; other days are read so when they are materialized again"
        )
    if part == "rescue":
        return "from now on", (
            "rows that are there stay as they are; lakehouse retry-quarantine takes lines again "
            "that it keeps from now on"
        )
    if part == "aliases":
        return "from now on", (
            "rows that are there stay as they are; lakehouse fill-columns takes what the rest of "
            "them keeps, and days that are materialized again are read so"
        )
    if part == "transform":
        return "from now on", (
            "rows that are there stay as they are; days that are materialized again are computed "
            "by it"
        )
    if part in _FROM_NOW_ON:
        return "from now on", (
            "lines that were judged before stay as they are; days that are materialized again are "
            "judged anew"
        )
    return "harmless", "it holds for the next runs"


def _only_more(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> bool:
    """Whether fields are asked where none had a value, so that no row becomes another one."""
    return all(after.get(name, [])[: len(names)] == names for name, names in before.items())


def _digest(function: Callable[..., object]) -> str:
    code = code_of(function) or function.__qualname__
    return hashlib.blake2b(code.encode(), digest_size=8).hexdigest()


def _last(day: str | None) -> date:
    return date.max if day is None else date.fromisoformat(day)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(value)})" if value else "all columns"
    if isinstance(value, dict):
        return ", ".join(f"{name}={option!r}" for name, option in value.items()) or "as by default"
    return "open" if value is None else str(value)
