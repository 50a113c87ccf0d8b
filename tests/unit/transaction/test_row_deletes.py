"""Deletes and the data files that they are about: what is taken, refused and cleared away."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import VoidTransform

from lakehouse.catalog import open_catalog
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, ValidationConflictError
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.manifests.data_file import (
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    FILE_FIELD_ID,
    PATH_FIELD_ID,
    DataFile,
)
from lakehouse.spec.metadata.table_updates import AddPartitionSpec
from lakehouse.transaction import Transaction
from tests.tables import EVENTS, create_table, data_file, delete_file, live_files

ONE, TWO = data_file("one"), data_file("two")
BIG = data_file("big", rows=5)


@pytest.fixture(params=[2, 3])
def version(request):
    return request.param


@pytest.fixture
def catalog(version):
    opened = open_catalog(
        f"memory://{uuid.uuid4().hex}/warehouse", environment=Environment.seeded(1)
    )
    create_table(opened, version=version)
    begin(opened).append([ONE, TWO]).commit()
    return opened


def begin(catalog, **options):
    return Transaction(catalog, EVENTS, **options)


def vector(name: str, target: DataFile) -> DataFile:
    return DataFile(
        content=CONTENT_POSITION_DELETES,
        file_path="/data/vectors.puffin",
        file_format="puffin",
        partition=target.partition,
        record_count=1,
        file_size_in_bytes=99,
        referenced_data_file=target.file_path,
        content_offset=4 + sum(name.encode()),
        content_size_in_bytes=40,
    )


def named(name: str, target: DataFile, version: int) -> DataFile:
    """A delete of one data file, in the form of the version."""
    return vector(name, target) if version >= 3 else delete_file(name, target)


def bounded(name: str, *targets: DataFile, field_id: int = PATH_FIELD_ID) -> DataFile:
    paths = sorted(target.file_path.encode() for target in targets)
    return replace(
        delete_file(name, partition=targets[0].partition[0]),
        lower_bounds={field_id: paths[0]},
        upper_bounds={field_id: paths[-1]},
    )


def deletes(catalog):
    version = catalog.load(EVENTS)
    found = live_files(catalog, version, content=CONTENT_POSITION_DELETES)
    return [one.removesuffix("-deletes") for one in found]


def compacted(catalog, *inputs, output=BIG):
    return begin(catalog).rewrite_files(inputs or (ONE, TWO), [output]).commit()


# Which manifests are opened


@pytest.mark.parametrize("number", ["as read", "unknown", "too high"])
def test_a_manifest_older_than_the_files_that_go_is_not_opened(catalog, number, monkeypatch):
    """A fresh process pays for the manifests that list what goes, however large the others are."""
    many = [data_file(f"many-{n}") for n in range(40)]
    begin(catalog).append(many).commit()
    begin(catalog).append([data_file(f"new-{n}") for n in range(20)]).commit()
    version = catalog.load(EVENTS)
    storage = catalog.storage(version.metadata.location)
    snapshot = version.metadata.snapshot_for_ref("main")
    large = [one for one in load_manifests(storage, snapshot) if one.added_files_count >= 20]
    newest = max(large, key=lambda one: one.sequence_number)
    (oldest,) = (one for one in large if one != newest)
    entries = ManifestReader.of(storage, version.metadata).entries(newest)
    going = next(
        file for file in entries.to_data_files() if file.file_path.endswith("new-7.parquet")
    )
    assert going.data_sequence_number == newest.sequence_number
    told = {"as read": newest.sequence_number, "unknown": None, "too high": 1000}[number]
    opened = []
    read = ManifestReader.entries
    monkeypatch.setattr(
        ManifestReader,
        "entries",
        lambda self, manifest, *given, **more: (
            opened.append(manifest.manifest_path) or read(self, manifest, *given, **more)
        ),
    )
    begin(catalog).delete_files([replace(going, data_sequence_number=told)]).commit()
    assert (oldest.manifest_path in opened) == (number != "as read")
    expected = {"one", "two", *(f"many-{n}" for n in range(40)), *(f"new-{n}" for n in range(20))}
    assert live_files(catalog, catalog.load(EVENTS)) == sorted(expected - {"new-7"})


# Beside compaction: every way in which position deletes can say, or not say, what they are about


def forms(version):
    if version >= 3:
        return {"vectors": ([vector("x", ONE), vector("y", TWO)], ())}
    both = [ONE.file_path, TWO.file_path]
    return {
        "by reference": ([delete_file("x", ONE), delete_file("y", TWO)], ()),
        "by bounds": ([bounded("x", ONE), bounded("y", TWO)], ()),
        "by DuckDB's bounds": (
            [bounded("x", ONE, field_id=FILE_FIELD_ID), bounded("y", TWO)],
            (),
        ),
        "of several files, told": ([delete_file("x")], both),
        "of several files, bounded": ([bounded("x", ONE, TWO)], ()),
        "of several files, nothing known": ([delete_file("x")], ()),
    }


FORMS = [(version, form) for version in (2, 3) for form in forms(version)]


@pytest.mark.parametrize(("version", "form"), FORMS)
@pytest.mark.parametrize("gone", [[ONE], [TWO], [ONE, TWO]], ids=["one", "two", "both"])
@pytest.mark.parametrize("verb", ["rewrite", "overwrite", "delete"])
def test_deletes_of_a_file_that_went_meanwhile_are_refused(catalog, version, form, gone, verb):
    delete_files, told = forms(version)[form]
    base = catalog.load(EVENTS)
    if verb == "rewrite":
        compacted(catalog, *gone)
    elif verb == "overwrite":
        begin(catalog).overwrite([BIG], gone).commit()
    else:
        begin(catalog).delete_files(gone).commit()
    late = begin(catalog, decided_on=base).row_delta(
        delete_files=delete_files, referenced_files=told, isolation="snapshot"
    )
    with pytest.raises(ValidationConflictError, match="has since removed"):
        late.commit()
    assert deletes(catalog) == []


@pytest.mark.parametrize(("version", "form"), FORMS)
@pytest.mark.parametrize("elsewhere", ["another partition", "another file"])
def test_deletes_beside_a_rewrite_of_other_files_pass(catalog, version, form, elsewhere):
    delete_files, told = forms(version)[form]
    other = data_file("zzz", "b" if elsewhere == "another partition" else "a")
    begin(catalog).append([other]).commit()
    base = catalog.load(EVENTS)
    compacted(catalog, other, output=replace(other, file_path="/data/zzzz.parquet"))
    late = begin(catalog, decided_on=base).row_delta(
        delete_files=delete_files, referenced_files=told, isolation="snapshot"
    )
    unnamed = form in ("of several files, nothing known", "of several files, bounded")
    if unnamed and elsewhere == "another file":
        with pytest.raises(ValidationConflictError, match="referenced_files"):
            late.commit()
    else:
        late.commit()
        assert len(deletes(catalog)) == len(delete_files)


@pytest.mark.parametrize("version", [2])
@pytest.mark.parametrize("mine", ["named", "told", "unknown"])
@pytest.mark.parametrize("theirs", ["named", "unnamed", "equality"])
@pytest.mark.parametrize("adds", [True, False], ids=["update", "delete"])
def test_rows_that_an_update_moves_must_not_have_been_deleted(catalog, mine, theirs, adds):
    """The new version of a row would bring it back; deletes alone may be done twice."""
    base = catalog.load(EVENTS)
    other = {
        "named": delete_file("other", ONE),
        "unnamed": delete_file("other"),
        "equality": replace(
            delete_file("other"), content=CONTENT_EQUALITY_DELETES, equality_ids=(1,)
        ),
    }[theirs]
    begin(catalog).row_delta(delete_files=[other]).commit()
    late = begin(catalog, decided_on=base).row_delta(
        [data_file("moved", rows=1)] if adds else (),
        [delete_file("x", ONE if mine == "named" else None)],
        referenced_files=[ONE.file_path] if mine == "told" else (),
        isolation="snapshot",
    )
    same_file = theirs == "named" and mine != "unknown"
    if adds or same_file:
        with pytest.raises(ValidationConflictError, match="added deletes"):
            late.commit()
    else:
        late.commit()


VOID = PartitionSpec(PartitionField(2, 1000, VoidTransform(), "p"), spec_id=1)


@pytest.mark.parametrize("under", ["no fields", "void fields"])
def test_an_overwrite_beside_a_global_equality_delete_is_refused(catalog, version, under):
    """It can apply to every data file of the table, whatever their partitions."""
    spec = VOID if under == "void fields" else PartitionSpec(spec_id=1)
    begin(catalog).update([AddPartitionSpec(spec)]).commit()
    base = catalog.load(EVENTS)
    everywhere = replace(
        delete_file("other"),
        content=CONTENT_EQUALITY_DELETES,
        equality_ids=(1,),
        spec_id=1,
        partition=(None,) if under == "void fields" else (),
    )
    begin(catalog).row_delta(delete_files=[everywhere]).commit()
    with pytest.raises(ValidationConflictError, match="added deletes"):
        begin(catalog, decided_on=base).overwrite([BIG], [ONE], isolation="snapshot").commit()


def test_rows_of_a_file_that_the_transaction_removes_cannot_be_deleted(catalog, version):
    transaction = begin(catalog).delete_files([ONE])
    transaction.row_delta(delete_files=[named("x", ONE, version)])
    with pytest.raises(InvalidInputError, match=r"this transaction removes /data/one\.parquet"):
        transaction.commit()
    assert live_files(catalog, catalog.load(EVENTS)) == ["one", "two"]


# Deletes go with their data file


REMOVALS = {
    "delete": lambda begun: begun.delete_files([ONE]),
    "overwrite": lambda begun: begun.overwrite([BIG], [ONE]),
    "rewrite": lambda begun: begun.rewrite_files([ONE], [data_file("small", rows=5)]),
}


@pytest.mark.parametrize("verb", REMOVALS)
@pytest.mark.parametrize("when", ["before", "meanwhile", "same transaction"])
def test_deletes_do_not_outlive_their_data_file(catalog, version, verb, when):
    mine, other = named("one", ONE, version), named("two", TWO, version)
    base = catalog.load(EVENTS)
    begun = begin(catalog)
    if when == "same transaction":
        begun.row_delta(delete_files=[mine, other])
    else:
        begin(catalog).row_delta(delete_files=[mine, other]).commit()
        begun = begin(catalog, decided_on=None if when == "before" else base)
    transaction = REMOVALS[verb](begun)
    if when == "meanwhile" and verb != "delete":
        with pytest.raises(ValidationConflictError, match="added deletes"):
            transaction.commit()
        return
    summary = transaction.commit().snapshot.summary
    assert len(deletes(catalog)) == 1
    assert summary["removed-delete-files"] == summary["removed-position-deletes"] == "1"
    assert summary["total-delete-files"] == summary["total-position-deletes"] == "1"
    survivor = begin(catalog).row_delta(removed_delete_files=[other]).commit()
    assert survivor.snapshot.summary["total-delete-files"] == "0"


@pytest.mark.parametrize("version", [2])
def test_deletes_of_several_files_stay_while_one_is_there(catalog):
    begin(catalog).row_delta(delete_files=[bounded("x", ONE, TWO)]).commit()
    begin(catalog).delete_files([ONE]).commit()
    assert deletes(catalog) == ["x"]


# One deletion vector a data file


@pytest.mark.parametrize("version", [3])
@pytest.mark.parametrize("where", ["one operation", "one transaction", "two commits"])
def test_a_second_vector_is_refused(catalog, where):
    first, second = vector("first", ONE), vector("second", ONE)
    transaction = begin(catalog)
    if where == "one operation":
        transaction.row_delta(delete_files=[first, second])
    elif where == "one transaction":
        transaction.row_delta(delete_files=[first]).row_delta(delete_files=[second])
    else:
        transaction.row_delta(delete_files=[first]).commit()
        transaction = begin(catalog).row_delta(delete_files=[second])
    with pytest.raises(InvalidInputError, match=r"/data/one\.parquet has deletes already"):
        transaction.commit()
    assert len(deletes(catalog)) == (1 if where == "two commits" else 0)


@pytest.mark.parametrize("version", [3])
@pytest.mark.parametrize("where", ["one transaction", "two commits"])
def test_a_second_vector_that_replaces_the_first_is_taken(catalog, where):
    first, second = vector("first", ONE), vector("second", ONE)
    transaction = begin(catalog).row_delta(delete_files=[first])
    if where == "two commits":
        transaction.commit()
        transaction = begin(catalog)
    transaction.row_delta(delete_files=[second], removed_delete_files=[first]).commit()
    assert len(deletes(catalog)) == 1
    with pytest.raises(InvalidInputError, match="has deletes already"):
        begin(catalog).row_delta(delete_files=[vector("third", ONE)]).commit()


@pytest.mark.parametrize("version", [3])
def test_a_vector_says_which_data_file_it_is_about(catalog):
    nameless = replace(vector("x", ONE), referenced_data_file=None)
    with pytest.raises(InvalidInputError, match="needs a referenced_data_file"):
        begin(catalog).row_delta(delete_files=[nameless]).commit()


# The form of deletes belongs to the format version


@pytest.mark.parametrize("verb", ["row_delta", "rewrite_files"])
def test_the_other_version_s_form_is_refused(catalog, version, verb):
    wrong = delete_file("x", ONE) if version >= 3 else vector("x", ONE)
    transaction = begin(catalog)
    if verb == "row_delta":
        transaction.row_delta(delete_files=[wrong])
    else:
        transaction.rewrite_files([TWO], [], added_deletes=[wrong])
    with pytest.raises(InvalidInputError, match="deletion vectors"):
        transaction.commit()
    assert deletes(catalog) == []


@pytest.mark.parametrize("version", [2])
def test_position_deletes_are_refused_after_an_upgrade_meanwhile(catalog):
    base = catalog.load(EVENTS)
    begin(catalog).set_properties({"format-version": "3"}).commit()
    late = begin(catalog, decided_on=base).row_delta(delete_files=[delete_file("x", ONE)])
    with pytest.raises(ValidationConflictError, match="version 2 when they were written"):
        late.commit()


@pytest.mark.parametrize("version", [2])
def test_position_deletes_from_before_an_upgrade_must_be_merged_into_the_vector(catalog):
    old = delete_file("old", ONE)
    begin(catalog).row_delta(delete_files=[old]).commit()
    begin(catalog).set_properties({"format-version": "3"}).commit()
    with pytest.raises(InvalidInputError, match="has deletes already"):
        begin(catalog).row_delta(delete_files=[vector("x", ONE)]).commit()
    first = vector("x", ONE)
    begin(catalog).row_delta(delete_files=[first], removed_delete_files=[old]).commit()
    assert deletes(catalog) == ["vectors.puffin"]
