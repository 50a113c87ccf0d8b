"""Planning in memory: every source of entries gives the same plan, and reports add up."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from lakehouse.errors import InvalidSchemaError, NoSuchSnapshotError
from lakehouse.expressions.filter_binding import bind
from lakehouse.manifests.manifest_cache import ManifestCache
from lakehouse.manifests.manifest_reader import decode_avro
from lakehouse.manifests.manifest_writer import encode_manifest, manifest_file
from lakehouse.scan.planner import ScanRequest, plan_appends, plan_scan, project_schema
from lakehouse.spec.manifests.columnar_manifest import (
    columnar_path,
    encode_columnar,
    name_with_checksum,
)
from lakehouse.spec.manifests.data_file import (
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    STATUS_ADDED,
    STATUS_DELETED,
    DataFile,
    ManifestEntry,
)
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import CONTENT_DELETE_MANIFEST, write_manifest_list
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import (
    TableMetadata,
    new_table_metadata,
    snapshot_list,
    types_of,
)
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER
from lakehouse.storage.memory import MemoryStorage

SCHEMA = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "n", LongType()),
)
BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=0)
BY_NAME = PartitionSpec(PartitionField(2, 1001, TruncateTransform(1), "name_t"), spec_id=1)
LOCATION = "memory://wh/t"


class Table:
    """A table written by hand: one manifest a call of `manifest`, then `metadata`."""

    def __init__(self) -> None:
        self.storage = MemoryStorage({})
        self.storage.delete([file.location for file in self.storage.list(LOCATION)])
        base = new_table_metadata(
            SCHEMA,
            BY_ID,
            UNSORTED_SORT_ORDER,
            LOCATION,
            {},
            2,
            "00000000-0000-0000-0000-000000000001",
            1,
        )
        self.base = dataclasses.replace(base, partition_specs=(BY_ID, BY_NAME))
        self.rows: list[Any] = []

    def manifest(
        self,
        files: list[DataFile],
        spec: PartitionSpec,
        *,
        deletes: bool = False,
        status: int = STATUS_ADDED,
    ) -> str:
        path = f"{LOCATION}/metadata/m{len(self.rows)}.avro"
        explicit = (
            {}
            if status == STATUS_ADDED
            else {"snapshot_id": 7, "sequence_number": 1, "file_sequence_number": 1}
        )
        made = [ManifestEntry(status=status, data_file=file, **explicit) for file in files]
        entries = Entries.from_manifest_entries(made, spec, types_of(self.base))
        content = CONTENT_DELETE_MANIFEST if deletes else 0
        data = encode_manifest(entries, SCHEMA, format_version=2, content=content)
        self.storage.write(path, data)
        self.rows.append(
            manifest_file(
                entries,
                manifest_path=path,
                manifest_length=len(data),
                snapshot_id=7,
                content=content,
            )
        )
        return path

    def metadata(self) -> TableMetadata:
        listed, _ = write_manifest_list(
            self.rows, snapshot_id=7, parent_snapshot_id=None, sequence_number=5, format_version=2
        )
        location = f"{LOCATION}/metadata/snap-7.avro"
        self.storage.write(location, listed)
        snapshot = Snapshot(
            snapshot_id=7, sequence_number=5, timestamp_ms=2, manifest_list=location, schema_id=0
        )
        return dataclasses.replace(
            self.base,
            snapshots=snapshot_list((snapshot,)),
            current_snapshot_id=7,
            last_sequence_number=5,
        )

    def columnar(self, metadata: TableMetadata) -> None:
        """Give each manifest a columnar manifest, and the name that goes with it."""
        for place, manifest in enumerate(self.rows):
            path, spec = manifest.manifest_path, metadata.spec(manifest.partition_spec_id)
            entries = decode_avro(
                [(path, self.storage.read(path))], spec, types_of(metadata)
            ).entries
            columnar = encode_columnar(entries)
            named = name_with_checksum(path.removesuffix(".avro"), columnar.checksum)
            self.storage.write(named, self.storage.read(path))
            self.storage.write(columnar_path(named), columnar.data)
            self.rows[place] = dataclasses.replace(manifest, manifest_path=named)
        self.metadata()


def by_id(partition: int | None, low: int, high: int, **fields: Any) -> DataFile:
    bounds = {
        "lower_bounds": {3: to_bytes(LongType(), low)},
        "upper_bounds": {3: to_bytes(LongType(), high)},
    }
    counts = {"value_counts": {3: 10}, "null_value_counts": {3: 0}}
    path = fields.pop("file_path", f"{LOCATION}/data/{partition}-{low}.parquet")
    return DataFile(
        file_path=path,
        partition=(partition,),
        spec_id=0,
        record_count=10,
        file_size_in_bytes=1000,
        **bounds,
        **counts,
        **fields,
    )


@pytest.fixture
def table() -> Table:
    made = Table()
    made.manifest([by_id(1, 0, 9), by_id(1, 10, 19), by_id(2, 0, 9)], BY_ID)
    made.manifest([by_id(5, 0, 9), by_id(None, 0, 9)], BY_ID)
    named = {"file_path": f"{LOCATION}/data/named.parquet", "partition": ("a",), "spec_id": 1}
    made.manifest([DataFile(record_count=10, file_size_in_bytes=500, **named)], BY_NAME)
    made.manifest([by_id(1, 0, 99, file_path="gone")], BY_ID, status=STATUS_DELETED)
    return made


def paths(table: Table, metadata: TableMetadata, **options: Any) -> list[str]:
    plan = plan_scan(ScanRequest(metadata=metadata, **options), table.storage, cache=None)
    return [file.file_path.removeprefix(f"{LOCATION}/data/") for file in plan.files]


def test_manifests_partitions_and_metrics_prune(table):
    metadata = table.metadata()
    assert paths(table, metadata) == [
        "1-0.parquet",
        "1-10.parquet",
        "2-0.parquet",
        "5-0.parquet",
        "None-0.parquet",
        "named.parquet",
    ]
    plan = plan_scan(
        ScanRequest(metadata=metadata, where="id = 1 and n >= 15"), table.storage, cache=None
    )
    assert [file.file_path[-12:] for file in plan.files] == ["1-10.parquet", "amed.parquet"]
    manifests, files = plan.report.data_manifests, plan.report.data_files
    assert (
        manifests.total,
        manifests.skipped_empty,
        manifests.skipped_by_partition,
        manifests.read,
    ) == (4, 1, 1, 2)
    assert (
        files.total,
        files.skipped_by_manifest,
        files.skipped_by_partition,
        files.skipped_by_metrics,
    ) == (6, 2, 1, 1)
    assert (files.planned, files.rows_planned, files.bytes_planned) == (2, 20, 1500)
    assert (
        files.total
        == files.planned
        + files.skipped_by_manifest
        + files.skipped_by_partition
        + files.skipped_by_metrics
    )
    assert manifests.bytes_read > 0
    assert plan.report.to_dict()["data_files"]["planned"] == 2


@pytest.mark.parametrize(
    "where",
    [
        None,
        "id = 1",
        "id is null",
        "n > 12",
        "name = 'b'",
        "name like 'a%' or id = 5",
        "n > 100",
        "false",
    ],
)
def test_every_source_gives_the_same_plan(table, where):
    metadata = table.metadata()
    request = ScanRequest(metadata=metadata, where=where)
    avro = plan_scan(request, table.storage, cache=None)
    cache = ManifestCache()
    first, second = (plan_scan(request, table.storage, cache=cache) for _ in range(2))
    table.columnar(metadata)
    columnar = plan_scan(request, table.storage, cache=None)
    for other in (first, second, columnar):
        assert list(other.tasks) == list(avro.tasks)
        assert other.report.data_files == avro.report.data_files
    read = avro.report.data_manifests.read
    assert avro.report.data_manifests.read_slow == first.report.data_manifests.read_slow == read
    assert second.report.data_manifests.read_cached == read
    assert columnar.report.data_manifests.read_columnar == read
    assert columnar.report.data_manifests.bytes_read == 0


def test_metrics_come_when_asked_for(table):
    metadata = table.metadata()
    for columnar in (False, True):
        if columnar:
            table.columnar(metadata)
        bare, full = (
            plan_scan(
                ScanRequest(metadata=metadata, where="n < 5", include_metrics=one),
                table.storage,
                cache=None,
            ).files[0]
            for one in (False, True)
        )
        assert bare.lower_bounds == {}
        assert full == by_id(1, 0, 9)


@pytest.mark.parametrize("damage", ["junk", "cut", "swapped", "flipped"])
def test_twins_that_do_not_fit_are_ignored_and_reported(table, damage):
    metadata = table.metadata()
    table.columnar(metadata)
    paths_before = paths(table, metadata, where="n < 5")
    first, second = (columnar_path(manifest.manifest_path) for manifest in table.rows[:2])
    good = table.storage.read(first)
    flipped = bytearray(good)
    for place in range(4, len(good) // 2):
        flipped[place] ^= 0x55
    bad = {
        "junk": b"nothing",
        "cut": good[: len(good) // 2],
        "swapped": table.storage.read(second),
        "flipped": bytes(flipped),
    }
    table.storage.write(first, bad[damage])
    plan = plan_scan(ScanRequest(metadata=metadata, where="n < 5"), table.storage, cache=None)
    assert [file.file_path.removeprefix(f"{LOCATION}/data/") for file in plan.files] == paths_before
    assert plan.report.data_manifests.read_slow == 1
    assert len(plan.report.notes) == 1
    assert table.rows[0].manifest_path in plan.report.notes[0]


def test_a_manifest_replaced_under_its_name_is_not_taken_from_the_cache(table):
    metadata = table.metadata()
    cache = ManifestCache()
    request = ScanRequest(metadata=metadata)
    plan_scan(request, table.storage, cache=cache)
    other = Table()
    other.manifest([by_id(1, 0, 9), by_id(1, 10, 19), by_id(3, 0, 9)], BY_ID)
    plan = plan_scan(ScanRequest(metadata=other.metadata()), other.storage, cache=cache)
    assert [file.partition for file in plan.files] == [(1,), (1,), (3,)]


def test_residuals_drop_what_the_partition_guarantees(table):
    plan = plan_scan(
        ScanRequest(metadata=table.metadata(), where="id = 1 and n < 5"), table.storage, cache=None
    )
    residuals = {task.data_file.spec_id: task.residual for task in plan.tasks}
    assert residuals[0] == bind("n < 5", SCHEMA)
    assert residuals[1] == bind("id = 1 and n < 5", SCHEMA)


def test_deletes_are_attached(table):
    deletes = by_id(1, 0, 9, file_path="deletes", content=CONTENT_POSITION_DELETES)
    table.manifest([deletes], BY_ID, deletes=True)
    plan = plan_scan(ScanRequest(metadata=table.metadata()), table.storage, cache=None)
    assert {task.data_file.file_path[-12:]: len(task.deletes) for task in plan.tasks} == {
        "/1-0.parquet": 1,
        "1-10.parquet": 1,
        "/2-0.parquet": 0,
        "/5-0.parquet": 0,
        "one-0.parquet"[-12:]: 0,
        "amed.parquet": 0,
    }
    assert plan.report.delete_files.planned == 1
    assert {task.sequence_number for task in plan.tasks} == {5}


def test_metrics_of_columns_that_an_equality_delete_does_not_compare_prune_nothing(table):
    """It deletes id = 1 whatever n is: bounds of n are only those of the delete file's rows."""
    deletes = by_id(
        1, 500, 600, file_path="deletes", content=CONTENT_EQUALITY_DELETES, equality_ids=(1,)
    )
    table.manifest([deletes], BY_ID, deletes=True)
    table.rows = [dataclasses.replace(row, sequence_number=5) for row in table.rows]
    table.rows[:-1] = [
        dataclasses.replace(row, sequence_number=4, min_sequence_number=1)
        for row in table.rows[:-1]
    ]
    plan = plan_scan(
        ScanRequest(metadata=table.metadata(), where="n < 5 and id = 1"), table.storage, cache=None
    )
    assert [len(task.deletes) for task in plan.tasks if task.data_file.spec_id == 0] == [1]


def test_projection_and_errors(table):
    metadata = table.metadata()
    plan = plan_scan(ScanRequest(metadata=metadata, select=["n", "id"]), table.storage, cache=None)
    assert [field.name for field in plan.schema.fields] == ["n", "id"]
    with pytest.raises(InvalidSchemaError, match="nope"):
        plan_scan(ScanRequest(metadata=metadata, select=["nope"]), table.storage)
    with pytest.raises(NoSuchSnapshotError):
        plan_scan(ScanRequest(metadata=metadata, snapshot_id=404), table.storage)


def test_columns_whose_names_differ_in_case_alone_are_selected_by_it():
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ID", LongType()))

    def names(*select: str) -> list[str]:
        return [field.name for field in project_schema(schema, select, case_sensitive=False).fields]

    assert (names("id"), names("ID"), names("ID", "id")) == (["id"], ["ID"], ["ID", "id"])
    with pytest.raises(InvalidSchemaError, match="Id may be ID or id"):
        names("Id")


def test_an_empty_table_plans_to_nothing(table):
    plan = plan_scan(ScanRequest(metadata=table.base, where="id = 1"), table.storage)
    assert (list(plan.files), list(plan.tasks), list(plan.splits()), plan.snapshot_id) == (
        [],
        [],
        [],
        None,
    )


def test_promoted_columns_prune_in_their_new_type(table):
    metadata = table.metadata()
    table.columnar(metadata)
    wider = Schema(NestedField(1, "id", LongType()), *SCHEMA.fields[1:], schema_id=1)
    promoted = dataclasses.replace(metadata, schemas=(SCHEMA, wider), current_schema_id=1)
    for request in (
        ScanRequest(metadata=promoted, where="id = 5"),
        ScanRequest(metadata=promoted, where="id > 3000000000"),
    ):
        columnars, without = (
            plan_scan(
                dataclasses.replace(request, use_columnar=columnar), table.storage, cache=None
            )
            for columnar in (True, False)
        )
        assert list(columnars.files) == list(without.files)
    assert paths(table, promoted, where="id = 5") == ["5-0.parquet", "named.parquet"]


def test_time_travel_before_a_promotion_still_prunes(table):
    metadata = table.metadata()
    wider = Schema(NestedField(1, "id", LongType()), *SCHEMA.fields[1:], schema_id=1)
    later = Snapshot(
        snapshot_id=8,
        parent_snapshot_id=7,
        sequence_number=6,
        timestamp_ms=3,
        manifest_list="unused",
        schema_id=1,
    )
    snapshots = snapshot_list((metadata.snapshot(7), later))
    promoted = dataclasses.replace(
        metadata,
        schemas=(SCHEMA, wider),
        current_schema_id=1,
        snapshots=snapshots,
        current_snapshot_id=8,
    )
    assert paths(table, promoted, where="id = 5", snapshot_id=7) == ["5-0.parquet", "named.parquet"]


def test_appends_since_a_snapshot(table):
    metadata = table.metadata()
    table.rows = [
        dataclasses.replace(row, sequence_number=5, min_sequence_number=1) for row in table.rows
    ]
    path = table.manifest([by_id(9, 0, 9), by_id(9, 10, 19)], BY_ID)
    table.rows[-1] = dataclasses.replace(table.rows[-1], added_snapshot_id=8)
    listed, _ = write_manifest_list(
        table.rows, snapshot_id=8, parent_snapshot_id=7, sequence_number=6, format_version=2
    )
    table.storage.write(f"{LOCATION}/metadata/snap-8.avro", listed)
    appended = Snapshot(
        snapshot_id=8,
        parent_snapshot_id=7,
        sequence_number=6,
        timestamp_ms=3,
        manifest_list=f"{LOCATION}/metadata/snap-8.avro",
        summary={"operation": "append"},
        schema_id=0,
    )
    now = dataclasses.replace(
        metadata, snapshots=snapshot_list((metadata.snapshot(7), appended)), current_snapshot_id=8
    )
    request = ScanRequest(metadata=now, where="n > 12")
    plan = plan_appends(request, 7, table.storage, cache=None)
    assert [file.partition for file in plan.files] == [(9,)]
    assert plan.report.data_manifests.total == 1
    assert table.rows[-1].manifest_path == path
    assert (
        len(
            plan_appends(
                dataclasses.replace(request, where=None), 7, table.storage, cache=None
            ).files
        )
        == 2
    )
    assert len(plan_appends(request, 8, table.storage, cache=None).files) == 0
    with pytest.raises(NoSuchSnapshotError, match="404"):
        plan_appends(request, 404, table.storage)
