"""Columnar manifests that someone broke: the plan is the one without them, and never a wrong one."""

from __future__ import annotations

import dataclasses
import random

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakehouse as lh
from lakehouse.scan.planner import plan_scan
from lakehouse.scan.request import ScanRequest
from lakehouse.spec.columnar_manifest import encode_twin, manifest_checksum, open_twin, twin_path

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("d", pa.float64())])
WHERES = ["id = 17", "s = 's2' and d > 20", "d < 5", "id in (3, 77) or s = 's4'", None]


def made():
    catalog = lh.load_catalog("memory://twin-fuzz/warehouse")
    table = catalog.create_table("raw.t", SCHEMA, partition_by=["bucket(40, id)", "s"])
    rows = {
        "id": list(range(120)),
        "s": [f"s{n % 5}" for n in range(120)],
        "d": [n / 3 for n in range(120)],
    }
    table.append(pa.table(rows, schema=SCHEMA))
    return table


TABLE = made()
TWIN = twin_path(TABLE.inspect.manifests()["path"][0].as_py())
RAW = bytes(TABLE.storage.read(TWIN))
FOOTER = len(RAW) - 8 - int.from_bytes(RAW[-8:-4], "little")


def planned(where, *, twins=True):
    plan = plan_scan(
        ScanRequest(metadata=TABLE.metadata, where=where, use_twins=twins),
        TABLE.storage,
        cache=None,
    )
    return list(plan.files), plan.report


EXPECTED = {where: planned(where, twins=False)[0] for where in WHERES}


@st.composite
def damaged(draw):
    data = bytearray(RAW)
    match draw(st.sampled_from(["cut", "footer", "anywhere", "insert"])):
        case "cut":
            return bytes(data[: draw(st.integers(0, len(data) - 1))])
        case "insert":
            at = draw(st.integers(0, len(data) - 1))
            data[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
        case place:
            for _ in range(draw(st.integers(1, 4))):
                data[draw(st.integers(FOOTER if place == "footer" else 0, len(data) - 1))] = draw(
                    st.integers(0, 255)
                )
    return bytes(data)


@settings(max_examples=max(300, settings.default.max_examples))
@example(RAW, "id = 17")
@given(damaged(), st.sampled_from(WHERES))
def test_a_damaged_twin_changes_no_plan(raw, where):
    TABLE.storage.write(TWIN, raw)
    files, report = planned(where)
    assert files == EXPECTED[where]
    assert report.data_manifests.read_columnar or report.notes


def test_every_byte_of_the_footer_is_watched():
    rng = random.Random(7)
    for at in range(FOOTER, len(RAW)):
        data = bytearray(RAW)
        data[at] ^= rng.randrange(1, 256)
        with pytest.raises((lh.CorruptMetadataError, pa.ArrowException, OSError)):
            open_twin(pa.BufferReader(bytes(data)))


def test_a_twin_without_a_column_is_ignored():
    """Also one whose checksum is right."""
    manifest = TABLE.inspect.manifests()["path"][0].as_py()
    data = bytes(TABLE.storage.read(manifest))
    from lakehouse.scan.avro import decode_avro
    from lakehouse.scan.types_of import types_of

    entries = decode_avro(TABLE.storage, manifest, TABLE.spec(), types_of(TABLE.metadata)).entries
    for column in ("partition.1000", "file_path", "sequence_number"):
        less = dataclasses.replace(entries, table=entries.table.drop_columns([column]))
        twin = encode_twin(
            less,
            manifest_path=manifest,
            manifest_length=len(data),
            checksum=manifest_checksum(data),
        )
        TABLE.storage.write(TWIN, twin)
        files, report = planned("id = 17")
        assert files == EXPECTED["id = 17"]
        assert any(column in note for note in report.notes), column
