"""Damaged metadata files: a typed error, or a usable table; never another exception."""

from __future__ import annotations

import json

import orjson
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.errors import CorruptMetadataError, UnsupportedFeatureError
from lakehouse.spec.metadata import metadata_json as metadata_file
from lakehouse.spec.metadata.metadata_json import parse, serialize
from lakehouse.spec.metadata.table_updates import SetSnapshotRef, SetStatistics
from tests.unit.spec.samples import commit, grown, table, v1_document

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from(
        [
            2**31,
            2**63,
            -(2**63) - 1,
            2**64,
            1.5,
            1e400,
            "",
            "x",
            "struct",
            "decimal(9,2)",
            "bucket[0]",
            "day",
            "main",
        ]
    ),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "type", "x"]), inner)
    ),
    max_leaves=6,
)


def samples():
    rich = table(
        version=3,
        partition_by=("day(ts)", "bucket(4, id)"),
        sort_by=("ts desc",),
        properties={"a": "b"},
    )
    rich = commit(
        grown(rich, 4), SetSnapshotRef("q3", 2, "tag", max_ref_age_ms=9), location="v1.json"
    )
    rich = commit(rich, SetStatistics({"snapshot-id": 1, "statistics-path": "s"}))
    return [json.loads(serialize(rich)), json.loads(serialize(grown(table(), 2))), v1_document()]


SAMPLES = samples()


def places(document, prefix=()):
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        yield (*prefix, key)
        yield from places(value, (*prefix, key))


PLACES = [sorted(places(sample), key=str) for sample in SAMPLES]


def use_everything(metadata):
    for snapshot in metadata.snapshots:
        metadata.snapshot_or_none(snapshot.snapshot_id)
        metadata.schema_for(snapshot)
    list(metadata.snapshot_log)
    list(metadata.ancestors(metadata.current_snapshot_id))
    for schema in metadata.schemas:
        schema.column_names  # noqa: B018
    assert orjson.loads(serialize(parse(serialize(metadata), "again"))) == orjson.loads(
        serialize(metadata)
    )


def survives(data: bytes) -> None:
    try:
        use_everything(parse(data, "some/file"))
    except (CorruptMetadataError, UnsupportedFeatureError):
        return


@st.composite
def broken_documents(draw):
    which = draw(st.integers(0, len(SAMPLES) - 1))
    document = json.loads(json.dumps(SAMPLES[which]))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(PLACES[which]))
        target = document
        for step in path[:-1]:
            try:
                target = target[step]
            except (KeyError, IndexError, TypeError):
                break
        else:
            if not isinstance(target, (dict, list)):
                continue
            if isinstance(target, list) and not (
                isinstance(path[-1], int) and path[-1] < len(target)
            ):
                continue
            if draw(st.booleans()):
                target[path[-1]] = draw(VALUES)
            elif isinstance(target, dict):
                target.pop(path[-1], None)
            else:
                target.append(draw(VALUES))
    return document


@given(broken_documents(), st.sampled_from([None, 2]), st.booleans())
def test_changed_values(document, indent, cut):
    text = json.dumps(document, indent=indent).encode(errors="surrogatepass")
    before = metadata_file._WHOLE_BELOW
    metadata_file._WHOLE_BELOW = 0 if cut else before
    try:
        survives(text)
    finally:
        metadata_file._WHOLE_BELOW = before


@given(
    st.integers(0, 2),
    st.lists(
        st.tuples(st.floats(0, 1), st.binary(max_size=4), st.integers(0, 6)), min_size=1, max_size=4
    ),
    st.booleans(),
)
def test_changed_bytes(which, edits, cut):
    text = bytearray(orjson.dumps(SAMPLES[which]))
    for place, insert, remove in edits:
        at = int(place * len(text))
        text[at : at + remove] = insert
    before = metadata_file._WHOLE_BELOW
    metadata_file._WHOLE_BELOW = 0 if cut else before
    try:
        survives(bytes(text))
    finally:
        metadata_file._WHOLE_BELOW = before


@given(st.integers(0, 2), st.floats(0, 1), st.binary(max_size=4))
def test_changed_gzip(which, place, insert):
    packed = bytearray(serialize(parse(orjson.dumps(SAMPLES[which]), "m"), codec="gzip"))
    at = int(place * len(packed))
    packed[at : at + len(insert)] = insert
    survives(bytes(packed))


@given(st.binary(max_size=300))
def test_noise(noise):
    survives(noise)


@given(VALUES)
def test_other_json(value):
    survives(json.dumps(value).encode(errors="surrogatepass"))


@given(broken_documents(), st.sampled_from([None, 1]))
def test_cut_lists_and_whole_text_agree(document, indent):
    """Opening a table fast refuses what opening it slowly refuses, or gives the same table."""
    text = json.dumps(document, indent=indent).encode(errors="surrogatepass")
    before = metadata_file._WHOLE_BELOW
    outcomes = []
    for limit in (0, 1 << 30):
        metadata_file._WHOLE_BELOW = limit
        try:
            metadata = parse(text, "m")
            use_everything(metadata)
            outcomes.append(orjson.loads(serialize(metadata)))
        except (CorruptMetadataError, UnsupportedFeatureError):
            outcomes.append("refused")
        finally:
            metadata_file._WHOLE_BELOW = before
    assert outcomes[0] == outcomes[1]
