"""Columnar manifests that someone broke or forged: the plan is the one without them."""

from __future__ import annotations

import dataclasses
import random
import re

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakehouse as lh
from lakehouse.maintenance.manifest_rewrite import ManifestRewriteOptions, rewrite_manifests
from lakehouse.manifests.manifest_reader import decode_avro
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.spec.manifests.columnar_manifest import (
    checksum_of,
    columnar_path,
    encode_columnar,
    open_columnar,
)
from lakehouse.spec.metadata.table_metadata import types_of

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("d", pa.float64())])
WHERES = ["id = 17", "s = 's2' and d > 20", "d < 5", "id in (3, 77) or s = 's4'", None]


def made(name="raw.t"):
    catalog = lh.load_catalog("memory://twin-fuzz/warehouse")
    table = catalog.create_table(name, SCHEMA, partition_by=["bucket(40, id)", "s"])
    rows = {
        "id": list(range(120)),
        "s": [f"s{n % 5}" for n in range(120)],
        "d": [n / 3 for n in range(120)],
    }
    table.append(pa.table(rows, schema=SCHEMA))
    return table


def manifest_of(table):
    return table.inspect.manifests()["path"][0].as_py()


TABLE = made()
MANIFEST = manifest_of(TABLE)
COLUMNAR = columnar_path(MANIFEST)
RAW = bytes(TABLE.storage.read(COLUMNAR))
FOOTER = len(RAW) - 8 - int.from_bytes(RAW[-8:-4], "little")


def entries_of(table):
    path = manifest_of(table)
    files = [(path, table.storage.read(path))]
    return decode_avro(files, table.spec(), types_of(table.metadata)).entries


def planned(where, *, columnar=True, table=TABLE):
    plan = plan_scan(
        ScanRequest(metadata=table.metadata, where=where, use_columnar=columnar),
        table.storage,
        cache=None,
    )
    return list(plan.files), plan.report


EXPECTED = {where: planned(where, columnar=False)[0] for where in WHERES}


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
    TABLE.storage.write(COLUMNAR, raw)
    files, report = planned(where)
    assert files == EXPECTED[where]
    assert report.data_manifests.read_columnar or report.notes


def test_every_byte_of_the_footer_is_watched():
    rng = random.Random(7)
    for at in range(FOOTER, len(RAW)):
        data = bytearray(RAW)
        data[at] ^= rng.randrange(1, 256)
        with pytest.raises((lh.CorruptMetadataError, pa.ArrowException, OSError)):
            open_columnar(pa.BufferReader(bytes(data)), checksum_of(MANIFEST))


COLUMNS = entries_of(TABLE).table.schema


def forged_column(draw, name, count):
    """Other values of the column's type, the same for every entry; or other entries' values."""
    kind = COLUMNS.field(name).type
    if pa.types.is_integer(kind):
        value = draw(st.sampled_from([-9, -1, 0, 2, 777, 2**31 - 1]))
    elif pa.types.is_floating(kind):
        value = draw(st.sampled_from([-1e300, -1.0, 0.0, 1e300, float("nan")]))
    elif pa.types.is_string(kind):
        value = draw(st.sampled_from(["", "/etc/passwd", "s0", "zz", "\uffff"]))
    else:
        return None
    return pa.array([value] * count, kind)


@st.composite
def forged(draw):
    """A perfect columnar manifest of entries that the manifest does not have."""
    table = entries_of(TABLE).table
    for name in draw(st.lists(st.sampled_from(COLUMNS.names), min_size=1, max_size=3)):
        match draw(st.sampled_from(["value", "drop", "null", "shuffle"])):
            case "value":
                column = forged_column(draw, name, len(table))
            case "drop":
                table = table.drop_columns([name]) if name in table.column_names else table
                continue
            case "null":
                column = pa.nulls(len(table), COLUMNS.field(name).type)
            case _:
                column = (
                    table[name].take(list(range(len(table)))[::-1])
                    if (name in table.column_names)
                    else None
                )
        if column is not None and name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, column)
    if draw(st.booleans()):
        table = table.slice(0, draw(st.integers(0, len(table))))
    return encode_columnar(dataclasses.replace(entries_of(TABLE), table=table)).data


@pytest.mark.slow
@settings(max_examples=max(200, settings.default.max_examples))
@given(forged(), st.sampled_from(WHERES))
def test_a_forged_twin_changes_no_plan(raw, where):
    """Every checksum in it is right, and it says of itself whatever it likes."""
    TABLE.storage.write(COLUMNAR, raw)
    files, report = planned(where)
    assert files == EXPECTED[where]
    assert raw == RAW or report.notes


def test_a_body_whose_own_checksums_are_right_is_not_believed():
    """The footer as it was, other pages of the same length behind it."""
    lies = entries_of(TABLE).table
    place = lies.column_names.index("lower.1")
    other = pa.chunked_array([lies["lower.1"].to_pylist()[::-1]], lies["lower.1"].type)
    data = encode_columnar(
        dataclasses.replace(entries_of(TABLE), table=lies.set_column(place, "lower.1", other))
    ).data
    TABLE.storage.write(COLUMNAR, data[:FOOTER] + RAW[FOOTER:])
    for where in WHERES:
        files, _ = planned(where)
        assert files == EXPECTED[where]


@pytest.mark.parametrize(
    "lies", [{"lower.1": -9, "upper.1": -5}, {"record_count": 777}, {"status": 2}]
)
def test_no_verb_believes_a_forged_columnar_manifest(lies):
    """Deletes delete, and no rewrite of manifests makes the lie permanent."""
    table = made(f"raw.{'_'.join(lies)}".replace("lower.1_upper.1", "bounds"))
    told = entries_of(table)
    for column, value in lies.items():
        values = pa.array([value] * len(told), told.table[column].type)
        place = told.table.column_names.index(column)
        told = dataclasses.replace(told, table=told.table.set_column(place, column, values))
    table.storage.write(columnar_path(manifest_of(table)), encode_columnar(told).data)
    assert table.scan().count() == 120
    assert table.scan("id = 5").to_arrow().num_rows == 1
    table.delete("id = 5")
    assert table.refresh().scan().to_arrow().num_rows == 119
    rewrite_manifests(table.catalog, table.identifier, ManifestRewriteOptions(force=True))
    assert table.refresh().scan().count() == 119
    assert sum(table.inspect.files()["record_count"].to_pylist()) == 119


def test_names_of_manifests_hold_the_checksums_of_columnar_ones():
    checksum = checksum_of(MANIFEST)
    assert re.fullmatch(r"[0-9a-f]{32}", checksum)
    assert encode_columnar(entries_of(TABLE)).checksum == checksum
    small = lh.load_catalog("memory://twin-fuzz/warehouse").create_table("raw.small", SCHEMA)
    small.append(pa.table({"id": [1], "s": ["a"], "d": [0.5]}, schema=SCHEMA))
    assert checksum_of(manifest_of(small)) is None
    for foreign in ("a-m0.avro", f"{'a' * 32}.avro", f"x-t{'g' * 32}.avro", f"x-t{'a' * 32}.orc"):
        assert checksum_of(foreign) is None
