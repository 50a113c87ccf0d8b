"""View metadata: its JSON, and folding updates into it; pyiceberg's models read what we write."""

import copy
import gzip
import json

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType
from pyiceberg.view.metadata import ViewMetadata as TheirMetadata

from lakehouse.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidPropertyError,
    InvalidViewError,
    LakehouseError,
    UnsupportedFeatureError,
)
from lakehouse.spec.metadata import table_updates as up
from lakehouse.spec.views.view_json import parse_view, serialize_view
from lakehouse.spec.views.view_metadata import SqlRepresentation, ViewVersion
from lakehouse.spec.views.view_updates import (
    AddViewVersion,
    AssertViewUUID,
    SetCurrentViewVersion,
    apply_view_updates,
    view_requirement_from_json,
    view_update_from_json,
)

UUID = "fa6506c3-7681-40c8-86dc-e36561f83385"
# What the specification's example says, in our words: two versions of a view with one schema.
DOCUMENT = {
    "view-uuid": UUID,
    "format-version": 1,
    "location": "s3://bucket/warehouse/default.db/event_agg",
    "current-version-id": 2,
    "properties": {"comment": "Daily event counts"},
    "versions": [
        {
            "version-id": n,
            "timestamp-ms": 1_573_518_000_000 + n,
            "schema-id": 1,
            "default-catalog": "prod",
            "default-namespace": ["default"],
            "summary": {"engine-name": "Spark"},
            "representations": [
                {"type": "sql", "sql": f"SELECT {n}", "dialect": "spark"},
                {"type": "plan", "tree": [n]},
            ],
        }
        for n in (1, 2)
    ],
    "schemas": [
        {
            "schema-id": 1,
            "type": "struct",
            "fields": [{"id": 1, "name": "n", "required": False, "type": "int", "doc": "a count"}],
        }
    ],
    "version-log": [
        {"timestamp-ms": 1_573_518_000_001, "version-id": 1},
        {"timestamp-ms": 1_573_518_000_002, "version-id": 2},
    ],
    "their-own": {"kept": True},
}
SCHEMA = Schema(NestedField(1, "n", IntegerType(), required=False))
OTHER = Schema(NestedField(1, "s", StringType(), required=False))


def version(sql, *dialects, at=7, schema_id=-1, **more):
    representations = tuple(SqlRepresentation(sql, one) for one in dialects or ("spark",))
    return ViewVersion(1, schema_id, at, representations, ("raw",), **more)


def fold(base, *updates, now=50):
    return apply_view_updates(base, updates, now_ms=now)


def made(**properties):
    return fold(
        None,
        up.AssignUUID(UUID),
        up.SetLocation("/w/raw/v"),
        up.SetProperties(properties),
        up.AddSchema(SCHEMA),
        AddViewVersion(version("SELECT 1")),
        SetCurrentViewVersion(),
    )


def replaced(base, sql, *dialects, schema=SCHEMA, at=9):
    return fold(
        base,
        up.AddSchema(schema),
        AddViewVersion(version(sql, *dialects, at=at)),
        SetCurrentViewVersion(),
    )


def log(metadata):
    return [(one.timestamp_ms, one.version_id) for one in metadata.version_log]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_nothing_is_lost_on_the_way_through(codec):
    read = parse_view(json.dumps(DOCUMENT).encode(), "v")
    data = serialize_view(read, codec=codec)
    assert json.loads(gzip.decompress(data) if codec == "gzip" else data) == DOCUMENT
    assert parse_view(data, "v") == read
    assert read.current_version().dialects()["spark"].sql == "SELECT 2"
    assert read.schema().find_field("n").doc == "a count"


def test_pyiceberg_reads_what_is_written():
    metadata = replaced(made(comment="x"), "SELECT 'a'", schema=OTHER)
    theirs = TheirMetadata.model_validate_json(serialize_view(metadata))
    assert theirs.view_uuid == UUID
    assert theirs.current_version_id == 2
    assert [one.representations[0].root.sql for one in theirs.versions] == [
        "SELECT 1",
        "SELECT 'a'",
    ]
    assert [one.schema_id for one in theirs.versions] == [0, 1]
    assert theirs.schemas == list(metadata.schemas)
    assert parse_view(theirs.model_dump_json().encode(), "v") == metadata


@pytest.mark.parametrize(
    "path",
    [(key,) for key in DOCUMENT if key not in ("properties", "their-own")]
    + [
        ("versions", 0, key)
        for key in DOCUMENT["versions"][0]
        if key not in ("default-catalog", "summary")
    ]
    + [("versions", 0, "representations", 0, key) for key in ("type", "sql", "dialect")]
    + [("version-log", 0, key) for key in ("timestamp-ms", "version-id")],
)
def test_what_is_required_is_missed_by_name(path):
    damaged = copy.deepcopy(DOCUMENT)
    where = damaged
    for key in path[:-1]:
        where = where[key]
    del where[path[-1]]
    with pytest.raises(LakehouseError, match=path[-1]):
        parse_view(json.dumps(damaged).encode(), "v")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"format-version": 2}, UnsupportedFeatureError),
        ({"current-version-id": 3}, CorruptMetadataError),
        ({"schemas": []}, CorruptMetadataError),
        ({"versions": DOCUMENT["versions"] * 2}, CorruptMetadataError),
    ],
)
def test_what_does_not_fit_together_is_refused(change, kind):
    with pytest.raises(kind):
        parse_view(json.dumps(DOCUMENT | change).encode(), "v")


def test_a_new_view():
    metadata = made(comment="x")
    assert (metadata.view_uuid, metadata.current_version_id) == (UUID, 1)
    assert metadata.current_version().schema_id == 0
    assert log(metadata) == [(7, 1)]
    with pytest.raises(InvalidViewError, match="uuid"):
        fold(None, up.SetLocation("/w"))


def test_versions_that_say_the_same_are_one():
    base = replaced(made(), "SELECT 2")
    assert replaced(base, "SELECT 2", at=99) is base
    back = replaced(base, "SELECT 1", at=99)
    assert back.current_version_id == 1
    assert len(back.versions) == 2
    assert log(back) == [(7, 1), (9, 2), (50, 1)]
    other = replaced(base, "SELECT 2", schema=OTHER)
    assert [(one.version_id, one.schema_id) for one in other.versions] == [(1, 0), (2, 0), (3, 1)]


def test_minus_one_means_what_was_added():
    with pytest.raises(InvalidViewError, match="-1"):
        fold(made(), SetCurrentViewVersion())
    with pytest.raises(InvalidViewError, match="-1"):
        fold(made(), AddViewVersion(version("SELECT 2")))
    with pytest.raises(InvalidViewError, match="9"):
        fold(made(), SetCurrentViewVersion(9))
    with pytest.raises(InvalidViewError, match="9"):
        fold(made(), AddViewVersion(version("SELECT 2", schema_id=9)))


def test_one_query_a_dialect():
    with pytest.raises(InvalidViewError, match="multiple queries for dialect trino"):
        replaced(made(), "SELECT 2", "trino", "TRINO")


def test_a_dialect_is_not_dropped_unless_that_is_allowed():
    both = replaced(made(), "SELECT 2", "spark", "trino")
    with pytest.raises(InvalidViewError, match="trino"):
        replaced(both, "SELECT 3", "Spark")
    allowed = fold(both, up.SetProperties({"replace.drop-dialect.allowed": "true"}))
    assert set(replaced(allowed, "SELECT 3", "spark").current_version().dialects()) == {"spark"}


def test_old_versions_go_and_the_log_up_to_them():
    metadata = made(**{"version.history.num-entries": "3"})
    for n in range(2, 6):
        metadata = replaced(metadata, f"SELECT {n}", at=n)
    assert [one.version_id for one in metadata.versions] == [3, 4, 5]
    assert [n for _, n in log(metadata)] == [3, 4, 5]
    rolled = fold(metadata, SetCurrentViewVersion(3))
    less = fold(rolled, up.SetProperties({"version.history.num-entries": "2"}))
    assert [one.version_id for one in less.versions] == [3, 5]
    assert log(less) == [(5, 5), (50, 3)]
    # versions that are added together are kept together
    two = fold(
        less,
        AddViewVersion(version("SELECT 6", schema_id=0)),
        AddViewVersion(version("SELECT 7", schema_id=0)),
    )
    assert [one.version_id for one in two.versions] == [3, 6, 7]
    with pytest.raises(InvalidPropertyError):
        fold(less, up.SetProperties({"version.history.num-entries": "0"}))


def test_identity_and_properties():
    base = made(a="1", b="2")
    assert fold(base, up.AssignUUID(UUID.upper()), up.UpgradeFormatVersion(1)) is base
    with pytest.raises(InvalidViewError, match="uuid"):
        fold(base, up.AssignUUID("11111111-0000-0000-0000-000000000000"))
    with pytest.raises(InvalidViewError, match="format version"):
        fold(base, up.UpgradeFormatVersion(2))
    changed = fold(base, up.SetProperties({"c": "3"}), up.RemoveProperties(("a", "none")))
    assert changed.properties == {"b": "2", "c": "3"}
    AssertViewUUID(UUID.upper()).check(base)
    with pytest.raises(CommitConflictError, match="replaced"):
        AssertViewUUID("11111111-0000-0000-0000-000000000000").check(base)


@pytest.mark.parametrize(
    "update",
    [
        up.AssignUUID(UUID),
        up.UpgradeFormatVersion(1),
        up.AddSchema(SCHEMA),
        up.SetLocation("/w"),
        up.SetProperties({"a": "1"}),
        up.RemoveProperties(("a",)),
        AddViewVersion(version("SELECT 1", default_catalog="c", summary={"k": "v"})),
        SetCurrentViewVersion(3),
    ],
)
def test_updates_come_back_from_their_rest_form(update):
    assert view_update_from_json(json.loads(json.dumps(update.to_json()))) == update
    requirement = AssertViewUUID(UUID)
    assert view_requirement_from_json(requirement.to_json()) == requirement


@pytest.mark.parametrize("document", [{"action": "set-statistics", "statistics": {}}, {}, None])
def test_what_is_no_update_of_a_view_is_refused(document):
    with pytest.raises(CorruptMetadataError):
        view_update_from_json(document)
    with pytest.raises(CorruptMetadataError):
        view_requirement_from_json({"type": "assert-table-uuid", "uuid": UUID})
