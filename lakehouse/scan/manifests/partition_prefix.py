"""Choosing entries of an Avro manifest by partition before they are decoded.

The partition stands near the beginning of an entry. When it is known where each entry begins, the
fields up to it are stepped over for all entries at once, and only entries of partitions that may
match are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec

from lakehouse.expressions.physical_comparison import Mask
from lakehouse.spec.manifests.data_file import STATUS_DELETED
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.schema.field_types import FieldTypes
from lakehouse.spec.types.physical_types import partition_types, physical_type

Integers: TypeAlias = "npt.NDArray[np.int64]"
Keep: TypeAlias = Callable[[Entries], Mask]
"""From entries of which only status and partition are known to those that may match."""

_LONG_BYTES = 10
_STATUS, _DATA_FILE, _PARTITION = 0, 2, 102
_WHOLE_NUMBERS = (pa.int32(), pa.int64())


class _UnknownShape(Exception):  # noqa: N818 - internal signal
    """Something stands before the partition, or in it, that is not stepped over here."""


def choose(
    schema: Mapping[str, Any],
    plain: bytes,
    lengths: Integers,
    spec: PartitionSpec,
    types: FieldTypes,
    keep: Keep,
) -> tuple[Mask, int] | None:
    """(entries to decode, live ones among the rest); None if partitions cannot be told first.

    At least one entry is chosen, whatever `keep` says, so that there is something to decode.

    Args:
        schema: Avro schema of the entries.
        plain: the entries after each other.
        lengths: bytes of each.
        spec: partition spec of the manifest.
        types: field types.
        keep: the choice.
    """
    kinds = {
        field_id: physical_type(kind) if kind is not None else None
        for field_id, kind in partition_types(spec, types).items()
    }
    if not kinds or any(kind not in _WHOLE_NUMBERS for kind in kinds.values()):
        return None
    walk = _Walk(plain)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    try:
        reached = walk.record(schema, starts, stop_after=_PARTITION)
    except _UnknownShape:
        return None
    if not {_STATUS, *kinds} <= walk.found.keys() or (reached > starts + lengths).any():
        return None
    columns = {"status": pa.array(walk.found[_STATUS][0], pa.int32())}
    for field_id, kind in kinds.items():
        values, present = walk.found[field_id]
        columns[f"partition.{field_id}"] = pa.array(values, mask=~present).cast(kind)
    chosen = keep(Entries(pa.table(columns), spec)).copy()
    if not chosen.any():
        chosen[0] = True
    live = walk.found[_STATUS][0] != STATUS_DELETED
    return chosen, int((live & ~chosen).sum())


class _Walk:
    """Skips fields of many records at once; integers with a field id are kept in `found`."""

    def __init__(self, plain: bytes) -> None:
        self._raw = np.frombuffer(plain + bytes(_LONG_BYTES), "u1")
        self.found: dict[int, tuple[Integers, Mask]] = {}
        self._done = False

    def record(self, avro: Any, offsets: Integers, *, stop_after: int) -> Integers:
        """Offsets after the record, or after the field `stop_after` in it or below it."""
        for field in avro["fields"]:
            field_id = field.get("field-id")
            offsets = self._value(field["type"], offsets, field_id, stop_after)
            if self._done or field_id == stop_after:
                self._done = True
                return offsets
        return offsets

    def _value(
        self, avro: Any, offsets: Integers, field_id: int | None, stop_after: int
    ) -> Integers:
        if isinstance(avro, list):
            return self._union(avro, offsets, field_id, stop_after)
        kind = avro["type"] if isinstance(avro, dict) else avro
        if kind == "record":
            return self.record(avro, offsets, stop_after=stop_after)
        if kind in ("int", "long", "string", "bytes"):
            values, after = self._longs(offsets)
            if kind in ("string", "bytes"):
                return after + values
            if field_id is not None:
                self.found[field_id] = (values, np.ones(len(values), bool))
            return after
        raise _UnknownShape

    def _union(
        self, branches: list[Any], offsets: Integers, field_id: int | None, stop_after: int
    ) -> Integers:
        index, after = self._longs(offsets)
        if len(branches) != 2 or "null" not in branches:
            raise _UnknownShape
        there = index == 1 - branches.index("null")
        other = branches[1 - branches.index("null")]
        if isinstance(other, dict) and other.get("type") == "record" and not there.all():
            raise _UnknownShape
        after[there] = self._value(other, after[there], field_id, stop_after)
        if field_id in self.found:
            values = np.zeros(len(offsets), np.int64)
            values[there] = self.found[field_id][0]
            self.found[field_id] = (values, there)
        return after

    def _longs(self, offsets: Integers) -> tuple[Integers, Integers]:
        """(zig-zag numbers at the offsets, offsets after them)."""
        if len(offsets) and (offsets.min() < 0 or offsets.max() > len(self._raw) - _LONG_BYTES):
            raise _UnknownShape
        result = np.zeros(len(offsets), np.uint64)
        after = offsets.copy()
        going = np.arange(len(offsets))
        for shift in range(0, 70, 7):
            byte = self._raw[after[going]]
            result[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(min(shift, 63))
            after[going] += 1
            going = going[byte >= 0x80]
            if not len(going):
                return ((result >> np.uint64(1)) ^ (np.uint64(0) - (result & np.uint64(1)))).view(
                    np.int64
                ), after
        raise _UnknownShape
