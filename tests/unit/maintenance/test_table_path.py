"""`rewrite_table_path`: files copied by the list, read by pyiceberg and us, as they were."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.errors import InvalidInputError, NoSuchFileError
from lakehouse.maintenance.table_path import rewrite_table_path
from tests.unit.maintenance.test_relocation import history, states


def copied(listed: str) -> set[str]:
    """Copy as the list says; the targets."""
    targets = set()
    for line in Path(listed.removeprefix("file://")).read_text().splitlines():
        source, target = (Path(one.removeprefix("file://")) for one in line.split(","))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        targets.add(str(target))
    return targets


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_is_copied_in_two_steps(tmp_path: Path, version: int) -> None:
    """All of it, then what a delete and an append added; the original is gone at the end."""
    lake = lh.load_catalog(
        f"sqlite:///{tmp_path}/catalog.db",
        warehouse=str(tmp_path / "old"),
        **{"allowed-locations": str(tmp_path / "new")},
    )
    table = history(lake, version)
    first = states(table)
    start = table.metadata_location.rpartition("/")[2]
    prefixes = (table.location, f"{tmp_path}/new/t")
    whole = rewrite_table_path(lake.catalog, table.identifier, *prefixes)
    assert whole.latest_version == start
    assert whole.rewritten_delete_files > 0
    done = copied(whole.file_list_location)
    # the versions of the log are there, too, and name each other
    assert sum(one.endswith(".metadata.json") for one in done) == 1 + len(
        table.metadata.metadata_log
    )
    other = lake.register_table("copy.t", f"{tmp_path}/new/t/metadata/{start}")
    assert states(other) == first
    lake.drop_table("copy.t")
    table.delete(where="id = 33")
    table.append(pa.table({"id": [200], "day": [1], "name": ["n"], "more": ["m"]}))
    later = states(table)
    more = rewrite_table_path(
        lake.catalog,
        table.identifier,
        *prefixes,
        start_version=start,
        staging_location=str(tmp_path / "staged"),
    )
    added = copied(more.file_list_location)
    assert not added & done
    assert sum(one.endswith(".parquet") and "/data/" in one for one in added) < 6
    (tmp_path / "old").rename(tmp_path / "gone")
    other = lake.register_table("copy.t", f"{tmp_path}/new/t/metadata/{more.latest_version}")
    assert states(other) == later
    foreign = StaticTable.from_metadata(other.metadata_location)
    for snapshot_id, rows in later.items():
        theirs = foreign.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        assert sorted(theirs, key=lambda row: row["id"]) == rows
    other.delete(where="id = 7")
    other.compact()


def test_what_cannot_be_staged_is_refused_by_name(tmp_path: Path) -> None:
    lake = lh.load_catalog(str(tmp_path / "old"))
    table = history(lake, 2)

    def stage(source: str, target: str, **how: str) -> None:
        rewrite_table_path(lake.catalog, table.identifier, source, target, **how)

    with pytest.raises(InvalidInputError, match="two different locations"):
        stage(table.location, table.location)
    with pytest.raises(InvalidInputError, match="not under the source prefix"):
        stage(f"{table.location}/data", "s3://new")
    with pytest.raises(InvalidInputError, match=r"v99\.metadata\.json is not in the"):
        stage(table.location, "s3://new", start_version="v99.metadata.json")
    with pytest.raises(InvalidInputError, match="is not before"):
        stage(
            table.location,
            "s3://new",
            start_version="v4.metadata.json",
            end_version="v3.metadata.json",
        )
    (tmp_path / "old/raw/v2/metadata/v3.metadata.json").unlink()
    with pytest.raises(NoSuchFileError, match=r"v3\.metadata\.json is in the metadata log"):
        stage(table.location, "s3://new")
    assert not (tmp_path / "old/raw/v2/metadata/file-list").exists()
