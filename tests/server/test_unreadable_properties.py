"""What another engine set and we cannot read never locks a table: it opens and can be mended."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError, InvalidPropertyError
from lakehouse.spec.table_properties import all_properties
from lakehouse.sql_statements import StatementEngine
from tests.server.conftest import open_lake, serve

CANDIDATES = ["-1", "nonsense", "1.5", "", "7", "0", "1", "true", "0.5", "none", "zstd", "gzip"]
CANDIDATES += ["merge-on-read", "serializable", "hash", "file", "full", "22-6", "parquet", "off"]
CANDIDATES += ["v1"]
METRICS = "write.metadata.metrics.column.id"


def reads(known, text):
    try:
        known.read({known.name: text})
    except InvalidPropertyError:
        return False
    return True


FALLIBLE = [one for one in all_properties() if not all(reads(one, text) for text in CANDIDATES)]
BAD = {one.name: next(text for text in CANDIDATES if not reads(one, text)) for one in FALLIBLE}
GOOD = {one.name: next(text for text in CANDIDATES if reads(one, text)) for one in FALLIBLE}
BAD[METRICS], GOOD[METRICS] = "everything", "counts"


@pytest.fixture(params=["filesystem", "sqlite", "server"])
def foreign(request, tmp_path):
    """Opens a table whose metadata another engine wrote, with these properties."""
    kind = "sqlite" if request.param == "server" else request.param
    lake = open_lake(kind, tmp_path)
    serving = serve(lake) if request.param == "server" else nullcontext()
    with serving as server:
        client = lake if server is None else lh.load_catalog(server.url)

        def make(properties):
            table = lake.create_table("ns.t", pa.schema({"id": pa.int64()}))
            table.append(pa.table({"id": [1]}))
            path = Path(table.metadata_location.removeprefix("file://"))
            document = json.loads(path.read_text())
            document["properties"] = {**document["properties"], **properties}
            if kind == "filesystem":
                path.write_text(json.dumps(document))
                return open_lake(kind, tmp_path).load_table("ns.t")
            forged = path.with_name(f"0{path.name}")
            forged.write_text(json.dumps(document))
            lake.drop_table("ns.t")
            lake.register_table("ns.t", str(forged))
            return client.load_table("ns.t")

        yield make


def test_each_that_can_be_unreadable_is_tried():
    assert len(BAD) > 40
    assert {"commit.retry.num-retries", "write.metadata.previous-versions-max"} <= set(BAD)


@pytest.mark.parametrize("how", ["set", "remove", "SET", "UNSET"])
def test_all_at_once_are_mended_one_after_the_other(foreign, how):
    table = foreign(BAD)
    assert table.properties["commit.retry.num-retries"] == BAD["commit.retry.num-retries"]
    assert table.schema().column_names == ["id"]
    sql = StatementEngine(lh.Lakehouse(table.catalog))
    for name in BAD:
        if how == "set":
            table.set_properties({name: GOOD[name]})
        elif how == "remove":
            table.remove_properties(name)
        else:
            given = f"'{name}'" + (f" = '{GOOD[name]}'" if how == "SET" else "")
            sql.run(f"ALTER TABLE ns.t {how} TBLPROPERTIES ({given})")
            table.refresh()
        assert table.properties.get(name) == (GOOD[name] if how.lower() == "set" else None)
    table.append(pa.table({"id": [2]}))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    "name", [name for name in BAD if name.startswith(("commit.", "write.metadata."))]
)
def test_one_is_named_with_what_to_do_or_does_no_harm(foreign, name):
    table = foreign({name: BAD[name]})
    assert table.scan().to_arrow().num_rows == 1
    refused = ""
    try:
        table.append(pa.table({"id": [2]}))
    except InvalidInputError as error:
        refused = str(error)
    assert not refused or (f"Property {name} =" in refused and "remove the property" in refused)
    with pytest.raises(InvalidPropertyError, match=name):
        table.set_properties({name: BAD[name]})
    table.remove_properties(name)
    table.append(pa.table({"id": [3]}))
    assert 3 in table.scan().to_arrow()["id"].to_pylist()


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"])
@pytest.mark.parametrize("level", ["-2147483648", "0", "5", "99"])
def test_a_level_that_a_codec_lacks_is_told_before_a_file_is_written(tmp_path, codec, level):
    lake = open_lake("sqlite", tmp_path)
    table = lake.create_table(
        "ns.t",
        pa.schema({"id": pa.int64()}),
        properties={
            "write.parquet.compression-codec": codec,
            "write.parquet.compression-level": level,
        },
    )
    least, most = {
        "zstd": (-131_072, 22),
        "gzip": (1, 9),
        "lz4": (1, 12),
        "brotli": (0, 11),
    }.get(codec, (-(2**31), 99))
    if least <= int(level) <= most:
        table.append(pa.table({"id": [1]}))
        assert table.scan().to_arrow().num_rows == 1
        return
    with pytest.raises(InvalidPropertyError, match=f"{codec} has levels from {least} to {most}"):
        table.append(pa.table({"id": [1]}))
    assert not list(tmp_path.rglob("*.parquet*"))


def test_clients_over_rest_set_what_their_engine_goes_by(rest, caplog):
    foreign = {"write.format.default": "orc", "write.upsert.enabled": "true", "nonsense": "1"}
    foreign["commit.retry.num-retries"] = "-1"
    made = rest.table("foreign", "t", properties=foreign)
    assert foreign.items() <= made["metadata"]["properties"].items()
    more = {"write.parquet.compression-codec": "lzo", "read.split.target-size": "many"}
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": more}]}
    path = "/namespaces/foreign/tables/t"
    assert rest.post(path, change).status_code == 200
    assert (foreign | more).items() <= rest.get(path).json()["metadata"]["properties"].items()
    assert not [record for record in caplog.records if "nothing here" in record.getMessage()]
