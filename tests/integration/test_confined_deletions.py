"""I7 against metadata that lies.

Whatever it names, maintenance and purge delete the table's own files and no others.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.maintenance.compaction.compaction import compact
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.orphan_removal import OrphanOptions, remove_orphan_files
from lakehouse.maintenance.retention.snapshot_expiry import (
    ExpiryOptions,
    expire_snapshots,
    plan_expiry,
)
from lakehouse.storage.location import local_path
from tests.integration.maintenance_support import at

SCHEMA = pa.schema({"id": pa.int64()})
EVERYTHING = ExpiryOptions(older_than_ms=1 << 62, remove_old_metadata=True)


class Place:
    """A warehouse, and beside it a victim's folder."""

    def __init__(self, root, kind):
        self.root, self.kind = root, kind
        self.victim = root / "victim"
        for name in ("thesis.txt", "photos/a.jpg", "data/x.parquet"):
            path = self.victim / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"precious {name}")
            age(path)
        self.lake = self.open()

    def open(self):
        if self.kind == "folder":
            return lh.load_catalog(f"{self.root}/warehouse")
        return lh.load_catalog(
            f"sqlite:///{self.root}/catalog.db", warehouse=f"{self.root}/warehouse"
        )

    def table(self, *ids, name="raw.events", **properties):
        table = self.lake.create_table(name, SCHEMA, properties=properties)
        for one in ids:
            table.append(rows(one))
        return table

    def files(self):
        return {
            str(path): path.read_bytes() for path in self.victim.rglob("*") if path.is_file()
        } | {str(path): b"" for path in self.victim.rglob("*") if not path.is_file()}


@pytest.fixture(params=["folder", "sqlite"])
def place(request, tmp_path):
    place = Place(tmp_path, request.param)
    before = place.files()
    yield place
    assert place.files() == before
    if request.param == "sqlite":
        place.lake.catalog.close()


def age(path):
    long_ago = time.time() - 400 * 86400
    os.utime(path, (long_ago, long_ago), follow_symlinks=False)


def rows(*ids):
    return pa.table({"id": ids}, schema=SCHEMA)


def ids(table):
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


def edit(table, change):
    """Somebody else writes the current metadata file."""
    path = Path(local_path(table.refresh().metadata_location))
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


def first_file(table):
    return next(iter(table.scan().plan().files))


def plant(table, monkeypatch, *paths):
    """Another engine commits files of any path, and takes them out again.

    So that an expiry would delete them.
    """
    monkeypatch.setattr("lakehouse.transaction.transaction.check_files", lambda *_arguments: None)
    planted = [dataclasses.replace(first_file(table), file_path=str(path)) for path in paths]
    table.transaction().append(planted).commit()
    table.refresh().transaction().delete_files(planted).commit()
    table.refresh().append(rows(99))
    monkeypatch.undo()


def everything(place, table):
    """Each verb that deletes, one after the other; refusals are fine.

    What was deleted shows in the victim's folder.
    """
    catalog, name, later = table.catalog, table.identifier, at(days=100)
    verbs = [
        lambda: expire_snapshots(catalog, name, EVERYTHING, environment=later),
        lambda: compact(catalog, name, CompactionOptions(min_input_files=1), environment=later),
        lambda: expire_snapshots(catalog, name, EVERYTHING, environment=later),
        lambda: remove_orphan_files(catalog, name, environment=later),
        lambda: remove_orphan_files(catalog, name, environment=at(days=200)),
        lambda: remove_orphan_files(catalog, name, OrphanOptions(trash=False), environment=later),
        lambda: table.refresh().append(rows(1)),
        lambda: table.refresh().delete("id = 1"),
        lambda: place.lake.drop_table(str(name), purge=True),
        lambda: catalog.drop(name, purge=True),
    ]
    before = place.files()
    errors = []
    for verb in verbs:
        try:
            verb()
        except lh.LakehouseError as error:
            errors.append(type(error).__name__)
        assert place.files() == before
    return errors


@pytest.mark.parametrize(
    "spelling",
    [
        "{victim}/thesis.txt",
        "file:{victim}/photos/a.jpg",
        "file://{victim}/data/x.parquet",
        "{location}/data/../../../../victim/thesis.txt",
        "{location}/../../../victim/thesis.txt",
        "{location}/data/./../../../../victim/data/x.parquet",
    ],
)
def test_data_files_elsewhere(place, monkeypatch, spelling):
    table = place.table(1, 2)
    path = spelling.format(victim=place.victim, location=table.location)
    with pytest.raises(lh.InvalidLocationError, match="outside the warehouse"):
        table.transaction().append([dataclasses.replace(first_file(table), file_path=path)])
    plant(table, monkeypatch, path)
    plan = plan_expiry(table.catalog, table.identifier, EVERYTHING)
    assert plan.left == {"outside the table's folders": 1}
    assert path not in plan.unreachable.locations()
    result = expire_snapshots(table.catalog, table.identifier, EVERYTHING)
    assert result.left_files == {"outside the table's folders": 1}
    assert ids(table) == [1, 2, 99]
    everything(place, table)


@pytest.mark.parametrize("verb", ["append", "overwrite", "row_delta", "rewrite_files"])
def test_no_verb_takes_in_files_from_elsewhere(place, verb):
    table = place.table(1)
    other = place.table(1, name="raw.other")
    own = first_file(table)
    for path, why in (
        (f"{place.victim}/data/x.parquet", "outside the warehouse"),
        (first_file(other).file_path, r"raw\.other"),
    ):
        foreign = [dataclasses.replace(own, file_path=path)]
        transaction = table.transaction()
        with pytest.raises(lh.InvalidLocationError, match=why):
            {
                "append": lambda: transaction.append(foreign),  # noqa: B023
                "overwrite": lambda: transaction.overwrite(foreign, [own]),  # noqa: B023
                "row_delta": lambda: transaction.row_delta(foreign),  # noqa: B023
                "rewrite_files": lambda: transaction.rewrite_files([own], foreign),  # noqa: B023
            }[verb]()
    table.transaction().append(
        [dataclasses.replace(own, file_path=f"{place.lake.warehouse}/staging/x.parquet")]
    ).commit()


def test_statistics_and_manifest_lists_elsewhere(place):
    table = place.table(1, 2)
    first = table.snapshots()[0]

    def lie(document):
        record = {
            "snapshot-id": first.snapshot_id,
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
        document["statistics"] = [{**record, "statistics-path": f"{place.victim}/thesis.txt"}]
        document["partition-statistics"] = [
            {**record, "statistics-path": f"file://{place.victim}/photos/a.jpg"}
        ]
        shutil.copy(local_path(first.manifest_list), place.victim / "list.avro")
        document["snapshots"][0]["manifest-list"] = f"{place.victim}/list.avro"

    edit(table, lie)
    assert ids(table) == [1, 2]
    left = expire_snapshots(table.catalog, table.identifier, EVERYTHING).left_files
    assert left == {"outside the table's folders": 3}
    everything(place, table)
    (place.victim / "list.avro").unlink()


@pytest.mark.parametrize(
    "which",
    [
        "location",
        "write.data.path",
        "write.metadata.path",
        "write.object-storage.path",
        "write.folder-storage.path",
    ],
)
@pytest.mark.parametrize("where", ["{victim}", "file://{victim}", "{root}", "/"])
def test_a_location_elsewhere(place, which, where):
    table = place.table(1, 2)
    location = where.format(victim=place.victim, root=place.root)

    def lie(document):
        document["properties"] |= {} if which == "location" else {which: location}
        document["location"] = location if which == "location" else document["location"]

    edit(table, lie)
    errors = everything(place, table)
    if which == "location" or (where != "/" and which != "write.object-storage.path"):
        assert ("InvalidLocationError" in errors) == (which != "write.folder-storage.path")


@pytest.mark.parametrize(
    "where", ["{warehouse}", "{warehouse}/raw", "{other}", "{other}/data", "{warehouse}/victim"]
)
def test_a_location_among_other_tables(place, where):
    """Inside the warehouse, but somebody else's: another table, or the folder of all of them."""
    table = place.table(1, 2)
    other = place.table(5, 6, name="raw.other")
    for path in Path(local_path(other.location)).rglob("*"):
        age(path)
    location = where.format(warehouse=place.lake.warehouse, other=other.location)
    edit(table, lambda document: document.update(location=location))
    everything(place, table)
    assert ids(other) == [5, 6]
    assert ids(place.open().load_table("raw.other")) == [5, 6]


def journal(table, **document):
    path = Path(local_path(table.location), "metadata", f"expiry-{uuid.uuid4()}.journal.json")
    known = {"table-uuid": table.metadata.table_uuid, "created-ms": 0}
    path.write_text(json.dumps({**known, **document}))
    return path


def test_journals_that_were_not_ours(place):
    table = place.table(1, 2)
    current = json.loads(Path(local_path(table.metadata_location)).read_bytes())
    gone = {**current["snapshots"][0], "snapshot-id": 12345}
    own = Path(local_path(table.location), "data", "in-flight.parquet")
    own.write_text("about to be committed")
    statistics = {f"{place.victim}/thesis.txt": 0, str(own): 0}
    planted = [journal(table, version=1, snapshots=[gone], statistics=statistics)]
    # a version of the table that never was
    record = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    forged = Path(local_path(table.location), "metadata", "v77.metadata.json")
    if place.kind == "sqlite":
        forged = forged.with_name(f"00077-{uuid.uuid4()}.metadata.json")
    lies = [{**record, "snapshot-id": 12345, "statistics-path": path} for path in statistics]
    forged.write_text(
        json.dumps(
            {
                **current,
                "snapshots": [gone],
                "statistics": lies,
                "refs": {},
                "current-snapshot-id": -1,
            }
        )
    )
    points = {"version": 2, "metadata-location": str(forged), "snapshot-ids": [12345]}
    named = (forged, f"{place.victim}/thesis.txt", table.metadata_location, "", "\x00")
    planted += [journal(table, **{**points, "metadata-location": str(path)}) for path in named]
    if place.kind == "folder":
        forged.unlink()  # there it would be the newest version
    result = expire_snapshots(table.catalog, table.identifier)
    assert (dict(result.deleted_files), result.resumed) == ({}, 0)
    assert own.exists()
    assert ids(table) == [1, 2]
    expire_snapshots(table.catalog, table.identifier, environment=at(days=2))
    assert [path for path in planted if path.exists()] == []


def test_links_are_not_followed(place, monkeypatch):
    """A folder below the table's that is a link, and files that are links.

    What they point at is not ours.
    """
    table = place.table(1, 2)
    data = Path(local_path(table.location), "data")
    (data / "away").symlink_to(place.victim / "data")
    (data / "lost.parquet").symlink_to(place.victim / "thesis.txt")
    (data / "endless.parquet").symlink_to("/dev/zero")
    os.mkfifo(data / "pipe.parquet")
    for path in data.iterdir():
        age(path)
    plant(table, monkeypatch, data / "away" / "x.parquet")
    result = expire_snapshots(table.catalog, table.identifier, EVERYTHING)
    assert result.left_files == {"outside the table's folders": 1}
    moved = remove_orphan_files(table.catalog, table.identifier, environment=at(days=100))
    assert moved.moved_files == 0
    assert (data / "lost.parquet").is_symlink()
    everything(place, table)


def test_metadata_files_named_as_data(place, monkeypatch):
    table = place.table(1, 2)
    current = table.metadata_location
    hint = Path(local_path(table.location), "metadata", "version-hint.text")
    plant(table, monkeypatch, current, local_path(current), hint)
    left = expire_snapshots(table.catalog, table.identifier, EVERYTHING).left_files
    assert left == {"bookkeeping of the catalog": 2}
    assert ids(table) == [1, 2, 99]


def test_files_in_the_folder_of_another_table(place, monkeypatch):
    table = place.table(1, 2)
    other = place.table(5, 6, name="raw.other")
    plant(table, monkeypatch, first_file(other).file_path)
    result = expire_snapshots(table.catalog, table.identifier, EVERYTHING)
    assert sum(result.left_files.values()) == 1
    everything(place, table)
    assert ids(other) == [5, 6]


def test_files_of_ours_that_another_table_reaches(place, monkeypatch):
    """Another engine added a file of ours to another table.

    Expiry, orphan removal and purge leave it.
    """
    table = place.table(1, 2)
    other = place.table(name="raw.other")
    shared = first_file(table)
    monkeypatch.setattr("lakehouse.transaction.transaction.check_files", lambda *_arguments: None)
    other.transaction().append([shared]).commit()
    monkeypatch.undo()
    held = ids(other)
    table.overwrite(rows(7))
    assert expire_snapshots(table.catalog, table.identifier, EVERYTHING).left_files == {
        "reached by another table": 1
    }
    later = at(days=100)
    for options in (OrphanOptions(), OrphanOptions(trash=False)):
        remove_orphan_files(table.catalog, table.identifier, options, environment=later)
    with pytest.raises(lh.MaintenanceRefusedError, match=r"raw\.other uses its file"):
        place.lake.drop_table("raw.events", purge=True)
    assert ids(other) == held
    assert ids(table) == [7]


def test_what_another_table_reaches_comes_back_from_the_trash(place, monkeypatch):
    """It was moved there before the other table took it in.

    Other tables are asked for the place it came from.
    """
    table = place.table(1)
    other = place.table(name="raw.other")
    (slow,) = table.write_files(rows(70))
    moved = remove_orphan_files(table.catalog, table.identifier, environment=at(days=10))
    assert moved.moved_files == 1
    monkeypatch.setattr("lakehouse.transaction.transaction.check_files", lambda *_arguments: None)
    other.transaction().append([slow]).commit()
    monkeypatch.undo()
    again = remove_orphan_files(table.catalog, table.identifier, environment=at(days=100))
    assert (again.restored_files, again.purged_files) == (1, 0)
    assert ids(other) == [70]


def test_a_writer_that_lives_on_writes_after_the_folder_was_made_again(tmp_path):
    lake = lh.load_catalog(f"{tmp_path}/warehouse")
    lake.create_table("raw.events", SCHEMA).append(rows(1))
    other = lh.load_catalog(f"{tmp_path}/warehouse")
    other.drop_table("raw.events", purge=True)
    other.drop_namespace("raw")
    for number in range(3):
        table = lake.create_table("raw.events", SCHEMA)
        table.append(rows(number))
        assert ids(table) == [number]
        shutil.rmtree(tmp_path / "warehouse" / "raw")
