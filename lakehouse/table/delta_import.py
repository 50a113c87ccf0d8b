"""A Delta table becomes an Iceberg table of the same files: its log is read, no data.

The library `deltalake` reads the log. Partition values come from the log, as Delta's files lack the
columns; rows that deletion vectors delete are deleted by vectors of this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import deltalake
import numpy as np
import pyarrow as pa

from lakehouse.catalog.catalog_by_uri import absolute
from lakehouse.errors import InvalidInputError, UnsupportedFeatureError
from lakehouse.row_changes.add_files import describe_files
from lakehouse.spec.identifier import full_uri
from lakehouse.storage.storage_protocol import FileInfo
from lakehouse.table.table import Table
from lakehouse.transaction.decided_rows import DecidedRows, Positions

_READABLE = {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
_S3 = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
}


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """One version of a Delta table.

    Attributes:
        location: its folder.
        version: its number.
        schema: its columns.
        partition_by: its partition columns.
        files: each data file, with the texts of its partition values.
        deleted: ascending positions of deleted rows, by location of the data file.
    """

    location: str
    version: int
    schema: pa.Schema
    partition_by: tuple[str, ...]
    files: tuple[tuple[FileInfo, Mapping[str, str | None]], ...]
    deleted: Mapping[str, Positions]


def read_delta(
    location: str, properties: Mapping[str, str], version: int | None = None
) -> DeltaTable:
    """Read the log of a Delta table.

    Args:
        location: its folder.
        properties: of the storage, such as `s3.endpoint`.
        version: which version; None is the newest.

    Raises:
        InvalidInputError: there is no Delta table, or not that version.
        UnsupportedFeatureError: the table has a feature without which its files cannot be read
            right, such as column mapping, or a binary partition column.
    """
    root = absolute(location.rstrip("/"))
    options = {theirs: properties[ours] for ours, theirs in _S3.items() if ours in properties}
    if options.get("AWS_ENDPOINT_URL", "").startswith("http:"):
        options["AWS_ALLOW_HTTP"] = "true"
    try:
        table = deltalake.DeltaTable(root, version=version, storage_options=options)
    except deltalake.exceptions.DeltaError as error:
        raise InvalidInputError(f"No Delta table is read at {root}: {error}") from error
    described = table.metadata()
    needed = set(table.protocol().reader_features or ()) - _READABLE
    if described.configuration.get("delta.columnMapping.mode", "none") != "none":
        needed.add("columnMapping")
    if needed:
        raise UnsupportedFeatureError(
            f"The Delta table {root} needs {', '.join(sorted(needed))}, which is not taken over. "
            "Rewrite the table without it, by a copy in the engine that wrote it."
        )
    schema, columns = pa.schema(table.schema().to_arrow()), tuple(described.partition_columns)
    if any(pa.types.is_binary(schema.field(name).type) for name in columns):
        raise UnsupportedFeatureError(
            f"The Delta table {root} is partitioned by a binary column, whose values stand in its "
            "log as texts that its own engines read differently. Rewrite it without that partition."
        )
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    files = tuple(
        (
            FileInfo(_location(root, action["path"]), action["size_bytes"], 0),
            {name: _text(action.get(f"partition.{name}")) for name in columns},
        )
        for action in actions
    )
    vectors = pa.table(table.deletion_vectors()).to_pylist()
    deleted = {
        full_uri(unquote(vector["filepath"])): np.flatnonzero(
            ~np.array(vector["selection_vector"], dtype=np.bool_)
        ).astype(np.int64)
        for vector in vectors
    }
    return DeltaTable(root, table.version(), schema, columns, files, deleted)


def take_over(table: Table, delta: DeltaTable) -> None:
    """Add the files of a Delta table to an empty table with its schema, in one commit.

    Raises what `describe_files` raises, which needs at least one file.
    """
    added = describe_files(delta.files, table.metadata, None, table.storage, table.name)
    transaction = added.add_to(table.transaction())
    losing = [
        DecidedRows(file, delta.deleted[file.file_path])
        for file in added.files
        if file.file_path in delta.deleted
    ]
    if losing:
        transaction.row_delta(rows=losing)
    transaction.commit({"lakehouse.delta-version": str(delta.version)})


def _location(root: str, path: str) -> str:
    below = unquote(path)
    return full_uri(below) if "://" in below or below.startswith("/") else f"{root}/{below}"


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
