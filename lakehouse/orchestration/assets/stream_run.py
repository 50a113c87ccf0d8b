"""A stream of Spark as an asset: it runs as long as its run, and the asset's page follows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.audit import MAIN
from lakehouse.orchestration.asset_results import REPLAYED_TAG, explained, stamp
from lakehouse.orchestration.assets.asset_table import AssetTable
from lakehouse.orchestration.lineage.materialization import data_version, materialization_metadata
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.run_publication import PUBLISH_TAG
from lakehouse.spark.attached_session import attach
from lakehouse.spec.metadata.commit_names import head_of

STREAM = "lakehouse/stream"
"""Metadata: what Spark says of the last batch; begins the entries that Dagster plots."""
LAG = f"{STREAM}_snapshots_behind"
_CATALOG = "lakehouse_of_asset"
_OUTPUT_MODES = {"append": "append", "overwrite": "complete", "upsert": "update"}

StreamEvent = dg.AssetMaterialization | dg.AssetObservation | dg.MaterializeResult[Any]


def run_stream(
    context: dg.AssetExecutionContext,
    lakehouse: LakehouseResource,
    rows: DataFrame,
    checkpoint: str,
    *,
    trigger: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
    report_every: timedelta = timedelta(minutes=1),
    namespace: str = "default",
) -> Iterator[StreamEvent]:
    """Stream rows into the asset's table until the stream or the run ends, and tell how it gets on.

    Metadata of the asset says how its table is laid out and written, as of plain assets:
    `write_mode` `append` adds the rows of a batch, `upsert` replaces those that have the
    `upsert_keys`, `overwrite` all. The next run continues, from the checkpoint, what was
    terminated, killed or failed.

    Args:
        context: of the asset.
        lakehouse: where its table is.
        rows: a streaming frame.
        checkpoint: a folder, of this stream alone, where Spark notes what it has read.
        trigger: of `DataStreamWriter.trigger`; None: batches follow one another until the run is
            terminated.
        options: of the write.
        report_every: new rows become a materialization, anything else an observation.
        namespace: of keys with one part.

    Raises:
        Failure: the stream cannot start, or has failed.
    """
    lake, asset = lakehouse.lake(), context.asset_key.to_user_string()
    with explained():
        target = _target(context, asset, namespace)
        if REPLAYED_TAG in context.run.tags:
            raise InvalidInputError(
                f"{asset} is a stream: what it reads its checkpoint says, not the snapshots that "
                "are recorded. It cannot be replayed",
                asset=asset,
            )
        if lakehouse.run_branch is not None:
            raise InvalidInputError(
                f"{asset}: what this run writes is published when it ends, and a stream notes what "
                f"it has read at once. Give the run the tag {PUBLISH_TAG} = step",
                asset=asset,
            )
        table = target.ready(lake, rows.schema, None, context.log.warning)
    attach(rows.sparkSession, lake, _CATALOG)
    branch, stamped = target.branch or MAIN, stamp(context, context.asset_key).summary()
    place = f"{_CATALOG}.{target.name}" + (f".branch_{branch}" if target.branch else "")
    writer = rows.writeStream.outputMode(_OUTPUT_MODES[target.write_mode]).options(
        **{f"snapshot-property.{key}": text for key, text in stamped.items()},
        **({"merge-keys": ",".join(target.upsert_keys)} if target.upsert_keys else {}),
        **(options or {}),
        checkpointLocation=checkpoint,
    )
    if trigger is not None:
        writer = writer.trigger(**trigger)
    head, batch = head_of(table.metadata, branch), -1
    try:
        query = writer.toTable(place)
        try:
            while not query.awaitTermination(report_every.total_seconds()):  # type: ignore[arg-type]
                before, head = (head, batch), head_of(table.refresh().metadata, branch)
                metadata = _metadata_of(query, checkpoint)
                batch = metadata["lakehouse/stream_batches"].value
                if head is not None and head != before[0]:
                    yield dg.AssetMaterialization(
                        context.asset_key,
                        metadata={**materialization_metadata(table, head, {}), **metadata},
                        tags={DATA_VERSION_TAG: data_version(head).value},
                    )
                elif batch != before[1] or (LAG in metadata and metadata[LAG].value):
                    yield dg.AssetObservation(context.asset_key, metadata=metadata)
        finally:
            query.stop()
    except StreamingQueryException as error:
        raise dg.Failure(f"{asset}: the stream failed: {error}") from None
    head = head_of(table.refresh().metadata, branch)
    yield dg.MaterializeResult(
        metadata={
            **({} if head is None else materialization_metadata(table, head, {})),
            **_metadata_of(query, checkpoint),
        },
        data_version=None if head is None else data_version(head),
    )


def _target(context: dg.AssetExecutionContext, asset: str, namespace: str) -> AssetTable:
    """The table of the asset. Raises InvalidInputError."""
    metadata = context.assets_def.metadata_by_key[context.asset_key]
    if "write_mode" not in metadata or context.has_partition_key:
        raise InvalidInputError(
            f"asset {asset} is a stream: it has no partitions, and its metadata says in "
            "'write_mode' what a batch does: append, upsert or overwrite",
            asset=asset,
        )
    return AssetTable.of(context.asset_key, metadata, namespace)


def _metadata_of(query: Any, checkpoint: str) -> dict[str, dg.MetadataValue[Any]]:
    """What a query tells of its last batch."""
    last = query.lastProgress
    progress: dict[str, Any] = {"batchId": -1, "sources": []}
    if last is not None:
        progress = json.loads(last.json)
    metadata: dict[str, dg.MetadataValue[Any]] = {
        f"{STREAM}_checkpoint": dg.MetadataValue.path(checkpoint),
        f"{STREAM}_batches": dg.MetadataValue.int(progress["batchId"] + 1),
        STREAM: dg.MetadataValue.json(progress),
    }
    if last is not None:
        metadata[f"{STREAM}_batch_rows"] = dg.MetadataValue.int(progress["numInputRows"])
        took = progress["durationMs"].get("triggerExecution", 0) / 1000
        metadata[f"{STREAM}_batch_seconds"] = dg.MetadataValue.float(took)
    behind = [source.get("metrics") or {} for source in progress["sources"]]
    behind = [metrics for metrics in behind if "snapshotsBehind" in metrics]
    if behind:
        metadata[LAG] = dg.MetadataValue.int(
            max(int(metrics["snapshotsBehind"]) for metrics in behind)
        )
        seconds = max(float(metrics["secondsBehind"]) for metrics in behind)
        metadata[f"{STREAM}_seconds_behind"] = dg.MetadataValue.float(seconds)
    return metadata
