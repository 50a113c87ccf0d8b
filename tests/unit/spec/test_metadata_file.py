"""Reading and writing metadata files."""

import gzip
import json
import tracemalloc
import zlib
from dataclasses import replace

import orjson
import pytest

from lakehouse.errors import CorruptMetadataError, InvalidInputError, UnsupportedFeatureError
from lakehouse.spec.metadata import metadata_json as metadata_file
from lakehouse.spec.metadata.metadata_json import parse, serialize
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_updates import (
    AddSnapshot,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    UpgradeFormatVersion,
)
from tests.unit.spec.samples import commit, grown, table, v1_document


def document_of(metadata):
    return json.loads(serialize(metadata))


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_comes_back_as_it_was(version):
    metadata = grown(
        table(version=version, partition_by=("day(ts)", "bucket(8, id)"), sort_by=("ts desc",)), 3
    )
    metadata = commit(
        metadata,
        SetSnapshotRef("audit", 2, "tag", max_ref_age_ms=5),
        SetProperties({"a": "ü\n"}),
        location="m1",
    )
    again = parse(serialize(metadata), "m2")
    assert again == metadata
    assert serialize(again) == serialize(metadata)


def rich_document():
    metadata = commit(
        grown(table(version=3, partition_by=("day(ts)",)), 2),
        SetStatistics(
            {"snapshot-id": 1, "statistics-path": "s.puffin", "file-size-in-bytes": 9, "novel": [1]}
        ),
        location="v1.json",
    )
    document = document_of(metadata)
    document["encryption-keys"] = [{"key-id": "5f819b", "key-metadata": "aWNlYmVyZwo="}]
    document["novel"] = {"deep": [1, {"x": None}], "float": 1.5}
    document["schemas"][0]["novel"] = "kept"
    document["schemas"][0]["fields"][0]["novel"] = 5
    document["partition-specs"][0]["novel"] = True
    document["partition-specs"].append(
        {
            "spec-id": 7,
            "fields": [
                {"source-ids": [1, 2], "field-id": 1050, "name": "z", "transform": "zorder[3]"}
            ],
        }
    )
    document["last-partition-id"] = 1050
    document["sort-orders"].append(
        {
            "order-id": 4,
            "fields": [
                {
                    "source-id": 2,
                    "transform": "hilbert",
                    "direction": "asc",
                    "null-order": "nulls-last",
                }
            ],
        }
    )
    document["snapshots"][0]["novel"] = {"a": 1}
    document["snapshots"][0]["key-id"] = "k"
    document["refs"]["main"]["novel"] = 1
    document["snapshot-log"][0]["novel"] = 1
    return document


def test_what_was_written_stays_in_memory_within_bounds():
    """Of large properties, too, which each version has anew."""
    grows = table()
    tracemalloc.start()
    try:
        for n in range(20):
            serialize(commit(grows, SetProperties({"large": str(n % 10) * 2**21})))
        assert tracemalloc.get_traced_memory()[0] < 2**24
    finally:
        tracemalloc.stop()


def test_unknown_keys_survive_at_every_level():
    document = rich_document()
    assert document_of(parse(orjson.dumps(document), "m")) == document


def test_unknown_keys_survive_a_commit():
    document = rich_document()
    after = document_of(
        commit(parse(orjson.dumps(document), "m"), SetProperties({"k": "v"}), now=9_999_999)
    )
    assert after.pop("last-updated-ms") == 9_999_999
    document.pop("last-updated-ms")
    assert after == {**document, "properties": {"k": "v"}}


def test_pretty_printed_text_is_read_the_same():
    document = rich_document()
    assert document_of(parse(json.dumps(document, indent=2).encode(), "m")) == document


def test_v1_is_read_with_the_defaults_of_the_spec():
    metadata = parse(orjson.dumps(v1_document()), "m")
    assert metadata.format_version == 1
    assert [field.field_id for field in metadata.spec().fields] == [1000, 1001]
    assert metadata.last_partition_id == 1001
    assert metadata.schema().schema_id == 0
    assert metadata.last_sequence_number == 0
    assert metadata.snapshot(6).manifests == ("/warehouse/old/m0.avro", "/warehouse/old/m1.avro")
    assert metadata.snapshot(6).manifest_list == ""
    assert metadata.snapshot(7).sequence_number == 0
    assert metadata.ref("main").snapshot_id == 7
    assert metadata.sort_order().fields == ()


def test_v1_is_written_as_v1_for_v1_readers():
    document = document_of(parse(orjson.dumps(v1_document()), "m"))
    original = v1_document()
    assert document["schema"]["fields"] == original["schema"]["fields"]
    assert [field["name"] for field in document["partition-spec"]] == ["ts_day", "id_b"]
    assert document["snapshots"] == original["snapshots"]
    assert "last-sequence-number" not in document


def test_a_commit_keeps_v1_until_it_is_upgraded():
    kept = commit(parse(orjson.dumps(v1_document()), "m"), SetProperties({"k": "v"}), now=6_000)
    assert document_of(kept)["format-version"] == 1
    assert document_of(kept)["snapshots"] == v1_document()["snapshots"]
    added = Snapshot(snapshot_id=9, parent_snapshot_id=1, timestamp_ms=1, manifest_list="l")
    with pytest.raises(InvalidInputError, match="version 1"):
        commit(kept, AddSnapshot(replace(added, sequence_number=1)))
    last = document_of(commit(kept, AddSnapshot(added), now=6_000))["snapshots"][-1]
    assert (last["snapshot-id"], "sequence-number" in last) == (9, False)
    after = document_of(commit(kept, UpgradeFormatVersion(2), now=6_000))
    assert after["format-version"] == 2
    assert "schema" not in after
    assert "partition-spec" not in after
    assert [item["sequence-number"] for item in after["snapshots"]] == [0, 0]
    assert after["schemas"][0]["schema-id"] == 0
    assert [field["field-id"] for field in after["partition-specs"][0]["fields"]] == [1000, 1001]
    assert after["snapshot-log"] == v1_document()["snapshot-log"]


def test_minus_one_is_no_snapshot():
    document = document_of(table())
    document["current-snapshot-id"] = -1
    metadata = parse(orjson.dumps(document), "m")
    assert metadata.current_snapshot() is None
    assert metadata.snapshot_for_ref("main") is None


def test_gzip_by_content_whatever_the_name():
    metadata = grown(table(), 2)
    assert parse(serialize(metadata, codec="gzip"), "m") == metadata
    assert gzip.decompress(serialize(metadata, codec="gzip")) == serialize(metadata)
    assert serialize(metadata, codec="gzip") == serialize(metadata, codec="gzip")
    two_members = gzip.compress(serialize(metadata)[:100]) + gzip.compress(
        serialize(metadata)[100:]
    )
    assert parse(two_members, "m") == metadata
    with pytest.raises(InvalidInputError):
        serialize(metadata, codec="zstd")


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[:-9],
        lambda d: d[: len(d) // 2],
        lambda d: d[:20] + b"\xff" * 9 + d[29:],
        lambda d: d + b"x",
    ],
)
def test_damaged_gzip_is_corrupt(damage):
    with pytest.raises(CorruptMetadataError):
        parse(damage(serialize(grown(table(), 1), codec="gzip")), "m")


def test_a_gzip_bomb_is_refused_before_it_fills_memory():
    compressor = zlib.compressobj(9, wbits=31)
    bomb = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(100)) + compressor.flush()
    with pytest.raises(CorruptMetadataError, match="inflates"):
        parse(bomb, "m")


def test_a_later_format_version_is_unsupported_and_a_wrong_one_corrupt():
    document = document_of(table())
    with pytest.raises(UnsupportedFeatureError, match="4"):
        parse(orjson.dumps({**document, "format-version": 4}), "m")
    for wrong in (0, -1, "2", True, None, 2.0):
        with pytest.raises(CorruptMetadataError):
            parse(orjson.dumps({**document, "format-version": wrong}), "m")


@pytest.mark.parametrize(
    "breakage",
    [
        {"current-schema-id": 9},
        {"default-spec-id": 9},
        {"default-sort-order-id": 9},
        {"current-snapshot-id": 99},
        {"current-snapshot-id": None},
        {"schemas": []},
        {"schemas": None},
        {"partition-specs": []},
        {"last-updated-ms": None},
        {"last-column-id": "7"},
        {"location": 5},
        {"table-uuid": None},
        {"last-sequence-number": None},
        {"last-sequence-number": 2**70},
        {"properties": {"a": 1.5}},
        {"properties": []},
        {"refs": {"main": {"snapshot-id": 1, "type": "bough"}}},
        {"refs": {"main": {"snapshot-id": 1, "type": "branch"}}},
        {"refs": {"t": {"snapshot-id": 1, "type": "tag", "min-snapshots-to-keep": 1}}},
        {"refs": []},
        {"snapshots": {}},
        {"snapshots": [5]},
        {"statistics": [{}]},
        {"metadata-log": [{"timestamp-ms": 1}]},
    ],
)
def test_what_contradicts_the_spec_is_corrupt(breakage):
    document = {**document_of(grown(table(), 2)), **breakage}
    with pytest.raises(CorruptMetadataError, match="some/file"):
        parse(json.dumps(document).encode(), "some/file")


def field(**changes):
    return {"id": 1, "name": "a", "required": True, "type": "long", **changes}


@pytest.mark.parametrize(
    "fields",
    [
        [field(), field(name="b")],
        [field(), field(id=2)],
        [field(id=-1)],
        [field(id=2**31)],
        [field(type="lung")],
        [field(type="decimal(39, 2)")],
        [field(type="decimal(3, 9)")],
        [field(type={"type": "list", "element": "int", "element-required": True})],
        [
            field(
                type={"type": "map", "key-id": 5, "key": "string", "value-id": 5, "value": "string"}
            )
        ],
        [field(type={"type": "struct", "fields": 5})],
        [field(type={"type": "tuple"})],
        [field(type=None)],
        [field(**{"initial-default": "x"})],
        [field(type="date", **{"initial-default": "2020-13-45"})],
        [field(type="uuid", **{"write-default": "zz"})],
        [5],
    ],
)
def test_schemas_that_cannot_be_are_corrupt(fields):
    document = document_of(table())
    document["schemas"] = [{"type": "struct", "schema-id": 0, "fields": fields}]
    with pytest.raises(CorruptMetadataError):
        parse(orjson.dumps(document), "m")


def test_types_nested_beyond_reason_are_corrupt_not_a_stack_overflow():
    opening = '{"type":"list","element-id":1,"element-required":true,"element":'
    for depth in (100, 300, 3_000):
        nested = opening * depth + '"int"' + "}" * depth
        text = serialize(table()).replace(b'"type":"long"', b'"type":' + nested.encode(), 1)
        with pytest.raises(CorruptMetadataError):
            parse(text, "m")
    with pytest.raises(CorruptMetadataError):
        parse(b"[" * 100_000, "m")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"[]", b"5", b"\xff\xfe", b'{"format-version":2', b"\x1f\x8b"]
)
def test_not_metadata_at_all(content):
    with pytest.raises(CorruptMetadataError):
        parse(content, "m")


class TestLongLists:
    """Lists that are not decoded are cut exactly, in any text, or all of it is decoded."""

    @pytest.fixture(autouse=True)
    def cut_always(self, monkeypatch):
        monkeypatch.setattr(metadata_file, "_WHOLE_BELOW", 0)

    @staticmethod
    def both_ways(document, text=None):
        text = orjson.dumps(document) if text is None else text
        metadata = parse(text, "m")
        assert document_of(metadata) == document
        assert [item.to_json(2) for item in metadata.snapshots] == document["snapshots"]
        assert len(metadata.snapshots) == len(document["snapshots"])
        assert len(metadata.snapshot_log) == len(document["snapshot-log"])

    @pytest.fixture
    def document(self):
        return document_of(grown(table(partition_by=("day(ts)",)), 5))

    def test_compact_and_indented(self, document):
        self.both_ways(document)
        self.both_ways(document, json.dumps(document, indent=2).encode())
        self.both_ways(document, json.dumps(document, separators=(" , ", " : ")).encode())

    @pytest.mark.parametrize(
        "value",
        [
            '],"snapshots":[',
            "]}",
            '"],"',
            '\\"],"x":',
            '},{"snapshot-id":9}',
            '"summary":{',
            "{",
            "}",
            "]",
            "a],b",
            '"snapshots":[',
            "\\",
            '\\\\"',
        ],
    )
    @pytest.mark.parametrize("where", ["property", "summary", "location", "key"])
    def test_text_that_looks_like_structure(self, document, value, where):
        if where == "property":
            document["properties"] = {"x": value, value: "y"}
        elif where == "summary":
            document["snapshots"][2]["summary"]["note"] = value
        elif where == "location":
            document["snapshots"][3]["manifest-list"] = value
        else:
            document["snapshots"][1][value] = value
        self.both_ways(document)
        self.both_ways(document, json.dumps(document, indent=1).encode())

    def test_objects_inside_snapshots(self, document):
        document["snapshots"][0]["more"] = [{"snapshot-id": 1}, {"snapshot-id": 2}]
        document["snapshots"][1]["more"] = {"snapshots": [], "snapshot-log": [{"a": 1}]}
        self.both_ways(document)

    def test_lists_elsewhere_of_the_same_name(self, document):
        self.both_ways({"first": {"snapshots": [1], "snapshot-log": []}, **document})
        self.both_ways({**document, "last": {"snapshots": [{"x": 1}]}})

    def test_the_last_of_two_equal_keys_counts_as_for_every_reader(self, document):
        text = orjson.dumps(document)
        assert len(parse(b'{"snapshots":[{"snapshot-id":77}],' + text[1:], "m").snapshots) == 5

    def test_absent_empty_and_null_lists(self, document):
        for empty in (
            {"snapshots": [], "snapshot-log": []},
            {"snapshots": None, "snapshot-log": None},
        ):
            changed = {**document, **empty, "current-snapshot-id": None, "refs": {}}
            assert list(parse(orjson.dumps(changed), "m").snapshots) == []
        missing = {
            k: v
            for k, v in document.items()
            if k not in ("snapshots", "snapshot-log", "refs", "current-snapshot-id")
        }
        assert len(parse(orjson.dumps(missing), "m").snapshot_log) == 0

    @pytest.mark.parametrize("stray", ["null", "5", "[]", '"x"'])
    def test_items_that_are_no_objects_are_not_passed_over(self, document, stray):
        text = orjson.dumps(document)
        for damaged in (
            text[:-2] + b"," + stray.encode() + b"]}",
            text.replace(b'"snapshots":[', b'"snapshots":[' + stray.encode() + b","),
        ):
            with pytest.raises(CorruptMetadataError):
                list(parse(damaged, "m").snapshots)

    def test_keys_in_another_order(self, document):
        for snapshot in document["snapshots"]:
            ordered = dict(sorted(snapshot.items(), reverse=True))
            snapshot.clear()
            snapshot.update(ordered)
        self.both_ways(document)

    def test_every_snapshot_is_found_by_id_and_no_other(self, document):
        metadata = parse(orjson.dumps(document), "m")
        for number in range(1, 6):
            assert metadata.snapshot(number).snapshot_id == number
        for absent in (0, 6, 11, 12, -1, 1050):
            assert metadata.snapshot_or_none(absent) is None

    def test_damage_inside_a_list_is_found_when_looked_at(self, document):
        text = orjson.dumps(document).replace(
            b'"timestamp-ms":1030,"manifest-list"', b'"timestamp-ms":abcd,"manifest-list"'
        )
        metadata = parse(text, "some/file")
        assert metadata.snapshot(5).snapshot_id == 5
        with pytest.raises(CorruptMetadataError, match="some/file"):
            list(metadata.snapshots)
        with pytest.raises(CorruptMetadataError, match="some/file"):
            metadata.snapshot(3)


def test_a_long_history_is_decoded_where_it_is_looked_at():
    """Opening a table does not read snapshots: a damaged one is noticed when it is read."""
    document = json.loads(serialize(grown(table(), 3)))
    last = document["snapshots"][-1]
    old = [{**document["snapshots"][0], "snapshot-id": 10_000 + number} for number in range(5000)]
    broken = {**document["snapshots"][0], "snapshot-id": 9_999, "timestamp-ms": "yesterday"}
    document["snapshots"] = [broken, *old, *document["snapshots"]]
    metadata = parse(json.dumps(document).encode(), "m")
    assert metadata.current_snapshot().snapshot_id == last["snapshot-id"]
    assert metadata.snapshot(14_999).manifest_list == old[-1]["manifest-list"]
    assert len(metadata.snapshots) == 5004
    with pytest.raises(CorruptMetadataError, match="timestamp-ms"):
        metadata.snapshot(9_999)


def test_versions_that_repeat_a_schema_share_it_and_a_damaged_one_is_named():
    text = serialize(table(version=2))
    one, two = (parse(text, f"v{n}.metadata.json") for n in (1, 2))
    assert one.schema() is two.schema()
    document = orjson.loads(text)
    document["schemas"][0]["fields"][0]["type"] = "no type"
    damaged = orjson.dumps(document)
    for location in ("v3.metadata.json", "v4.metadata.json"):
        with pytest.raises(CorruptMetadataError, match=location):
            parse(damaged, location)
