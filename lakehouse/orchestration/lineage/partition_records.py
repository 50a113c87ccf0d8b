"""What Dagster's records say of the partitions that a run over several leaves alone.

Dagster records a materialization of every partition of a run, all with one data version. One that
the run did not write is given the record back that it had, so that what reads it is not out of
sync.
"""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

_MATERIALIZED = dg.DagsterEventType.ASSET_MATERIALIZATION


def newest_records(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Sequence[str]
) -> list[dg.AssetMaterialization]:
    """The newest materialization of each of the partitions that has one."""
    if not partitions:
        return []
    newest = instance.event_log_storage.get_latest_storage_id_by_partition(
        key, _MATERIALIZED, set(partitions)
    )
    if not newest:
        return []
    fetched = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=key, storage_ids=sorted(newest.values())), len(newest)
    )
    records = [record.asset_materialization for record in fetched.records]
    return [record for record in records if record is not None]


def record_again(
    context: dg.AssetExecutionContext, records: Sequence[dg.AssetMaterialization]
) -> None:
    """Make them the newest of their partitions; to be called after the run's own are recorded."""
    for record in records:
        context.log_event(record)
