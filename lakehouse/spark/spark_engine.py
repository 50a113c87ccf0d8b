"""Spark as an engine of `lakehouse.engines`: frames in, data files out; scans in, frames out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import orjson
import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType

from lakehouse.data.group_rewriting import GroupRewrite
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.data.writing.input_columns import coerce
from lakehouse.data.writing.zorder import ZOrder
from lakehouse.errors import InvalidInputError
from lakehouse.scan.planner import ScanRequest
from lakehouse.scan.reports.listeners import Listeners
from lakehouse.scan.scan_tasks import SplitOptions, combine
from lakehouse.spark.jvm.failures import marking, unmarking
from lakehouse.spark.reading import scan_frame
from lakehouse.spark.reading.worker_reader import read_groups
from lakehouse.spark.spark_types import to_iceberg_schema, to_spark_schema
from lakehouse.spark.worker_tasks import Batches, map_batches, task_name
from lakehouse.spark.writing import frame_files
from lakehouse.spark.writing.distribution import sort_columns, transform_column
from lakehouse.spark.writing.frame_files import written_files
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage


def to_schema(schema: object) -> Schema:
    """The Iceberg schema of a Spark schema (or of a frame), ids assigned.

    Raises UnsupportedTypeError, InvalidInputError.
    """
    if isinstance(schema, DataFrame):
        return to_iceberg_schema(schema.schema)
    if not isinstance(schema, StructType):
        raise InvalidInputError(f"a Spark schema is a StructType, not {type(schema).__name__}")
    return to_iceberg_schema(schema)


def write_data_files(data: object, request: WriteRequest, storage: Storage) -> list[DataFile]:
    """Write a frame as data files on Spark's workers (see `frame_files.write_data_files`)."""
    if not isinstance(data, DataFrame):
        raise InvalidInputError(f"Spark writes a DataFrame, not {type(data).__name__}")
    return frame_files.write_data_files(data, request, storage)


def group_executor(session: object) -> SparkExecutor:
    """Compaction by tasks of a session (see `compaction.SparkExecutor`)."""
    return SparkExecutor(cast("SparkSession", session))


def read(
    name: str,
    request: ScanRequest,
    storage: Storage,
    session: object,
    listeners: Listeners | None = None,
    *,
    limit: int | None = None,
) -> DataFrame:
    """A frame over one snapshot (see `scan_frame.read`)."""
    # a Spark Connect session is no subclass; the package that defines it takes extra dependencies
    # to import
    if not isinstance(session, SparkSession) and type(session).__name__ != SparkSession.__name__:
        raise InvalidInputError(f"Spark reads with a SparkSession, not {type(session).__name__}")
    frame = scan_frame.read(cast("SparkSession", session), name, request, storage, listeners)
    return frame if limit is None else frame.limit(limit)


_CURVE = "_lakehouse_curve"
_SPLITS = SplitOptions(target_size_bytes=128 << 20, lookback=10, open_file_cost_bytes=4 << 20)
_SAMPLE_ROWS = 100_000


class SparkExecutor:
    """A `GroupExecutor` on a Spark session.

    Args:
        spark: the session; its workers must reach the table's storage.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(
        self, work: Sequence[GroupRewrite], storage: Storage
    ) -> Iterator[tuple[int, list[DataFile]]]:
        """Rewrite the groups; yields (position of a group, its new files).

        Files of tasks of a failed job stay, unreferenced, for orphan removal.

        Raises:
            LakehouseError: what the workers raised.
        """
        packed = {position: group for position, group in enumerate(work) if not group.arranged}
        if packed:
            yield from self._pack(packed, storage)
        for position, group in enumerate(work):
            if group.arranged:
                yield position, self._arrange(group, storage)

    def _pack(
        self, work: Mapping[int, GroupRewrite], storage: Storage
    ) -> Iterator[tuple[int, list[DataFile]]]:
        """All at once, one task a group."""
        positions = list(work)
        frame = self._spark.range(0, len(work), 1, len(work))
        packed = map_batches(
            frame,
            _packer([work[position] for position in positions], storage.properties),
            "number long, record binary",
        )
        with unmarking():
            rows = packed.toArrow()
        files: dict[int, list[DataFile]] = {position: [] for position in positions}
        for number, record in zip(
            rows["number"].to_pylist(), rows["record"].to_pylist(), strict=True
        ):
            files[positions[number]].append(DataFile.from_record(orjson.loads(record)))
        yield from files.items()

    def _arrange(self, work: GroupRewrite, storage: Storage) -> list[DataFile]:
        """Shuffled by range, one task an output file."""
        shown = to_spark_schema(work.read.schema)
        groups = list(combine(work.tasks, _SPLITS))
        frame = read_groups(
            self._spark, groups, work.read, work.write.location, storage.properties, shown
        )
        with unmarking():
            if work.zorder:
                curve = self._curve(frame, work)
                with_curve = StructType(
                    [*shown.fields, StructField(_CURVE, LongType(), nullable=False)]
                )
                frame = map_batches(frame, _curver(work, curve), with_curve)
                keys: list[Column] = [F.col(_CURVE)]
            else:
                keys = sort_columns(work.write.sort_order, work.write.schema)
            if work.mixes_partitions:
                spec = work.write.spec.fields
                keys = [
                    *(
                        transform_column(field.transform, work.write.schema, field.source_id)
                        for field in spec
                    ),
                    *keys,
                ]
            arranged = (
                frame.repartitionByRange(work.expected_files, *keys)
                .sortWithinPartitions(*keys)
                .drop(_CURVE)
            )
            return written_files(arranged, work.write, storage)

    def _curve(self, frame: DataFrame, work: GroupRewrite) -> ZOrder:
        """Learned from about 100,000 rows."""
        rows = sum(task.data_file.record_count for task in work.tasks)
        columns = frame.select(*dict.fromkeys(name.partition(".")[0] for name in work.zorder))
        fraction = min(1.0, _SAMPLE_ROWS / max(1, rows))
        sampled = columns.sample(fraction=fraction, seed=0) if fraction < 1 else columns
        schema = work.write.schema.select(*columns.columns)
        return ZOrder.learn(
            work.zorder, schema, pa.Table.from_batches(coerce(sampled.toArrow(), schema))
        )


def _packer(
    work: Sequence[GroupRewrite], properties: Mapping[str, str]
) -> Callable[[Batches], Batches]:
    def pack(numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                group = work[number]
                with marking():
                    storage = storage_for(group.write.location, properties)
                    files = group.run(storage, task=task_name(), threads=1)
                records = [orjson.dumps(file.to_record()) for file in files]
                yield pa.RecordBatch.from_pydict(
                    {
                        "number": pa.array([number] * len(records), pa.int64()),
                        "record": pa.array(records, pa.binary()),
                    }
                )

    return pack


def _curver(work: GroupRewrite, curve: ZOrder) -> Callable[[Batches], Batches]:
    """Add the position on the curve; columns are known by their place in its sample."""
    names = list(dict.fromkeys(name.partition(".")[0] for name in work.zorder))
    schema = work.write.schema.select(*names)

    def add(batches: Batches) -> Batches:
        for batch in batches:
            (columns,) = coerce(batch.select(names), schema)
            positions = pa.array(curve.positions(pa.Table.from_batches([columns])))
            yield batch.append_column(_CURVE, positions)

    return add
