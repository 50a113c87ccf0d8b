"""Tables of every format version on a REST server that knows neither our code nor pyiceberg's."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.maintenance.orphan_removal import remove_orphan_files
from lakehouse.storage.location import local_path
from tests.conformance.plain_rest import plain_rest

SCHEMA = pa.schema({"id": pa.int64(), "s": pa.string()})


@pytest.fixture
def made(tmp_path):
    """Tables of version 2 and 3 whose metadata another engine continued, and their catalog."""
    lake = lh.load_catalog(f"{tmp_path}/warehouse")
    with plain_rest(tmp_path / "warehouse") as server:
        for version in (2, 3):
            table = lake.create_table(f"m.t{version}", SCHEMA, format_version=version)
            table.append(pa.table({"id": [1, 2], "s": ["a", "b"]}, schema=SCHEMA))
            with table.update_schema() as change:
                change.add_column("n", "int")
            path = Path(local_path(table.refresh().metadata_location))
            document = json.loads(path.read_bytes())
            document["schemas"][0]["fields"][0]["of-another-engine"] = {"x": [1]}
            path.write_text(json.dumps(document))
            server.locations[f"t{version}"] = path
        yield lh.load_catalog(server.url, warehouse=f"{tmp_path}/warehouse"), server


@pytest.mark.parametrize("version", [2, 3])
def test_what_the_server_says_is_what_is_loaded(made, version):
    """Nothing that a client's models do not know is left out: row ids, keys of other engines."""
    lake, server = made
    table = lake.load_table(f"m.t{version}")
    assert table.metadata.format_version == version
    wanted = lh.load_catalog(str(server.folder)).load_table(f"m.t{version}").metadata
    assert table.metadata == wanted
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_no_table_of_version_3_stops_what_is_done_to_others(made):
    lake, _ = made
    assert sorted(lake.list_tables()) == ["m.t2", "m.t3"]
    two, three = (lake.load_table(name) for name in lake.list_tables())
    assert remove_orphan_files(two.catalog, two.identifier).moved_files == 0
    assert remove_orphan_files(three.catalog, three.identifier).moved_files == 0
    assert {lake.load_table(name).health().data_files for name in lake.list_tables()} == {1}
    two.append(pa.table({"id": [3], "s": ["c"], "n": pa.array([4], pa.int32())}))
    assert lake.load_table("m.t2").scan().count() == 3


def test_version_3_is_written(made):
    lake, server = made
    table = lake.load_table("m.t3")
    table.append(pa.table({"id": [3], "s": ["c"], "n": pa.array([4], pa.int32())}))
    table.delete(where="id = 1")
    # the file that the delete rewrote has row ids of its own
    assert lake.load_table("m.t3").metadata.next_row_id == 4
    made = lake.create_table("m.new", SCHEMA, format_version=3)
    made.append(pa.table({"id": [3], "s": ["c"]}))
    document = json.loads(server.locations["new"].read_bytes())
    assert (document["format-version"], document["next-row-id"]) == (3, 1)
    assert made.location.startswith(str(server.folder))
    for name in ("t3", "new"):
        theirs = StaticTable.from_metadata(str(server.locations[name]))
        assert 3 in theirs.scan().to_arrow()["id"].to_pylist()
