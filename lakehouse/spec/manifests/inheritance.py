"""What entries inherit from their manifest: sequence numbers, snapshot and first row ids.

Spec: Sequence Number Inheritance, First Row ID Inheritance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    STATUS_ADDED,
    STATUS_DELETED,
    STATUS_EXISTING,
)
from lakehouse.spec.manifests.manifest_entries import FIXED_COLUMNS, Entries
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST, ManifestFile

INHERITING = (
    "status",
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
    "content",
    "record_count",
    "first_row_id",
)


def inherit(entries: Entries, manifest: ManifestFile) -> Entries:
    """Fill in inherited ids, sequence numbers and content.

    `entries` are all those of the manifest, in its order.

    Entries that have only some of the columns `INHERITING` (a projection) inherit those; a first
    row id needs `status` and `record_count` too.

    Raises:
        CorruptMetadataError: an existing or deleted entry lacks a sequence number, an entry has a
            status that is none, a sequence number above its manifest's, or is of another content
            than its manifest.
    """
    table = entries.table
    names = set(table.column_names)
    _check(table, manifest.content, manifest.manifest_path)
    if "snapshot_id" in names:
        table = _replace(
            table, "snapshot_id", _filled(table["snapshot_id"], manifest.added_snapshot_id)
        )
    for name in ("sequence_number", "file_sequence_number"):
        if name in names:
            table = _replace(table, name, _sequence(table, name, manifest))
        elif "status" in names and "snapshot_id" in names:
            table = table.append_column(name, pa.array(np.zeros(len(table), np.int64)))
    default_content = CONTENT_DATA_MANIFEST if manifest.content == CONTENT_DATA_MANIFEST else 1
    if "content" in names:
        table = _replace(table, "content", _filled(table["content"], default_content))
    elif "file_path" in names:
        table = table.append_column(
            "content", pa.array(np.full(len(table), default_content, np.int32))
        )
    if "record_count" in names and "status" in names and manifest.content == CONTENT_DATA_MANIFEST:
        table = _first_row_ids(table, manifest.first_row_id)
    return Entries(table, entries.spec)


def inherit_alike(
    entries: Entries, manifests: Sequence[ManifestFile], counts: Sequence[int]
) -> Entries:
    """`inherit` for the entries of several manifests, one after the other.

    Args:
        entries: with all their columns.
        manifests: of one content, each listed, or not yet: then without a sequence number, which
            its entries do not get either.
        counts: how many entries each has.

    Raises:
        CorruptMetadataError: as `inherit`, or these cannot be done together.
    """
    table, first = entries.table, manifests[0]
    if any(manifest.content != first.content for manifest in manifests):
        raise CorruptMetadataError("Data and delete manifests are told apart.")
    _check(table, first.content, first.manifest_path)
    listed = np.repeat([manifest.sequence_number is not None for manifest in manifests], counts)
    snapshots = np.repeat([manifest.added_snapshot_id or 0 for manifest in manifests], counts)
    has_one = np.repeat([manifest.added_snapshot_id is not None for manifest in manifests], counts)
    inherited = pa.array(snapshots, mask=~has_one)
    # what is not listed yet is of the snapshot that lists it
    own = pc.if_else(pa.array(listed), table["snapshot_id"], pa.scalar(None, pa.int64()))
    table = _set(table, "snapshot_id", pc.coalesce(own, inherited))
    added = np.asarray(table["status"]) == STATUS_ADDED
    for name in ("sequence_number", "file_sequence_number"):
        column = table[name] if name in table.column_names else pa.nulls(len(table), pa.int64())
        numbers = np.repeat([manifest.sequence_number or 0 for manifest in manifests], counts)
        if (np.asarray(pc.is_null(column)) & ~added & (numbers != 0)).any():
            raise CorruptMetadataError(f"An existing or deleted entry lacks its {name}.")
        if (np.asarray(pc.fill_null(column, 0)) > numbers)[listed].any():
            raise CorruptMetadataError(f"An entry has a {name} above that of its manifest.")
        filled = pc.coalesce(column, pa.array(numbers, mask=~listed))
        table = _set(table, name, filled)
    default = first.content if first.content == CONTENT_DATA_MANIFEST else 1
    content = pa.nulls(len(table), pa.int32())
    if "content" in table.column_names:
        content = table["content"]
    table = _set(table, "content", pc.fill_null(content, pa.scalar(default, pa.int32())))
    if first.content == CONTENT_DATA_MANIFEST:
        table = _first_row_ids_of_each(table, manifests, counts)
    return Entries(table, entries.spec)


def _check(table: pa.Table, content: int, path: str) -> None:
    """That entries are what their manifest is listed as: a delete file read as data is rows."""
    deletes = (CONTENT_POSITION_DELETES, CONTENT_EQUALITY_DELETES)
    contents = (CONTENT_DATA,) if content == CONTENT_DATA_MANIFEST else deletes
    listed = "data" if content == CONTENT_DATA_MANIFEST else "delete"
    for name, allowed in (
        ("status", (STATUS_EXISTING, STATUS_ADDED, STATUS_DELETED)),
        ("content", contents),
    ):
        if name not in table.column_names or not len(table):
            continue
        ends = pc.min_max(table[name]).as_py()
        for value in (ends["min"], ends["max"]):
            if value is not None and value not in allowed:
                raise CorruptMetadataError(
                    f"{path}, listed as a {listed} manifest, has an entry with {name} {value}",
                    location=path,
                )


def _check_numbers(column: pa.ChunkedArray, name: str, manifest: ManifestFile) -> None:
    """None is above its manifest's: which deletes reach which files would not be known."""
    highest = pc.max(column).as_py()
    if manifest.sequence_number is not None and (highest or 0) > manifest.sequence_number:
        raise CorruptMetadataError(
            f"{manifest.manifest_path} has an entry with {name} {highest}, above that of the "
            f"manifest, {manifest.sequence_number}",
            location=manifest.manifest_path,
        )


def _first_row_ids_of_each(
    table: pa.Table, manifests: Sequence[ManifestFile], counts: Sequence[int]
) -> pa.Table:
    known = np.repeat([manifest.first_row_id is not None for manifest in manifests], counts)
    absent = "first_row_id" not in table.column_names
    if absent and not known.any():
        return table
    column = pa.nulls(len(table), pa.int64()) if absent else table["first_row_id"]
    column = pc.if_else(pa.array(known), column, pa.scalar(None, pa.int64()))
    waiting = np.asarray(pc.is_null(column)) & (np.asarray(table["status"]) != STATUS_DELETED)
    rows = np.where(waiting & known, np.asarray(table["record_count"]), 0)
    before = np.cumsum(rows) - rows
    begin = np.cumsum([0, *counts[:-1]])
    offset = before - np.repeat(before[np.minimum(begin, max(0, len(before) - 1))], counts)
    firsts = np.repeat([manifest.first_row_id or 0 for manifest in manifests], counts)
    starts = pa.array(firsts + offset, mask=~(waiting & known))
    return _set(table, "first_row_id", pc.coalesce(column, starts))


def _set(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    column = column.cast(FIXED_COLUMNS[name])
    if name in table.column_names:
        return _replace(table, name, column)
    return table.append_column(pa.field(name, FIXED_COLUMNS[name]), column)


def _sequence(table: pa.Table, name: str, manifest: ManifestFile) -> pa.Array:
    column = table[name]
    _check_numbers(column, name, manifest)
    if not column.null_count:
        return column
    inherited = manifest.sequence_number or 0
    if inherited != 0:
        explicit = np.asarray(column.is_null()) & (np.asarray(table["status"]) != STATUS_ADDED)
        if explicit.any():
            message = f"{manifest.manifest_path} has an existing or deleted entry without {name}"
            raise CorruptMetadataError(message, location=manifest.manifest_path)
    return _filled(column, inherited)


def _first_row_ids(table: pa.Table, first_row_id: int | None) -> pa.Table:
    absent = "first_row_id" not in table.column_names
    if first_row_id is None and absent:
        return table
    column = pa.nulls(len(table), pa.int64()) if absent else table["first_row_id"]
    if first_row_id is None:
        column = pa.nulls(len(table), pa.int64())
    else:
        waiting = np.asarray(column.is_null()) & (np.asarray(table["status"]) != STATUS_DELETED)
        rows = np.where(waiting, np.asarray(table["record_count"]), 0)
        starts = pa.array(first_row_id + np.cumsum(rows) - rows, mask=~waiting)
        column = pc.coalesce(column, starts)
    return (
        table.append_column("first_row_id", column)
        if absent
        else _replace(table, "first_row_id", column)
    )


def _filled(column: pa.ChunkedArray, value: int | None) -> pa.ChunkedArray:
    return (
        column
        if value is None or not column.null_count
        else pc.fill_null(column, pa.scalar(value, column.type))
    )


def _replace(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(
        table.column_names.index(name), pa.field(name, FIXED_COLUMNS[name]), column
    )
