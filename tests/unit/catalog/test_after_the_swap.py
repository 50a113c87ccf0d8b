"""A commit stands from its swap on: later errors are no failure and take nothing away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakehouse.catalog import open_catalog
from lakehouse.errors import (
    CommitStateUnknownError,
    CorruptMetadataError,
    InvalidLocationError,
    NoSuchFileError,
    StorageError,
)
from lakehouse.storage.local import LocalStorage
from lakehouse.storage.location import local_path
from lakehouse.transaction import Transaction
from tests.tables import EVENTS, create_table, data_file, live_files

DELETES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "1",
}
ODD = [
    "hdfs:///warehouse/raw/events/metadata/00000-a.metadata.json",
    "metadata/00000-a.metadata.json",
    "/w/./x/00000-a.metadata.json",
    "{location}/metadata/../../../victim/00000-a.metadata.json",
    "{location}/../../../victim/00000-a.metadata.json",
    "",
    "\x00",
    "s3://",
    "no scheme:x",
]


@pytest.fixture(params=["folder", "sqlite"])
def catalog(request, tmp_path):
    if request.param == "folder":
        yield open_catalog(str(tmp_path / "warehouse"))
        return
    opened = open_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"))
    yield opened
    opened.close()


def append(catalog, name):
    return Transaction(catalog, EVENTS).append([data_file(name)]).commit()


def edit(catalog, **changes):
    """Somebody else wrote the metadata file."""
    path = Path(local_path(catalog.load(EVENTS).metadata_location))
    document = json.loads(path.read_bytes())
    document.update({key.replace("_", "-"): value for key, value in changes.items()})
    path.write_text(json.dumps(document))


def with_log(catalog, *entries):
    log = [{"timestamp-ms": 1, "metadata-file": entry} for entry in entries]
    edit(catalog, metadata_log=log)


@pytest.mark.parametrize("entry", ODD)
def test_odd_entries_of_the_metadata_log_fail_no_commit(catalog, entry, tmp_path):
    location = create_table(catalog, properties=DELETES).metadata.location
    victim = tmp_path / "victim" / "00000-a.metadata.json"
    victim.parent.mkdir()
    victim.write_text("precious")
    with_log(catalog, entry.format(location=location))
    for number in range(3):
        append(catalog, f"f{number}")
    assert live_files(catalog, catalog.load(EVENTS)) == ["f0", "f1", "f2"]
    assert victim.read_text() == "precious"


def test_only_old_metadata_files_of_the_table_are_deleted(catalog):
    """The log may name anything in the table's folder: data, manifests, files under an alias."""
    location = create_table(catalog, properties=DELETES).metadata.location
    current = append(catalog, "first").version.metadata_location
    (listed,) = Path(local_path(location), "metadata").glob("snap-*.avro")
    own = Path(local_path(location), "metadata", "00000-old.metadata.json")
    data = Path(local_path(location), "data", "x.parquet")
    data.parent.mkdir(exist_ok=True)
    for path in (own, data):
        path.write_text("bytes")
    with_log(catalog, str(own), str(data), str(listed), f"file://{current}")
    for number in range(2):
        append(catalog, f"f{number}")
    assert data.exists()
    assert listed.exists()
    assert live_files(catalog, catalog.load(EVENTS)) == ["f0", "f1", "first"]
    assert own.exists() == (current.rpartition("/")[2] == "v2.metadata.json"), (
        "a filesystem catalog deletes its own versions only"
    )


@pytest.mark.parametrize("error", [StorageError("injected"), RuntimeError("injected")])
@pytest.mark.parametrize("call", ["delete", "write"])
def test_errors_of_tidying_up_fail_no_commit(catalog, monkeypatch, error, call):
    create_table(catalog, properties=DELETES)
    for number in range(3):
        append(catalog, f"f{number}")

    def fails(*_arguments, **_options):
        raise error

    monkeypatch.setattr(LocalStorage, call, fails)
    append(catalog, "last")
    monkeypatch.undo()
    assert live_files(catalog, catalog.load(EVENTS)) == ["f0", "f1", "f2", "last"]


def test_a_property_that_says_nothing_fails_no_commit(catalog):
    create_table(catalog)
    append(catalog, "first")
    edit(catalog, properties={"write.metadata.delete-after-commit.enabled": "perhaps"})
    append(catalog, "second")
    assert live_files(catalog, catalog.load(EVENTS)) == ["first", "second"]


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize(
    "kind", [StorageError, InvalidLocationError, CorruptMetadataError, NoSuchFileError, OSError]
)
def test_an_error_that_the_catalog_does_not_call_certain_is_an_unknown_outcome(
    catalog, monkeypatch, kind, landed
):
    create_table(catalog, properties={"commit.status-check.num-retries": "0"})
    append(catalog, "first")
    real = catalog.commit

    def breaks(*arguments):
        if landed:
            real(*arguments)
        raise kind("injected")

    monkeypatch.setattr(catalog, "commit", breaks)
    if landed:
        append(catalog, "second")
    else:
        with pytest.raises(CommitStateUnknownError):
            append(catalog, "second")
    monkeypatch.undo()
    assert live_files(catalog, catalog.load(EVENTS)) == ["first", "second"][: 2 if landed else 1]


def test_what_fails_before_the_swap_is_certain_and_cleaned_up(catalog, tmp_path):
    location = create_table(catalog).metadata.location
    append(catalog, "first")
    before = sorted(Path(local_path(location)).rglob("*"))
    with pytest.raises(InvalidLocationError):
        Transaction(catalog, EVENTS).set_properties({"write.data.path": f"{tmp_path}/x"}).append(
            [data_file("second")]
        ).commit()
    assert sorted(Path(local_path(location)).rglob("*")) == before
