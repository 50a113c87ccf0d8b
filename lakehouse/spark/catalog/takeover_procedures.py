"""Procedures that take tables over: Spark's own Parquet files where they lie, and to elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.sql import DataFrame

from lakehouse.errors import (
    CommitStateUnknownError,
    InvalidInputError,
    InvalidLocationError,
    LakehouseError,
    UnsupportedFeatureError,
)
from lakehouse.maintenance.table_path import rewrite_table_path
from lakehouse.spark.catalog.procedure import Call, Procedure, Rows
from lakehouse.spark.hadoop_locations import spark_location
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.partitioning.partition_terms import is_hidden, partition_texts
from lakehouse.storage.location import canonical, overlap

_OF_SNAPSHOTS = {"gc.enabled": "false", "snapshot": "true"}


@dataclass(frozen=True)
class Source:
    """Parquet files below one folder, laid out like Hive's.

    Attributes:
        name: as it was given.
        location: the folder.
        rows: what Spark reads of it.
        partitioned_by: names of columns whose values are in the names of folders.
        files: how many there are.
    """

    name: str
    location: str
    rows: DataFrame
    partitioned_by: Sequence[str]
    files: int


def _add_files(call: Call) -> Rows:
    """Take in the Parquet files of a folder, or of a table of this session, as they lie there."""
    table, name = call.table(), call.arguments["source_table"]
    if call.get("check_duplicate_files") is False:
        raise UnsupportedFeatureError(
            f"CALL system.add_files: a file that {table.name} has already would hold its rows "
            "twice, so check_duplicate_files stays true"
        )
    folder = _folder(name) or _source(call).location
    snapshot = table.import_hive(folder, partitions=call.get("partition_filter"))
    counts = (snapshot.summary.get(key) for key in ("added-data-files", "changed-partition-count"))
    return [tuple(int(count or 0) for count in counts)]


def _snapshot(call: Call) -> Rows:
    """Make a table over the files of a Parquet table of this session, which stays as it is."""
    source, name = _source(call), call.name()
    properties = dict(call.get("properties") or {})
    if claimed := _OF_SNAPSHOTS.keys() & properties.keys():
        raise InvalidInputError(
            f"CALL system.snapshot: {', '.join(sorted(claimed))} cannot be set: the files belong "
            f"to {source.name}, so nothing may delete them"
        )
    identifier = Identifier.parse(name)
    location = call.get("location") or call.lake.catalog.default_location(identifier)
    if overlap(location, source.location):
        raise InvalidLocationError(
            f"CALL system.snapshot: {name} would be in {location}, which overlaps with the folder "
            f"of {source.name}, {source.location}: choose another location",
            location=location,
        )
    table = call.lake.create_table(
        name,
        source.rows.schema,
        partition_by=source.partitioned_by,
        properties={**properties, **_OF_SNAPSHOTS},
        location=location,
    )
    if not source.files:
        return [(0,)]
    try:
        taken = table.import_hive(source.location)
    except CommitStateUnknownError:
        raise
    except LakehouseError:
        call.lake.drop_table(name)
        raise
    return [(int(taken.summary["added-data-files"]),)]


def _migrate(call: Call) -> Rows:
    """Refuse: a table of spark_catalog cannot become one of another catalog."""
    table = call.arguments["table"]
    raise UnsupportedFeatureError(
        f"CALL system.migrate: {table} is a table of spark_catalog, whose place no table of "
        f"{call.catalog} can take. CALL {call.catalog}.system.snapshot('{table}', 'namespace.name')"
        f" makes a table of {call.catalog} over its files, to try; CALL {call.catalog}.system."
        "add_files takes them into a table that is there, and after rewrite_data_files with "
        f"'rewrite-all' that table needs none of them: only then drop {table}"
    )


def _rewrite_table_path(call: Call) -> Rows:
    """Stage a table's metadata with a prefix of its paths replaced, and list the files to copy."""
    prefixes = [call.arguments[argument] for argument in ("source_prefix", "target_prefix")]
    named = ("start_version", "end_version", "staging_location")
    staged = rewrite_table_path(
        call.lake.catalog,
        Identifier.parse(call.name()),
        *prefixes,
        **{argument: call.get(argument) for argument in named},
        create_file_list=call.get("create_file_list", True),
    )
    return [
        (
            staged.latest_version,
            staged.file_list_location or "N/A",
            staged.rewritten_manifests,
            staged.rewritten_delete_files,
        )
    ]


def _source(call: Call) -> Source:
    """What `source_table` names: `parquet.`folder``, or a table of the session.

    Raises:
        InvalidInputError: it is no Parquet table, or Spark reads other files of it than those of
            its folder (partitions that lie elsewhere, filters on names of files).
    """
    name: str = call.arguments["source_table"]
    location = _folder(name)
    if location is None:
        location, rows = _place(call, name), call.spark.table(name)
    else:
        rows = call.spark.read.parquet(spark_location(location))
    storage = call.lake.catalog.storage(location)
    root = location.rstrip("/")
    listed = {canonical(stored.location): stored.location for stored in storage.list(root)}
    texts = {
        key: partition_texts(relative)
        for key, location in listed.items()
        if not is_hidden(relative := location[len(root) :].lstrip("/"))
    }
    read = {canonical(unquote(path)) for path in rows.inputFiles()}
    if differing := sorted(read ^ texts.keys()):
        raise InvalidInputError(
            f"{differing[0]} is {'not ' if differing[0] in read else ''}in the folder of {name}, "
            f"{location}, and Spark {'reads' if differing[0] in read else 'does not read'} it: "
            f"{name} is not what its folder holds"
        )
    columns = next((list(text) for text in texts.values()), [])
    return Source(name, location, rows, columns, len(texts))


def _folder(name: str) -> str | None:
    """Of `parquet.`folder``; None for the name of a table."""
    kind, dot, path = name.partition(".")
    return path.strip("`") if dot and kind.strip("`").lower() == "parquet" else None


def _place(call: Call, name: str) -> str:
    """The folder of a Parquet table of the session."""
    described = {row[0]: row[1] for row in call.spark.sql(f"DESCRIBE EXTENDED {name}").collect()}
    if "Location" not in described:
        raise InvalidInputError(f"{name} has no folder of files that could be taken in")
    provider = described.get("Provider", "")
    if provider.lower() not in ("parquet", "hive"):
        raise InvalidInputError(
            f"{name} is a table of {provider}: only Parquet files of Spark's own tables are taken"
        )
    return str(described["Location"])


PROCEDURES = (
    Procedure(
        "add_files",
        {"table": "STRING", "source_table": "STRING"},
        {
            "partition_filter": "MAP<STRING, STRING>",
            "check_duplicate_files": "BOOLEAN",
            "parallelism": "INT",
        },
        {"added_files_count": "BIGINT", "changed_partition_count": "BIGINT"},
        _add_files,
    ),
    Procedure(
        "snapshot",
        {"source_table": "STRING", "table": "STRING"},
        {
            "location": "STRING",
            "properties": "MAP<STRING, STRING>",
            "parallelism": "INT",
            "ignore_missing_files": "BOOLEAN",
        },
        {"imported_files_count": "BIGINT"},
        _snapshot,
    ),
    Procedure(
        "migrate",
        {"table": "STRING"},
        {
            "properties": "MAP<STRING, STRING>",
            "drop_backup": "BOOLEAN",
            "backup_table_name": "STRING",
            "parallelism": "INT",
            "ignore_missing_files": "BOOLEAN",
        },
        {"migrated_files_count": "BIGINT"},
        _migrate,
    ),
    Procedure(
        "rewrite_table_path",
        {"table": "STRING", "source_prefix": "STRING", "target_prefix": "STRING"},
        {
            "start_version": "STRING",
            "end_version": "STRING",
            "staging_location": "STRING",
            "create_file_list": "BOOLEAN",
        },
        {
            "latest_version": "STRING",
            "file_list_location": "STRING",
            "rewritten_manifest_file_paths_count": "INT",
            "rewritten_delete_file_paths_count": "INT",
        },
        _rewrite_table_path,
    ),
)
