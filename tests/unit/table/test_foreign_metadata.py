"""What other writers put into metadata stays, and what this version cannot keep true is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import UnsupportedFeatureError, UnsupportedTypeError
from lakehouse.storage.local import LocalStorage
from lakehouse.storage.location import local_path

ROWS = pa.table({"i": [1, 2], "s": [{"x": 1}, None], "l": [[{"y": 1}], None]})


@pytest.fixture
def table(tmp_path):
    table = lh.load_catalog(str(tmp_path)).create_table("t.rows", ROWS.schema, format_version=3)
    table.append(ROWS)
    return table


def edited(table, change):
    """The table after its metadata file was changed by somebody else."""
    path = Path(local_path(table.metadata_location))
    document = json.loads(path.read_text())
    change(document)
    path.chmod(0o644)
    path.write_text(json.dumps(document))
    return lh.load_catalog(str(path.parents[3])).load_table("t.rows")


def metadata_of(table):
    return json.loads(Path(local_path(table.metadata_location)).read_text())


def current_schema(table):
    document = metadata_of(table)
    return next(
        one for one in document["schemas"] if one["schema-id"] == document["current-schema-id"]
    )


@pytest.mark.parametrize(
    "kind",
    [
        "geometry",
        "geometry(srid:4326)",
        "geography",
        "geography(srid:4326)",
        "geography(srid:4326, karney)",
        "geography(OGC:CRS84, vincenty)",
        "geometry(projjson:MyCrs)",
        "geometry(projjson:a,B)",
        'geometry("My (Crs)")',
        'geography("A, b", karney)',
        'geometry({"id": {"authority": "EPSG", "code": 3857}, "name": "Pseudo (X, Y)"})',
        "geography(projjson:My,Crs, spherical)",
    ],
)
def test_evolution_keeps_the_names_of_geometry_types(table, kind):
    def add(document):
        document["schemas"][0]["fields"].append(
            {"id": 90, "name": "g", "required": False, "type": kind}
        )
        document["last-column-id"] = 90

    table = edited(table, add)
    with table.update_schema() as change:
        change.add_column("z", "int")
    assert {one["name"]: one["type"] for one in current_schema(table)["fields"]}["g"] == kind


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("geometry(projjson:MyCrs)", "geometry(projjson:MyCrs)"),
        ("GEOGRAPHY(EPSG:4326, Karney)", "geography(EPSG:4326, karney)"),
        ("struct<g: geometry(projjson:A,b), n: int>", "geometry(projjson:A,b)"),
    ],
)
def test_a_reference_system_is_stored_as_it_was_given(table, kind, stored):
    with table.update_schema() as change:
        change.add_column("g", kind)
    added = current_schema(table)["fields"][-1]["type"]
    assert stored == (added if isinstance(added, str) else added["fields"][0]["type"])
    again = lh.load_catalog(str(Path(local_path(table.metadata_location)).parents[3])).load_table(
        "t.rows"
    )
    assert again.schema() == table.schema()
    refused = pytest.raises(lh.InvalidSchemaError, match=r"'bogus' is no algorithm.* karney")
    with refused, table.update_schema() as change:
        change.add_column("h", "geography(EPSG:4326, bogus)")


@pytest.mark.parametrize("inside", ["column", "struct", "list", "map", "key"])
def test_a_required_column_of_unknown_is_named_and_can_be_mended(table, inside):
    value = {"name": "u", "required": True, "type": "unknown"}
    kind = {
        "column": "unknown",
        "struct": {"type": "struct", "fields": [{"id": 91, **value}]},
        "list": {"type": "list", "element-id": 91, "element": "unknown", "element-required": True},
        "map": {
            "type": "map",
            "key-id": 91,
            "key": "string",
            "value-id": 92,
            "value": "unknown",
            "value-required": True,
        },
        "key": {
            "type": "map",
            "key-id": 91,
            "key": "unknown",
            "value-id": 92,
            "value": "int",
            "value-required": False,
        },
    }[inside]

    def add(document):
        document["schemas"][0]["fields"].append(
            {"id": 90, "name": "g", "required": inside == "column", "type": kind}
        )
        document["last-column-id"] = 92

    table = edited(table, add)
    for use in (
        lambda: table.scan().to_arrow(),
        lambda: table.scan().to_polars(),
        lambda: list(table.scan().to_batches()),
        lambda: table.append(pa.table({"i": [3]})),
    ):
        with pytest.raises(UnsupportedTypeError, match=r"'g.* is required and of type unknown"):
            use()
    assert table.scan(select=["i"]).to_arrow().num_rows == 2
    assert table.scan().count() == 2
    with table.update_schema() as change:
        if inside == "column":
            change.make_optional("g")
        elif inside == "struct":
            change.make_optional(("g", "u"))
        else:
            change.drop_column("g")
    table.append(pa.table({"i": [3]}))
    assert table.scan().to_arrow().num_rows == 3


def test_evolution_keeps_keys_that_this_version_does_not_know(table):
    def mark(document):
        schema = document["schemas"][0]
        schema["of-schema"] = 1
        i, s, items = schema["fields"]
        i["of-field"] = {"a": [1]}
        s["type"]["fields"][0]["of-nested"] = 2
        items["type"]["of-list"] = 3
        items["type"]["element"]["fields"][0]["of-element"] = 4

    table = edited(table, mark)
    for step in range(2):
        with table.update_schema() as change:
            change.add_column(f"z{step}", "int")
            change.rename_column("i" if step == 0 else "j", "j" if step == 0 else "k")
    table.append(pa.table({"k": [3]}))
    schema = current_schema(table)
    fields = {one["name"]: one for one in schema["fields"]}
    assert schema["of-schema"] == 1
    assert fields["k"]["of-field"] == {"a": [1]}
    assert fields["s"]["type"]["fields"][0]["of-nested"] == 2
    assert fields["l"]["type"]["of-list"] == 3
    assert fields["l"]["type"]["element"]["fields"][0]["of-element"] == 4
    assert "of-field" not in fields["z0"]


def test_a_table_to_be_encrypted_is_refused(tmp_path):
    catalog = lh.load_catalog(str(tmp_path))
    with pytest.raises(UnsupportedFeatureError, match=r"encryption\.key-id"):
        catalog.create_table("t.rows", ROWS.schema, properties={"encryption.key-id": "k"})


ENCRYPTED_VERBS = {
    "append": lambda table: table.append(ROWS),
    "delete": lambda table: table.delete(where="i = 1"),
    "update": lambda table: table.update({"i": "i + 1"}, where="i = 1"),
    "overwrite": lambda table: table.overwrite(ROWS),
    "upsert": lambda table: table.upsert(ROWS, keys=["i"]),
    "write_files": lambda table: table.write_files(ROWS),
    "compact": lambda table: table.compact(lh.CompactionOptions(rewrite_all=True)),
    "rewrite_manifests": lambda table: table.rewrite_manifests(),
    "statistics": lambda table: table.compute_statistics(),
    "partition statistics": lambda table: table.compute_partition_statistics(),
    "key filters": lambda table: table.compute_key_filters(["i"]),
}


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("where", ["property", "snapshot"])
@pytest.mark.parametrize("verb", ENCRYPTED_VERBS)
def test_nothing_is_written_in_plain_text_beside_encrypted_files(
    tmp_path, monkeypatch, verb, where, mode
):
    catalog = lh.load_catalog(str(tmp_path))
    properties = {f"write.{one}.mode": mode for one in ("delete", "update", "merge")}
    table = catalog.create_table(
        "t.rows", ROWS.schema, partition_by=["bucket(2, i)"], properties=properties
    )
    table.append(ROWS)
    table.append(ROWS)

    def encrypt(document):
        if where == "property":
            document["properties"]["encryption.key-id"] = "k"
        else:
            for snapshot in document["snapshots"]:
                snapshot["key-id"] = "k"

    table = edited(table, encrypt)
    written = []
    for name in ("write", "write_new", "open_output"):
        real = getattr(LocalStorage, name)

        def noted(storage, first, *more, real=real, **named):
            written.extend([first] if isinstance(first, str) else first)
            return real(storage, first, *more, **named)

        monkeypatch.setattr(LocalStorage, name, noted)
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        ENCRYPTED_VERBS[verb](table)
    assert [one for one in written if not one.endswith((".json", ".text"))] == []


@pytest.mark.parametrize("where", ["property", "snapshot"])
def test_plain_files_are_not_added_to_encrypted_tables(table, where):
    def encrypt(document):
        if where == "property":
            document["properties"]["encryption.key-id"] = "k"
        else:
            document["snapshots"][0]["key-id"] = "k"

    table = edited(table, encrypt)
    before = sorted(path for path in Path(local_path(table.location)).rglob("*"))
    for write in (
        lambda: table.append(ROWS),
        lambda: table.delete(where="i = 1"),
        lambda: table.overwrite(ROWS),
        lambda: table.transaction().append(list(table.scan().plan().files)).commit(),
    ):
        with pytest.raises(UnsupportedFeatureError, match="encrypted"):
            write()
    assert table.scan().to_arrow().equals(ROWS.cast(table.scan().to_arrow().schema))
    after = [
        path
        for path in sorted(Path(local_path(table.location)).rglob("*"))
        if "data" in path.parts[-2:]
    ]
    assert after == [path for path in before if "data" in path.parts[-2:]]


@pytest.mark.parametrize("pattern", ["snap-*.avro", "*-m0.avro"])
def test_an_encrypted_list_or_manifest_is_called_encrypted(table, pattern):
    for path in Path(local_path(table.location), "metadata").glob(pattern):
        path.chmod(0o644)
        path.write_bytes(b"AGS1" + bytes(2000))
    for twin in Path(local_path(table.location), "metadata").rglob("*.arrow*"):
        twin.unlink()
    again = lh.load_catalog(str(Path(local_path(table.metadata_location)).parents[3])).load_table(
        "t.rows"
    )
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        again.scan().plan()


def as_v1(document):
    document["format-version"] = 1
    document["schema"] = document["schemas"][0]
    document["partition-spec"] = []
    for key in ("last-sequence-number", "next-row-id"):
        document.pop(key, None)


def test_a_v1_table_is_upgraded_when_that_is_asked_for_and_not_before(tmp_path):
    empty = lh.load_catalog(str(tmp_path)).create_table("t.rows", ROWS.schema)
    table = edited(empty, as_v1)
    for change in (
        lambda: table.append(ROWS),
        lambda: table.overwrite(ROWS),
        lambda: table.transaction().append([]).commit(),
    ):
        with pytest.raises(UnsupportedFeatureError, match="'format-version': '2'"):
            change()
    table.set_properties({"a": "b"})
    with table.update_schema() as schema:
        schema.add_column("z", "int")
    assert metadata_of(table)["format-version"] == 1
    assert table.scan().to_arrow().num_rows == 0
    table.set_properties({"format-version": "2"})
    table.append(ROWS)
    assert metadata_of(table)["format-version"] == 2
    assert table.scan().count() == 2
