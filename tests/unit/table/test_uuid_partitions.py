"""Tables partitioned by UUIDs: summaries mean the same in both orders, and go on pruning."""

from __future__ import annotations

import random
import struct
import uuid

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.maintenance.manifest_rewrite import ManifestRewriteOptions, plan_manifest_rewrite
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests

SCHEMA = pa.schema([("day", pa.date32()), ("tenant", pa.uuid()), ("n", pa.int64())])
RANDOM = random.Random(3)
TENANTS = [uuid.UUID(int=RANDOM.getrandbits(128), version=4) for _ in range(12)]
# UUIDs that no version of the RFC makes: the first bit of the second half is not set
ODD = [uuid.UUID(int=0), uuid.UUID(int=1), uuid.UUID(int=2**127)]


def rows(day: int, tenants: list[uuid.UUID | None]) -> pa.Table:
    raw = pa.array([None if tenant is None else tenant.bytes for tenant in tenants], pa.binary(16))
    column = pa.ExtensionArray.from_storage(pa.uuid(), raw)
    days = pa.array([day] * len(tenants), pa.int32()).cast(pa.date32())
    return pa.table([days, column, pa.array(range(len(tenants)))], schema=SCHEMA)


@pytest.fixture(params=[["tenant"], ["day", "tenant"]], ids=["tenant", "day and tenant"])
def table(tmp_path, request):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    properties = {"commit.manifest.min-count-to-merge": "4"}
    table = catalog.create_table("db.t", SCHEMA, partition_by=request.param, properties=properties)
    for day in range(6):
        table.append(rows(day, RANDOM.sample(TENANTS, 6) + ([None, *ODD] if day % 2 else [])))
    return table


def manifests(table):
    return load_manifests(table.storage, table.metadata.current_snapshot())


def tenants_of(table, manifest):
    position = len(table.spec().fields) - 1
    found = [
        partition[position]
        for partition in ManifestReader.of(table.storage, table.metadata)
        .entries(manifest)
        .partitions()
    ]
    return position, [one.bytes for one in found if one is not None]


def check_summaries(table):
    for manifest in manifests(table):
        position, found = tenants_of(table, manifest)
        summary = manifest.partitions[position]
        for key in (bytes, lambda value: struct.unpack(">qq", value)):
            assert summary.lower_bound == min(found, key=key)
            assert summary.upper_bound == max(found, key=key)


def check_rows(table):
    everything = table.scan().to_arrow()["tenant"].to_pylist()
    for tenant in (*TENANTS, *ODD):
        assert table.scan(where=f"tenant = '{tenant}'").count() == everything.count(tenant)


def test_summaries_hold_in_both_orders_whatever_is_done(table):
    check_summaries(table)
    check_rows(table)
    table.delete(f"tenant = '{TENANTS[0]}'")
    check_summaries(table)
    table.rewrite_manifests(ManifestRewriteOptions(force=True))
    check_summaries(table)
    check_rows(table)
    table.append(rows(9, TENANTS))
    check_summaries(table)


def test_rewriting_manifests_ends(table):
    table.rewrite_manifests(ManifestRewriteOptions(force=True))
    plan = plan_manifest_rewrite(table.catalog, table.identifier)
    assert not plan.reasons


def test_every_field_of_the_partition_prunes_manifests(tmp_path):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    table = catalog.create_table("db.t", SCHEMA, partition_by=["day", "tenant"])
    for day in range(3):
        table.append(rows(day, TENANTS))
    assert len(manifests(table)) == 6
    for where, read in (
        ("day = '1970-01-02'", 2),
        (f"tenant = '{max(TENANTS)}'", 3),
        (f"tenant > '{TENANTS[0]}'", 6 if TENANTS[0].bytes[0] < 128 else 3),
        (f"tenant = '{min(TENANTS)}' and day = '1970-01-01'", 1),
    ):
        assert table.scan(where=where).plan().report.data_manifests.read == read, where
