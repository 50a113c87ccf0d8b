"""Spark Connect, without a JVM at hand: files are planned here, Spark reads them by path.

Spark cannot ask back, so files are chosen once, when the frame is made, by the scan's own filter;
filters of later queries prune row groups only. Give the filter to the scan:
`table.scan(where=...).to_spark(spark)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spark.hadoop_locations import spark_location

READ_OPTIONS: Mapping[str, str] = {
    # columns resolve by Iceberg field id; a file without any id is an error, where `true` would
    # show it as all nulls
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    "spark.sql.timeType.enabled": "true",
}
PARQUET_OPTIONS: Mapping[str, str] = {
    # Iceberg's dates and timestamps are proleptic Gregorian, whoever wrote the file
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    # a page that changed after it was written is an error; decoded all the same it may be other
    # rows
    "parquet.page.verify-checksum.enabled": "true",
}

_GLOB = re.compile(r"([\\{}\[\]*?])")


def is_remote(spark: SparkSession) -> bool:
    """Whether the session has no JVM in reach of this process."""
    return getattr(spark, "_jvm", None) is None


def ready(spark: SparkSession) -> None:
    """Set in the session what reading needs: Parquet columns are resolved by field id.

    Nested column pruning goes off: it takes the field id from the top of a pruned path, and then a
    struct that was renamed is looked for by its new name in files that have the old one, and read
    as nulls.
    """
    for key, value in {
        **READ_OPTIONS,
        "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    }.items():
        if spark.conf.get(key, None) != value:
            spark.conf.set(key, value)


def read_paths(spark: SparkSession, name: str, files: pa.Table, shown: StructType) -> DataFrame:
    """A frame over files.

    Args:
        spark: a session.
        name: the table, for messages.
        files: column `file_path`.
        shown: the Spark schema, with field ids in its metadata.

    Raises:
        UnsupportedFeatureError: a file that Spark would pass over for its name, or cannot reach.
    """
    ready(spark)
    paths = [_path(location, name) for location in files.column("file_path").to_pylist()]
    if not paths:
        return spark.createDataFrame([], shown)
    # without partition inference: folders say nothing that the files and their metadata do not
    reader = spark.read.schema(shown).options(**PARQUET_OPTIONS, recursiveFileLookup="true")
    return reader.parquet(*paths)


def refuse_equality_deletes(name: str, deletes: Sequence[object]) -> None:
    """Raises UnsupportedFeatureError when a planned file has equality deletes."""
    if deletes:
        raise UnsupportedFeatureError(
            f"{name}: {len(deletes)} files have equality deletes, which a Spark Connect session "
            "cannot apply; compact the table, "
            'read it with to_arrow(), or with spark.read.format("lakehouse")',
            table=name,
        )


def _path(location: str, table: str) -> str:
    leaf = location.rpartition("/")[2]
    if leaf.startswith(("_", ".")) or leaf.endswith("._COPYING_"):
        raise UnsupportedFeatureError(
            f"{table}: Spark passes over files named like {location}, so a Spark Connect session "
            "cannot read the table; compact it, or read it with to_arrow()",
            table=table,
            location=location,
        )
    return _GLOB.sub(r"\\\1", spark_location(location))
