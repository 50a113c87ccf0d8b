"""Locations are full URIs, however a path was given; old tables have both spellings of a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.cli.catalog_settings import catalog_options
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.spec import identifier
from lakehouse.storage.location import local_path

ROWS = pa.table({"id": pa.array(range(8), pa.int64()), "p": ["a", "b/ä"] * 4})
NEW = pa.table({"id": pa.array(range(100, 104), pa.int64()), "p": ["a", "b/ä"] * 2})


def locations(table: lh.Table) -> Iterator[str]:
    """Everything in a table's metadata that names a file or folder."""
    yield table.metadata_location
    found = [json.loads(Path(local_path(table.metadata_location)).read_bytes())]
    del found[0]["properties"]  # as the user wrote them
    while found:
        one = found.pop()
        found += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        if isinstance(one, str) and "/" in one:
            yield one
    yield from table.inspect.all_manifests()["path"].to_pylist()
    yield from table.inspect.all_files()["file_path"].to_pylist()


def ids(table: lh.Table) -> list[int]:
    found = sorted(table.refresh().scan().to_arrow()["id"].to_pylist())
    theirs = StaticTable.from_metadata(table.metadata_location).scan().to_arrow()
    assert sorted(theirs["id"].to_pylist()) == found
    return found


@pytest.mark.parametrize(
    "given",
    [
        "{here}/w",
        "w",
        "./w/",
        "~/w",
        "file:{here}/w",
        "file://{here}/w",
        "FILE://localhost{here}/w",
    ],
)
def test_every_spelling_of_a_folder_is_one_uri(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LAKEHOUSE_CATALOG", raising=False)
    uri, wanted = given.format(here=tmp_path), f"file://{tmp_path}/w"
    database = f"sqlite:///{tmp_path}/c.db"
    said = catalog_options(uri)
    doors = [
        lh.load_catalog(uri),
        lh.load_catalog(database, warehouse=uri),
        lh.load_catalog(said.uri, warehouse=said.warehouse),
        LakehouseResource(catalog=uri).lake(),
        LakehouseResource(catalog=database, warehouse=uri).lake(),
    ]
    assert {door.warehouse for door in doors} == {wanted}
    table = doors[1].create_table("a.t", ROWS.schema, partition_by=["p"])
    table.append(ROWS)
    table.compute_statistics()
    assert all(location.startswith(f"{wanted}/a/t") for location in locations(table.refresh()))
    view = doors[0].create_view("a.v", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
    assert view.metadata_location.startswith(f"{wanted}/a/v")


def test_a_path_is_a_uri_wherever_it_is_given(tmp_path):
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=f"{tmp_path}/w")
    here = f"file://{tmp_path}/w"
    table = lake.create_table(
        "a.t",
        ROWS.schema,
        location=f"{tmp_path}/w/own/",
        properties={
            "write.data.path": f"{tmp_path}/w/rows",
            "write.metadata.path": f"file:{tmp_path}/w/m",
        },
    )
    assert table.location == f"{here}/own"
    table.append(ROWS)
    landed = Path(f"{tmp_path}/w/landed/0.parquet")
    landed.parent.mkdir()
    pq.write_table(NEW, landed)
    table.add_files([str(landed)])
    assert {location.partition("/w/")[0] for location in locations(table.refresh())} == {
        f"file://{tmp_path}"
    }
    assert ids(table) == [*range(8), *range(100, 104)]
    with pytest.raises(lh.InvalidInputError, match="already"):
        table.add_files([f"file:{landed}"])
    lake.drop_table("a.t")
    again = lake.register_table("a.t", local_path(table.metadata_location))
    assert again.metadata_location == table.metadata_location


@pytest.mark.parametrize("name", ["my lake", "100%", "c%20d", "#1", "why?", "ä"])
def test_other_readers_take_a_location_literally(tmp_path, duck, name):
    """What they cut at `#` and `?` where it is a URI is left a path."""
    folder = tmp_path / name
    table = lh.load_catalog(str(folder)).create_table("a.t", ROWS.schema, partition_by=["p"])
    table.append(ROWS)
    assert folder.is_dir()
    assert table.location == ("" if name in ("#1", "why?") else "file://") + f"{folder}/a/t"
    assert ids(table) == list(range(8))
    read = "SELECT id FROM iceberg_scan(?) ORDER BY id"
    assert duck.execute(read, [table.metadata_location]).fetchall() == [(one,) for one in range(8)]
    assert lh.load_catalog(str(folder)).load_table("a.t").remove_orphan_files().moved_files == 0


@pytest.mark.parametrize("given", ["C:\\lake", "file:lake", "file://host/lake", "memory:lake"])
def test_what_is_no_absolute_location_is_refused(tmp_path, given):
    with pytest.raises(lh.InvalidLocationError, match=re.escape(repr(given)[1:-1])):
        lh.load_catalog(given).create_table("a.t", ROWS.schema)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["folder", "sqlite"])
def test_a_warehouse_of_paths_is_kept_by_code_that_writes_uris(tmp_path, kind, version):
    def opened() -> lh.Lakehouse:
        folder = f"{tmp_path}/w"
        if kind == "folder":
            return lh.load_catalog(folder)
        return lh.load_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=folder)

    with pytest.MonkeyPatch.context() as before:
        before.setattr(identifier, "_LOCAL", re.compile("(?!)"))
        old = opened().create_table(
            "a.t",
            ROWS.schema,
            partition_by=["p"],
            format_version=version,
            properties={"write.delete.mode": "merge-on-read"},
        )
        old.append(ROWS)
        old.append(ROWS.set_column(0, "id", pa.array(range(10, 18), pa.int64())))
        old.delete("id IN (1, 12)")
        old.compute_statistics()
        assert all(
            location.startswith(f"{tmp_path}/w/a/t") for location in locations(old.refresh())
        )
    expected = [one for one in [*range(8), *range(10, 18)] if one not in (1, 12)]
    table = opened().load_table("a.t")
    known = set(locations(table))
    assert ids(table) == expected
    table.append(NEW)
    table.delete("id IN (1, 2, 101)")
    expected = [one for one in [*expected, *range(100, 104)] if one not in (2, 101)]
    assert ids(table) == expected
    added = set(locations(table.refresh())) - known
    assert all(one.startswith(f"file://{tmp_path}/w/a/t") for one in added)
    assert len(added) >= 5

    orphan = Path(local_path(table.location), "data", "orphan.parquet")
    orphan.write_bytes(b"x")
    now = 2**62
    for step in ("orphans", "compact", "expire", "orphans"):
        if step == "orphans":
            strange = int(orphan.exists())
            assert table.remove_orphan_files(force=True, older_than=now).moved_files == strange
        elif step == "compact":
            table.compact()
        else:
            table.expire_snapshots(older_than=now, retain_last=1)
        assert ids(table) == expected, step
    assert not orphan.exists()
    again = opened().load_table("a.t")
    again.append(NEW.slice(0, 1).set_column(0, "id", pa.array([7000], pa.int64())))
    assert ids(again) == [*expected, 7000]
    assert len(again.refresh().inspect.metadata_log_entries()) >= 5
