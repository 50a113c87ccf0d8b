"""Callers who have the server read for them: what it merges, links, what refusals tell."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from lakehouse.storage import location
from tests.server.conftest import SCHEMA, open_lake
from tests.server.guarded import guarded, rules_file
from tests.server.test_rest_protocol import append, error

ROWS = pa.table({"id": [1, 2, 3]})
TABLES = "/namespaces/ann/tables"


@pytest.fixture(scope="module", params=["filesystem", "sqlite"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("borrowed")
    lake = open_lake(request.param, folder / "lake")
    bank = lake.create_table("bank.secret", ROWS.schema)
    for _ in range(3):
        bank.append(ROWS)
    lake.create_namespace("ann")
    with guarded(lake, rules_file(folder)) as found:
        yield found


def on_disk(place: str) -> Path:
    return Path(place.removeprefix("file://"))


def stolen(server) -> Path:
    """The manifest list of the bank, which nobody but it may read."""
    table = server.lake.load_table("bank.secret")
    return on_disk(table.current_snapshot().manifest_list)


def made(server, name: str, **properties: str) -> dict:
    body = {"name": name, "schema": SCHEMA, "properties": properties}
    answer = server.ask(server.token("ann"), "POST", TABLES, body)
    assert answer.status_code == 200, answer.text
    return answer.json()["metadata"]


def listing(server, name: str, metadata: dict, data: bytes) -> None:
    """Ann commits a snapshot whose manifest list, in her own folder, she wrote herself."""
    asked = append(metadata["location"], 5)
    snapshot = asked["updates"][0]["snapshot"]
    snapshot["sequence-number"] = 9  # above those of what she lists
    place = on_disk(snapshot["manifest-list"])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    answer = server.ask(server.token("ann"), "POST", f"{TABLES}/{name}", asked)
    assert answer.status_code == 200, answer.text


def renamed(data: Path, names: list[Path], target: Path) -> bytes:
    """A manifest list with other names of its manifests."""
    with data.open("rb") as stream:
        reader = fastavro.reader(stream)
        rows, schema = list(reader), reader.writer_schema
    assert len(rows) == len(names)
    for row, name in zip(rows, names, strict=True):
        row["manifest_path"] = str(name)
    with target.open("wb") as stream:
        fastavro.writer(stream, schema, rows)
    return target.read_bytes()


def manifests_of(data: Path) -> list[Path]:
    with data.open("rb") as stream:
        return [on_disk(row["manifest_path"]) for row in fastavro.reader(stream)]


def linked(server, home: Path, kind: str) -> list[Path]:
    """Names in Ann's folder of the manifests of the bank."""
    found = manifests_of(stolen(server))
    if kind == "files":
        links = [home / f"link-{n}.avro" for n in range(len(found))]
        for link, one in zip(links, found, strict=True):
            link.symlink_to(one)
        return links
    (home / "deeper").symlink_to(found[0].parent)
    return [home / "deeper" / one.name for one in found]


@pytest.mark.parametrize("kind", ["names", "files", "folder"])
def test_appends_merge_nothing_of_other_tables(server, tmp_path, kind):
    """What the server merges it writes into the folder of the table, where its owner reads it."""
    name = f"mule_{kind}"
    metadata = made(server, name, **{"commit.manifest.min-count-to-merge": "2"})
    home = on_disk(metadata["location"])
    data = stolen(server).read_bytes()
    if kind != "names":
        data = renamed(stolen(server), linked(server, home, kind), tmp_path / "list.avro")
    listing(server, name, metadata, data)
    file = {
        "spec-id": 0,
        "partition": [],
        "content": "data",
        "file-path": f"{metadata['location']}/data/x.parquet",
        "file-format": "parquet",
        "file-size-in-bytes": 1,
        "record-count": 1,
    }
    # nor when it is somebody else who appends
    for number, caller in enumerate(("ann", "root")):
        body = {
            "append-id": 77 + number,
            "table-uuid": metadata["table-uuid"],
            "branch": "main",
            "manifests": [],
            "files": [{**file, "file-path": f"{file['file-path']}.{number}"}],
        }
        key = {"Idempotency-Key": str(uuid.uuid4())}
        path = f"{TABLES}/{name}/appends"
        answer = server.ask(server.token(caller), "POST", path, body, **key)
        assert answer.status_code in (200, 403), answer.text
    written = list((home / "metadata").glob("*-m*.avro"))
    assert written
    for one in written:
        with one.open("rb") as stream:
            paths = [row["data_file"]["file_path"] for row in fastavro.reader(stream)]
        assert not [path for path in paths if "/bank/" in path], one


@pytest.mark.parametrize("kind", ["files", "folder"])
def test_plans_follow_no_links(server, tmp_path, kind):
    name = f"linked_{kind}"
    metadata = made(server, name)
    names = linked(server, on_disk(metadata["location"]), kind)
    listing(server, name, metadata, renamed(stolen(server), names, tmp_path / "list.avro"))
    answer = server.ask(server.token("ann"), "POST", f"{TABLES}/{name}/plan", {})
    assert error(answer) == (403, "ForbiddenException")
    assert "data-file" not in answer.text


def test_a_table_that_became_a_link_is_not_planned(server):
    """Its own manifest list still names manifests in its own folder."""
    table = server.lake.create_table("ann.moved", ROWS.schema)
    table.append(ROWS)
    home = on_disk(table.location)
    plan = f"{TABLES}/moved/plan"
    assert server.ask(server.token("ann"), "POST", plan, {}).status_code == 200
    kept = home.with_name("kept")
    shutil.move(home, kept)
    home.symlink_to(kept)
    answer = server.ask(server.token("ann"), "POST", plan, {})
    assert error(answer) == (403, "ForbiddenException")


def test_nothing_is_put_behind_a_link(server):
    bank = on_disk(server.lake.load_table("bank.secret").location)
    home = on_disk(made(server, "straight")["location"])
    inside, beside = home / "behind", home.parent / f"{home.name}-links" / "behind"
    beside.parent.mkdir()
    for link in (inside, beside):
        link.symlink_to(bank)
    before = sorted(bank.rglob("*"))
    ann = server.token("ann")
    for place in (str(inside), f"{inside}/deeper", str(beside), f"file://{beside}/deeper"):
        body = {"name": "behind", "schema": SCHEMA, "location": place}
        assert server.ask(ann, "POST", TABLES, body).status_code in (400, 403)
        for update in (
            {"action": "set-location", "location": place},
            {"action": "set-properties", "updates": {"write.metadata.path": place}},
            {"action": "set-properties", "updates": {"write.data.path": place}},
        ):
            moved = server.ask(ann, "POST", f"{TABLES}/straight", {"updates": [update]})
            assert error(moved) == (403, "ForbiddenException"), (place, update)
    assert sorted(bank.rglob("*")) == before


def test_a_warehouse_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "lake").symlink_to(tmp_path / "disk")
    lake = open_lake("filesystem", tmp_path / "lake")
    lake.create_table("ann.t", ROWS.schema).append(ROWS)
    with guarded(lake, rules_file(tmp_path)) as server:
        answer = server.ask(server.token("ann"), "POST", f"{TABLES}/t/plan", {})
        assert len(answer.json()["file-scan-tasks"]) == 1


def test_refusals_do_not_tell_which_tables_there_are(server):
    made(server, "curious")
    there = server.lake.load_table("bank.secret").location
    said = []
    for place in (there, f"{there}-absent"):
        moved = {"updates": [{"action": "set-location", "location": place}]}
        answer = server.ask(server.token("ann"), "POST", f"{TABLES}/curious", moved)
        said.append((answer.status_code, answer.text.replace(place, "")))
    assert said[0] == said[1]


def test_long_locations_are_refused_and_not_remembered(server):
    home = made(server, "long")["location"]
    location.canonical.cache_clear()
    location.parse.cache_clear()
    for number in range(3):
        place = f"{home}/{number}" + "/a" * 100_000
        moved = {"updates": [{"action": "set-location", "location": place}]}
        answer = server.ask(server.token("ann"), "POST", f"{TABLES}/long", moved)
        assert answer.status_code == 400
        assert len(answer.content) < 10_000
        size = location.canonical.cache_info().currsize
        location.canonical(home)
        # what was refused is no entry: asked again it is refused again
        with pytest.raises(location.InvalidLocationError, match="4096 characters"):
            location.canonical(place)
        assert location.canonical.cache_info().currsize in (size, size + 1)
