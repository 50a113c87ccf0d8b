"""Iceberg's tables and views as a Hive Metastore keeps them: parameters, columns, a location.

https://iceberg.apache.org/docs/latest/hive/
"""

from __future__ import annotations

import getpass
import time
from typing import Any

import orjson
from hive_metastore.ttypes import FieldSchema, SerDeInfo, StorageDescriptor, Table
from pyiceberg.schema import Schema

from lakehouse.catalog.metadata_files import Described
from lakehouse.catalog.metastores.metastore import hive_type
from lakehouse.catalog.metastores.metastore_pointers import LOCATION, PREVIOUS, TYPE, TYPES
from lakehouse.catalog.pointers import TABLE, Kind, PointerMove
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.partitioning.partition_terms import sort_order_to_json, spec_to_json
from lakehouse.spec.schema.schema_json import schema_to_json
from lakehouse.spec.views.view_metadata import ViewMetadata

_VALUE_MAX = 32_672
"""Characters of a parameter, in every database that a metastore may have."""
_COMMENT_MAX = 256
_OF_HIVE = "org.apache.iceberg.mr.hive."
_NAMES = {"gc.enabled": "external.table.purge"}
"""Properties that Iceberg's Java keeps by the name that Hive has for them."""
_DERIVED = ("current-snapshot-summary", "current-snapshot-id", "current-snapshot-timestamp-ms")
_STATISTICS = {
    "numFiles": "total-data-files",
    "numRows": "total-records",
    "totalSize": "total-files-size",
}


def hive_table(move: PointerMove, new: Described, present: Any | None, kind: Kind) -> Any:
    """What the metastore keeps after a move; of what it has, others' parameters stay.

    Args:
        move: the pointer, from where to where.
        new: what the metadata file holds that it moves to.
        present: what the metastore has; it is changed. None: a new one is made.
        kind: table or view.
    """
    now = int(time.time())
    table = present or Table(
        dbName=move.identifier.namespace[0],
        tableName=move.identifier.name,
        owner=new.properties.get("hive.metastore.table.owner") or getpass.getuser(),
        createTime=now,
        lastAccessTime=now,
        retention=2**31 - 1,
        partitionKeys=[],
        parameters={},
        tableType="EXTERNAL_TABLE" if kind is TABLE else "VIRTUAL_VIEW",
    )
    parameters = dict(table.parameters or {})
    for name in move.old.properties if move.old is not None else ():
        parameters.pop(_NAMES.get(name, name), None)
    parameters |= {_NAMES.get(name, name): value for name, value in new.properties.items()}
    # statistics of Hive's own, of which nobody knows whether they are right still
    parameters.pop("COLUMN_STATS_ACCURATE", None)
    parameters |= {TYPE: TYPES[kind.iceberg_type].upper(), LOCATION: move.location}
    if move.expected is not None:
        parameters[PREVIOUS] = move.expected
    if new.properties.get("engine.hive.enabled", "").lower() == "true":
        parameters["storage_handler"] = f"{_OF_HIVE}HiveIcebergStorageHandler"
    if isinstance(new, TableMetadata):
        parameters["EXTERNAL"] = "TRUE"
        _describe(parameters, new)
    elif isinstance(new, ViewMetadata):
        parameters["uuid"] = new.view_uuid
        dialects = new.current_version().dialects()
        text = dialects.get("hive") or next(iter(dialects.values()), None)
        sql = "" if text is None else text.sql
        vars(table).update(viewOriginalText=sql, viewExpandedText=sql)
    table.parameters = parameters
    table.sd = _storage(new, table.sd)
    return table


def _describe(parameters: dict[str, str], metadata: TableMetadata) -> None:
    """What Iceberg's Java tells of a table beside its properties."""
    for name in (*_DERIVED, *_STATISTICS):
        parameters.pop(name, None)
    documents = {
        "current-schema": schema_to_json(metadata.schema()),
        "default-partition-spec": spec_to_json(metadata.spec()),
        "default-sort-order": sort_order_to_json(metadata.sort_order()),
    }
    parameters["uuid"] = metadata.table_uuid
    parameters["snapshot-count"] = str(len(metadata.snapshots))
    snapshot = metadata.current_snapshot()
    if snapshot is not None:
        documents["current-snapshot-summary"] = dict(snapshot.summary)
        parameters["current-snapshot-id"] = str(snapshot.snapshot_id)
        parameters["current-snapshot-timestamp-ms"] = str(snapshot.timestamp_ms)
        parameters |= {
            name: snapshot.summary[total]
            for name, total in _STATISTICS.items()
            if total in snapshot.summary
        }
    for name, document in documents.items():
        text = orjson.dumps(document).decode()
        parameters.pop(name, None)
        if len(text) <= _VALUE_MAX:
            parameters[name] = text


def _storage(metadata: Any, present: Any | None) -> Any:
    """Columns and location; formats stay, since an engine may have set its own (Hive does)."""
    storage = present or StorageDescriptor(
        inputFormat="org.apache.hadoop.mapred.FileInputFormat",
        outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
        serdeInfo=SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        ),
        numBuckets=0,
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
    schema: Schema = metadata.schema()
    columns = [
        FieldSchema(field.name, hive_type(field.field_type), field.doc and field.doc[:_COMMENT_MAX])
        for field in schema.fields
    ]
    vars(storage).update(cols=columns, location=metadata.location)
    if metadata.properties.get("engine.hive.enabled", "").lower() == "true":
        vars(storage).update(
            inputFormat=f"{_OF_HIVE}HiveIcebergInputFormat",
            outputFormat=f"{_OF_HIVE}HiveIcebergOutputFormat",
            serdeInfo=SerDeInfo(serializationLib=f"{_OF_HIVE}HiveIcebergSerDe", parameters={}),
        )
    return storage
