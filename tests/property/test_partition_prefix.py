"""Avro entries skipped by partition before decoding: entries and counts as after a full decode."""

from __future__ import annotations

import io
from collections import Counter

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestampType

from lakehouse.expressions.filter_binding import bind, widen
from lakehouse.scan.manifests.avro_manifests import decode_avro
from lakehouse.scan.pruning.entry_pruning import EntryPruner
from lakehouse.spec.manifests.avro_container import CHECKSUM_KEY, read_header
from lakehouse.spec.manifests.data_file import (
    STATUS_ADDED,
    STATUS_DELETED,
    STATUS_EXISTING,
    DataFile,
    ManifestEntry,
)
from lakehouse.spec.manifests.manifest import encode_manifest
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.schema.field_types import field_types
from lakehouse.storage.memory import MemoryStorage

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "at", TimestampType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "born", DateType()),
)
TYPES = field_types(SCHEMA)
NUMBERS = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "id"),
    PartitionField(2, 1001, DayTransform(), "at_day"),
    PartitionField(3, 1002, BucketTransform(4), "bucket"),
    PartitionField(4, 1003, IdentityTransform(), "born"),
)
TEXT = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "name"))
LONGS = st.one_of(
    st.none(),
    st.sampled_from([0, 1, -1, 63, 64, -(2**63), 2**63 - 1]),
    st.integers(-(2**40), 2**40),
)
PARTITIONS = st.tuples(
    LONGS,
    st.one_of(st.none(), st.integers(-1000, 30_000)),
    st.one_of(st.none(), st.integers(0, 3)),
    st.one_of(st.none(), st.integers(-9, 9)),
)
FILTERS = [
    "id = 1",
    "id is null",
    "id > 0 and name = 'a'",
    "at >= '2026-06-01T00:00:00' and at < '2026-06-02T00:00:00'",
    "at < '1969-12-31T00:00:00' or name = 'b'",
    "born >= '1970-01-03' and id <= 64",
    "id in (63, 64) or born is null",
]


def one_entry_a_block(entries: list[ManifestEntry], spec: PartitionSpec) -> bytes:
    """As pyiceberg writes manifests."""
    data = encode_manifest(
        Entries.from_manifest_entries(entries, spec, TYPES), SCHEMA, format_version=2
    )
    header = read_header(data, "m")
    metadata = {
        key: value.decode()
        for key, value in header.metadata.items()
        if key not in (CHECKSUM_KEY, "avro.schema", "avro.codec")
    }
    sink = io.BytesIO()
    writer = fastavro.write.Writer(sink, header.schema, codec="deflate", metadata=metadata)
    for row in fastavro.reader(io.BytesIO(data), return_record_name=False):
        writer.write(row)
        writer.dump()
    writer.flush()
    return sink.getvalue()


def entry(number: int, partition: tuple, status: int) -> ManifestEntry:
    file = DataFile(
        file_path=f"f{number}-{'x' * (number % 90)}",
        partition=partition,
        record_count=number,
        file_size_in_bytes=number * 7,
        lower_bounds={1: number.to_bytes(8, "little")},
        value_counts={1: number},
    )
    numbers = {} if status == STATUS_ADDED else {"sequence_number": 3, "file_sequence_number": 3}
    return ManifestEntry(status=status, data_file=file, snapshot_id=number + 1, **numbers)


def compared(data: bytes, spec: PartitionSpec, where: str) -> tuple[int, int]:
    """(entries decoded, entries skipped) with the choice, after comparing with a full decode."""
    storage = MemoryStorage()
    storage.write("memory://t/m.avro", data)
    pruner = EntryPruner(widen(bind(where, SCHEMA), TYPES), spec, TYPES)
    whole = decode_avro(storage, "memory://t/m.avro", spec, TYPES)
    part = decode_avro(storage, "memory://t/m.avro", spec, TYPES, keep=pruner.may_match_partition)
    assert whole.kind == part.kind == "bulk"

    def matching(entries: Entries) -> pa.Table:
        return entries.filter(pa.array(pruner.may_match_partition(entries))).table

    assert matching(part.entries).equals(matching(whole.entries))
    left_out = Counter(whole.entries.table["file_path"].to_pylist()) - Counter(
        part.entries.table["file_path"].to_pylist()
    )
    gone = whole.entries.table.filter(
        pc.is_in(whole.entries.table["file_path"], pa.array(list(left_out), pa.string()))
    )
    assert part.skipped == int((np.asarray(gone["status"]) != STATUS_DELETED).sum())
    return len(part.entries), part.skipped


@given(
    st.lists(
        st.tuples(PARTITIONS, st.sampled_from([STATUS_ADDED, STATUS_EXISTING, STATUS_DELETED])),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(FILTERS),
)
@settings(max_examples=60, deadline=None)
def test_what_remains_is_what_matches(rows, where):
    entries = [entry(number, partition, status) for number, (partition, status) in enumerate(rows)]
    compared(one_entry_a_block(entries, NUMBERS), NUMBERS, where)


def test_entries_are_left_out_and_one_stays_when_none_matches():
    entries = [entry(number, (number, 0, 0, 0), STATUS_ADDED) for number in range(50)]
    data = one_entry_a_block(entries, NUMBERS)
    assert compared(data, NUMBERS, "id = 7") == (1, 49)
    assert compared(data, NUMBERS, "id >= 40") == (10, 40)
    assert compared(data, NUMBERS, "id = 1000") == (1, 49)
    assert compared(data, NUMBERS, "id >= 0") == (50, 0)


def test_what_is_not_a_number_is_decoded_whole():
    entries = [entry(number, (f"n{number}",), STATUS_ADDED) for number in range(20)]
    assert compared(one_entry_a_block(entries, TEXT), TEXT, "name = 'n7'") == (20, 0)
    several = encode_manifest(
        Entries.from_manifest_entries(
            [entry(n, (n, 0, 0, 0), STATUS_ADDED) for n in range(20)], NUMBERS, TYPES
        ),
        SCHEMA,
        format_version=2,
    )
    assert compared(several, NUMBERS, "id = 7") == (20, 0)
