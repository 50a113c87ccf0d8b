"""What strangers get wrong: parts of a table that contradict each other, or the specification.

What the rows are stays known, so that the right answer is. Where it cannot be known from what is
there, an error has to say so.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tests.hostile.foreign_files import PATH_ID, POSITION_ID, Entry, Manifest, puffin, vector
from tests.hostile.foreign_stories import (
    NAN,
    VALUES,
    Column,
    Kind,
    Layout,
    Many,
    Pairs,
    Story,
    Struct,
    Written,
    field_json,
    leaves,
    serialized,
    token,
)

FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class Bend:
    """A way to bend a table.

    Attributes:
        name: what is bent.
        asks: `right`: the answer must be right; `error`: rows must not be answered at all;
            `either`: a typed error or the right answer.
        apply: bends the table of a story; False where it has nothing of the kind.
        counts_lie: whether a count that metadata answers cannot know.
        filters_lie: whether a filter may leave out what would tell.
    """

    name: str
    asks: str
    apply: Callable[[random.Random, Story], bool]
    counts_lie: bool = False
    filters_lie: bool = False


BENDS: list[Bend] = []


def bend(asks: str, *, counts_lie: bool = False, filters_lie: bool = False) -> Callable[[Any], Any]:
    """Register a bend under the name of its function."""

    def register(apply: Callable[[random.Random, Story], bool]) -> Any:
        name = apply.__name__.replace("_", " ")
        BENDS.append(Bend(name, asks, apply, counts_lie, filters_lie))
        return apply

    return register


def _says(entry: Entry, **parts: Any) -> None:
    entry.record = {**entry.record, **parts}


def _live(story: Story, content: int) -> list[Entry]:
    return [one for one in story.table.entries if one.record["content"] == content]


def _parquet(story: Story, content: int) -> list[Entry]:
    return [one for one in _live(story, content) if one.stored.table is not None]


def _matter(story: Story) -> list[Entry]:
    """Position delete files that some live data file needs."""
    named = {file.path for file in story.files if file.vector is None}
    return [
        one
        for one in _parquet(story, 1)
        if named & set(one.stored.table.column("file_path").to_pylist())
    ]


# bounds and counts


def _some_values(kind: str) -> list[Any]:
    return [one for one in VALUES[kind] if token(one) != token(NAN)]


@bend("right")
def bounds_that_are_inverted(rng: random.Random, story: Story) -> bool:
    file = rng.choice(story.files)
    lower, upper = {}, {}
    for path in leaves(file.columns):
        kind = str(path[-1].kind)
        values = sorted(_some_values(kind), key=lambda one: one.bytes if kind == "uuid" else one)
        if rng.random() < 0.7 and values[0] != values[-1]:
            lower[path[-1].field_id] = serialized(values[-1], kind)
            upper[path[-1].field_id] = serialized(values[0], kind)
    _says(file.entry, lower_bounds=lower, upper_bounds=upper)
    return bool(lower)


@bend("right")
def bounds_of_a_wrong_length(rng: random.Random, story: Story) -> bool:
    file = rng.choice(story.files)
    numbers = [
        path[-1].field_id
        for path in leaves(file.columns)
        if path[-1].kind not in ("string", "binary")
    ]
    junk = [b"", b"\x01\x02\x03", b"\xff" * 5, b"\x00" * 19]
    ends = {one: rng.choice(junk) for one in numbers}
    # fewer bytes than a decimal may have are a decimal
    decimals = [
        path[-1].field_id
        for path in leaves(file.columns)
        if str(path[-1].kind).startswith("decimal")
    ]
    for one in decimals:
        ends[one] = rng.choice([b"", b"\x00" * 19])
    _says(file.entry, lower_bounds=ends, upper_bounds=dict(ends))
    return True


@bend("right")
def bounds_that_are_no_text(rng: random.Random, story: Story) -> bool:
    file = rng.choice(story.files)
    texts = [path[-1].field_id for path in leaves(file.columns) if path[-1].kind == "string"]
    _says(
        file.entry,
        lower_bounds=dict.fromkeys(texts, b"\xff\xfe"),
        upper_bounds={one: rng.choice([b"z\xc3", b"\xf4\x8f\xbf\xbf\xf4"]) for one in texts},
    )
    return bool(texts)


@bend("right")
def bounds_of_fields_that_no_schema_has(rng: random.Random, story: Story) -> bool:
    file = rng.choice(story.files)
    for name in ("lower_bounds", "upper_bounds"):
        known = file.entry.record.get(name) or {}
        _says(file.entry, **{name: {**known, 7777: rng.randbytes(rng.randint(0, 9))}})
    return True


@bend("right")
def counts_that_contradict_the_rows(rng: random.Random, story: Story) -> bool:
    file = rng.choice(story.files)
    rows = len(file.rows)
    counts = {
        path[-1].field_id: rng.choice([-1, 0, rows + 1, max(0, rows - 1), 2**40])
        for path in leaves(file.columns)
    }
    counts = {key: value for key, value in counts.items() if value != rows}
    nulls = {key: rng.choice([value, -1, rows + 9]) for key, value in counts.items()}
    nans = {key: rng.choice([value, 0]) for key, value in counts.items()}
    _says(
        file.entry, value_counts=counts, null_value_counts=nulls, nan_value_counts=nans,
        lower_bounds={}, upper_bounds={},
    )  # fmt: skip
    return bool(counts)


@bend("right")
def more_nulls_than_values(rng: random.Random, story: Story) -> bool:
    file = rng.choice(story.files)
    rows = len(file.rows)
    ids = [path[-1].field_id for path in leaves(file.columns)]
    _says(
        file.entry,
        value_counts=dict.fromkeys(ids, rows),
        null_value_counts={one: rows + rng.randint(1, 9) for one in ids},
    )
    return True


@bend("right")
def bounds_of_paths_that_cover_nothing(rng: random.Random, story: Story) -> bool:
    files = _matter(story)
    if not files:
        return False
    entry = rng.choice(files)
    path = str(entry.record["file_path"]).encode()
    low, high = rng.choice(
        [
            (b"z", b"a"),
            (b"a", b"b"),
            (path[:16], path[:16]),
            (b"", b""),
            (b"zz", None),
            (None, b"a"),
        ]
    )
    _says(
        entry,
        referenced_data_file=None,
        lower_bounds={} if low is None else {PATH_ID: low},
        upper_bounds={} if high is None else {PATH_ID: high},
    )
    return True


# sequence numbers, order, manifests


@bend("error")
def an_existing_file_without_a_sequence_number(rng: random.Random, story: Story) -> bool:
    # only where deletes depend on it
    if not any(file.positions or file.gone for file in story.files) or story.version == 1:
        return False
    manifests = [
        one
        for one in story.table.manifests
        if one.version > 1 and any(entry.status == 0 for entry in one.entries)
    ]
    if not manifests:
        return False
    manifest = rng.choice(manifests)
    for entry in manifest.entries:
        if entry.status == 0:
            entry.sequence = None
    return True


@bend("right")
def manifests_in_another_order(rng: random.Random, story: Story) -> bool:
    rng.shuffle(story.table.manifests)
    for manifest in story.table.manifests:
        rng.shuffle(manifest.entries)
    return True


@bend("either")
def a_manifest_under_a_spec_that_is_not_there(rng: random.Random, story: Story) -> bool:
    rng.choice(story.table.manifests).listed["partition_spec_id"] = 77
    return True


@bend("either")
def a_delete_manifest_listed_as_data(rng: random.Random, story: Story) -> bool:
    manifests = [one for one in story.table.manifests if one.deletes]
    if not manifests:
        return False
    rng.choice(manifests).listed["content"] = 0
    return True


@bend("either", filters_lie=True)
def a_data_manifest_listed_as_deletes(rng: random.Random, story: Story) -> bool:
    manifests = [one for one in story.table.manifests if not one.deletes and one.version > 1]
    if not manifests or story.now == 1:
        return False
    rng.choice(manifests).listed["content"] = 1
    return True


@bend("either")
def a_content_that_nobody_knows(rng: random.Random, story: Story) -> bool:
    if any(manifest.version == 1 for manifest in story.table.manifests):
        return False
    _says(rng.choice(story.table.entries), content=rng.choice([3, -1, 7]))
    return True


@bend("either")
def a_status_that_nobody_knows(rng: random.Random, story: Story) -> bool:
    manifest = rng.choice([one for one in story.table.manifests if one.entries])
    manifest.listed["added_rows_count"] = 1
    rng.choice(manifest.entries).status = rng.choice([3, -1, 9])
    return True


@bend("either")
def counts_of_manifests_that_are_wrong(rng: random.Random, story: Story) -> bool:
    manifest = rng.choice(story.table.manifests)
    for name in ("added", "existing", "deleted"):
        manifest.listed[f"{name}_files_count"] = rng.choice([0, 1, -1, 99])
        manifest.listed[f"{name}_rows_count"] = rng.choice([0, 1, -1, 99])
    # a list that says throughout that nothing is there is believed, as by Java
    manifest.listed["added_rows_count"] = rng.choice([1, 99])
    return True


@bend("either")
def manifests_without_metadata(rng: random.Random, story: Story) -> bool:
    manifest = rng.choice(story.table.manifests)
    names = ["schema", "partition-spec", "partition-spec-id", "format-version", "content"]
    manifest.metadata = dict.fromkeys(rng.sample(names, rng.randint(1, 5)))
    return True


@bend("either")
def entries_without_what_is_required(rng: random.Random, story: Story) -> bool:
    manifest = rng.choice(story.table.manifests)
    known = ["file_path", "file_format", "record_count", "file_size_in_bytes"]
    manifest.style = replace(manifest.style, without=(rng.choice(known),))
    return True


# data files


def _fields(entry: Entry) -> list[pa.Field]:
    return list(entry.stored.table.schema)


def _with_fields(entry: Entry, fields: Sequence[pa.Field]) -> None:
    table = entry.stored.table
    arrays = [column.cast(field.type) for column, field in zip(table.columns, fields, strict=True)]
    entry.stored.table = pa.table(arrays, schema=pa.schema(fields))


def _without_ids(field: pa.Field, rng: random.Random, share: float) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_without_ids(child, rng, share) for child in kind])
    return pa.field(field.name, kind, metadata=None if rng.random() < share else field.metadata)


def _partly(rng: random.Random, entry: Entry) -> bool:
    """Take some ids away from a file; whether a column or a field of a struct lost one."""
    before = _fields(entry)
    after = [_without_ids(one, rng, rng.choice([0.3, 0.7])) for one in before]
    if all(
        one.equals(other, check_metadata=True) for one, other in zip(before, after, strict=True)
    ):
        return False
    entry.stored.table = pa.table(
        [a.cast(f.type) for a, f in zip(entry.stored.table.columns, after, strict=True)],
        schema=pa.schema(after),
    )
    return True


@bend("error", counts_lie=True)
def ids_in_some_columns_alone(rng: random.Random, story: Story) -> bool:
    file = rng.choice([one for one in story.files if one.rows])
    # a file that is not read is not refused
    return bool(file.alive(story.columns)) and _partly(rng, file.entry)


@bend("right")
def ids_in_some_columns_and_a_mapping(rng: random.Random, story: Story) -> bool:
    names: dict[int, set[str]] = {}
    for columns in story.schemas:
        _names(columns, names)
    for file in story.files:
        _file_names(list(file.entry.stored.table.schema), file.columns, names)
    mapping = _mapped(story, names)
    if _ambiguous(mapping):
        return False
    story.table.properties["schema.name-mapping.default"] = json.dumps(mapping)
    done = [_partly(rng, file.entry) for file in story.files]
    return any(done)


def _names(columns: Sequence[Column], names: dict[int, set[str]]) -> None:
    for column in columns:
        names.setdefault(column.field_id, set())
        _below(column.kind, lambda one: _names(one, names))


def _below(kind: Kind, visit: Callable[[Sequence[Column]], None]) -> None:
    if isinstance(kind, Struct):
        visit(kind.fields)
    elif isinstance(kind, Pairs):
        _below(kind.value, visit)
    elif not isinstance(kind, str):
        _below(kind.element, visit)


def _file_names(
    fields: Sequence[pa.Field], columns: Sequence[Column], names: dict[int, set[str]]
) -> None:
    """Names in files, by ids of the columns that they stand for."""
    by_name = {name: one for one in columns for name in (one.name, f"f{one.field_id}")}
    for field in fields:
        column = by_name[field.name]
        names.setdefault(column.field_id, set()).add(field.name)
        kind, type_ = column.kind, field.type
        while not isinstance(kind, (str, Struct)):
            type_ = type_.item_type if isinstance(kind, Pairs) else type_.value_type
            kind = kind.value if isinstance(kind, Pairs) else kind.element
        if isinstance(kind, Struct):
            _file_names(list(type_), kind.fields, names)


def _mapped(story: Story, names: dict[int, set[str]]) -> list[dict[str, Any]]:
    every: dict[int, Column] = {}
    for columns in story.schemas:
        every |= {one.field_id: one for one in columns}
    below: dict[int, dict[int, Column]] = {}

    def gather(columns: Sequence[Column]) -> None:
        for column in columns:
            if isinstance(column.kind, Struct):
                known = below.setdefault(column.field_id, {})
                known.update({one.field_id: one for one in column.kind.fields})
            _below(column.kind, gather)

    for columns in story.schemas:
        gather(columns)

    def entry(column: Column) -> dict[str, Any]:
        children = below.get(column.field_id, {}).values()
        fields = [entry(one) for one in children] or parts(column.kind)
        about = {"field-id": column.field_id, "names": sorted(names[column.field_id])}
        return {**about, "fields": fields} if fields else about

    def parts(kind: Kind) -> list[dict[str, Any]]:
        if isinstance(kind, str):
            return []
        if isinstance(kind, Struct):
            return [entry(one) for one in kind.fields]
        if isinstance(kind, Pairs):
            value = {"field-id": kind.value_id, "names": ["value"], "fields": parts(kind.value)}
            return [{"field-id": kind.key_id, "names": ["key"]}, value]
        element = {"field-id": kind.element_id, "names": ["element"]}
        return [{**element, "fields": parts(kind.element)}]

    return [entry(one) for one in every.values()]


def _ambiguous(mapping: Sequence[dict[str, Any]]) -> bool:
    names = [name for one in mapping for name in one["names"]]
    return len(set(names)) < len(names) or any(
        _ambiguous(one["fields"]) for one in mapping if one.get("fields")
    )


@bend("error", counts_lie=True)
def one_id_for_two_columns(rng: random.Random, story: Story) -> bool:
    choice = [file for file in story.files if len(file.columns) > 1 and file.alive(story.columns)]
    if not choice:
        return False
    file = rng.choice(choice)
    fields = _fields(file.entry)
    first, second = rng.sample(range(len(fields)), 2)
    fields[first] = fields[first].with_metadata(fields[second].metadata)
    _with_fields(file.entry, fields)
    return True


@bend("error", counts_lie=True)
def a_column_of_a_type_that_cannot_be_read(rng: random.Random, story: Story) -> bool:
    """Numbers where the table has text, and so on, of a column that is read."""
    now = {one.field_id: one for one in story.columns}
    wrong = [
        (file, number)
        for file in story.files
        for number, field in enumerate(_fields(file.entry))
        if int(field.metadata[FIELD_ID]) in now and file.alive(story.columns)
    ]
    if not wrong:
        return False
    file, number = rng.choice(wrong)
    field = _fields(file.entry)[number]
    to = pa.time64("us") if not pa.types.is_time(field.type) else pa.list_(pa.int32())
    table = file.entry.stored.table
    other = pa.nulls(table.num_rows, to)
    file.entry.stored.table = table.set_column(
        number, pa.field(field.name, to, metadata=field.metadata), other
    )
    return True


@bend("either", counts_lie=True)
def a_row_count_that_is_wrong(rng: random.Random, story: Story) -> bool:
    entry = rng.choice(story.table.entries)
    _says(entry, record_count=max(0, entry.record["record_count"] + rng.choice([-1, 1, 50])))
    return True


@bend("either")
def a_size_that_is_wrong(rng: random.Random, story: Story) -> bool:
    entry = rng.choice(story.table.entries)
    _says(entry, file_size_in_bytes=rng.choice([0, 7, 10**9, -1]))
    return True


@bend("either", counts_lie=True)
def a_format_that_nobody_reads(rng: random.Random, story: Story) -> bool:
    _says(rng.choice(story.table.entries), file_format=rng.choice(["ORC", "lance", ""]))
    return True


@bend("error", counts_lie=True)
def a_required_column_with_nulls(rng: random.Random, story: Story) -> bool:
    now = {one.field_id for one in story.columns}
    for column in story.columns:
        holds = [
            file
            for file in story.files
            if any(row.get(column.field_id) is None for row in file.rows)
            and any(one.field_id == column.field_id for one in file.columns)
            and file.alive(story.columns)
        ]
        if holds and column.field_id in now and rng.random() < 0.7:
            schema = story.table.schemas[-1]
            for field in schema["fields"]:
                field["required"] = field["required"] or field["id"] == column.field_id
            return True
    return False


# position deletes and vectors


@bend("error", counts_lie=True)
def a_negative_position(rng: random.Random, story: Story) -> bool:
    return _bent_positions(rng, story, "pos", -rng.randint(1, 5))


@bend("error", counts_lie=True)
def a_position_that_is_null(rng: random.Random, story: Story) -> bool:
    return _bent_positions(rng, story, rng.choice(["pos", "file_path"]), None)


def _bent_positions(rng: random.Random, story: Story, name: str, value: Any) -> bool:
    files = _matter(story)
    if not files:
        return False
    stored = rng.choice(files).stored
    at = stored.table.column_names.index(name)
    values = stored.table.column(at).to_pylist()
    values[rng.randrange(len(values))] = value
    field = stored.table.schema.field(at)
    stored.table = stored.table.set_column(at, field, pa.array(values, field.type))
    return True


def _with_vector(rng: random.Random, story: Story) -> Written | None:
    having = [file for file in story.files if file.vector is not None]
    return rng.choice(having) if having else None


def _vector_manifest(story: Story, entry: Entry) -> Manifest:
    return next(
        one for one in story.table.manifests if any(entry is other for other in one.entries)
    )


@bend("error")
def a_second_vector_of_a_file(rng: random.Random, story: Story) -> bool:
    file = _with_vector(rng, story)
    if file is None:
        return False
    manifest = _vector_manifest(story, file.vector)
    blob = vector({0})
    data, (start,) = puffin([(blob, file.path, 1)])
    stored = replace(file.vector.stored, name=f"second-{file.vector.stored.name}", blob=data)
    record = {**file.vector.record, "content_offset": start, "content_size_in_bytes": len(blob)}
    place = str(record["file_path"]).rsplit("/", maxsplit=1)[0]
    record |= {"record_count": 1, "file_path": f"{place}/{stored.name}"}
    manifest.entries.append(replace(file.vector, record=record, stored=stored))
    return True


@bend("error")
def a_vector_that_names_no_file(rng: random.Random, story: Story) -> bool:
    file = _with_vector(rng, story)
    if file is not None:
        _says(file.vector, referenced_data_file=rng.choice([None, ""]))
    return file is not None


@bend("error")
def a_vector_that_is_older_than_its_file(rng: random.Random, story: Story) -> bool:
    file = _with_vector(rng, story)
    if file is None or file.sequence == 0:
        return False
    file.vector.sequence = file.sequence - 1
    return True


@bend("error", counts_lie=True)
def a_vector_with_another_number_of_positions(rng: random.Random, story: Story) -> bool:
    file = _with_vector(rng, story)
    if file is not None:
        _says(file.vector, record_count=file.vector.record["record_count"] + rng.choice([-1, 1, 9]))
    return file is not None


@bend("error", counts_lie=True)
def a_vector_with_a_wrong_checksum(rng: random.Random, story: Story) -> bool:
    return _other_vector(rng, story, lambda file: vector(file.positions, checksum_off_by=1))


@bend("error", counts_lie=True)
def a_vector_beyond_its_file(rng: random.Random, story: Story) -> bool:
    return _other_vector(
        rng, story, lambda file: vector({*file.positions, len(file.rows) + rng.randint(0, 2**33)})
    )


def _other_vector(rng: random.Random, story: Story, blob_of: Callable[[Written], bytes]) -> bool:
    file = _with_vector(rng, story)
    if file is None:
        return False
    blob = blob_of(file)
    data, (start,) = puffin([(blob, file.path, 1)])
    entry = file.vector
    entry.stored = replace(entry.stored, name=f"other-{entry.stored.name}", blob=data)
    place = str(entry.record["file_path"]).rsplit("/", maxsplit=1)[0]
    count = len(file.positions)
    if len(blob) != len(vector(file.positions)):
        count += 1
    _says(
        entry, file_path=f"{place}/{entry.stored.name}", content_offset=start,
        content_size_in_bytes=len(blob), record_count=count,
    )  # fmt: skip
    return True


@bend("error", counts_lie=True)
def a_vector_elsewhere(rng: random.Random, story: Story) -> bool:
    file = _with_vector(rng, story)
    if file is None:
        return False
    parts: list[dict[str, Any]] = [
        {"content_offset": None},
        {"content_size_in_bytes": None},
        {"content_offset": file.vector.record["content_offset"] + 1},
        {"content_size_in_bytes": 3},
        {"content_offset": -4},
        {"content_offset": 10**9},
    ]
    _says(file.vector, **rng.choice(parts))
    return True


# equality deletes


def _equality_that_counts(rng: random.Random, story: Story) -> Entry | None:
    """An equality delete file that applies to some data file, whichever its keys."""
    manifests = [one for one in story.table.manifests if one.deletes]
    choice = []
    for manifest in manifests:
        for entry in manifest.entries:
            sequence = manifest.added[1] if entry.sequence is None else entry.sequence
            if entry.status > 1 or entry.record["content"] != 2:
                continue
            everywhere = not manifest.spec["fields"]
            if any(
                file.sequence < sequence
                and (
                    everywhere
                    or (file.spec_id, file.partition)
                    == (manifest.spec["spec-id"], entry.record["partition"])
                )
                for file in story.files
            ):
                choice.append(entry)
    return rng.choice(choice) if choice else None


@bend("error", counts_lie=True)
def equality_by_nothing(rng: random.Random, story: Story) -> bool:
    entry = _equality_that_counts(rng, story)
    if entry is not None:
        _says(entry, equality_ids=rng.choice([None, []]))
    return entry is not None


@bend("error", counts_lie=True)
def equality_by_a_field_that_is_nowhere(rng: random.Random, story: Story) -> bool:
    entry = _equality_that_counts(rng, story)
    if entry is not None:
        _says(entry, equality_ids=[*entry.record["equality_ids"], 8888])
    return entry is not None


@bend("error", counts_lie=True)
def equality_by_what_cannot_be_compared(rng: random.Random, story: Story) -> bool:
    entry = _equality_that_counts(rng, story)
    known = _collections(story)
    if entry is None or not known:
        return False
    field_id, kind = rng.choice(known)
    _says(entry, equality_ids=[*entry.record["equality_ids"], field_id])
    table = entry.stored.table
    values = Layout(rng).array([None] * table.num_rows, kind)
    field = pa.field("compared", values.type, metadata={FIELD_ID: str(field_id).encode()})
    entry.stored.table = table.append_column(field, values)
    return True


def _collections(story: Story) -> list[tuple[int, Kind]]:
    """Structs, lists, maps, and what is inside lists and maps: ids and types."""
    known: dict[int, Kind] = {}

    def visit(column: Column, *, inside: bool) -> None:
        kind = column.kind
        if inside or not isinstance(kind, str):
            known[column.field_id] = kind
        if isinstance(kind, Struct):
            for child in kind.fields:
                visit(child, inside=inside)
        elif isinstance(kind, Pairs):
            visit(Column(kind.key_id, "key", "string"), inside=True)
            visit(Column(kind.value_id, "value", kind.value), inside=True)
        elif isinstance(kind, Many):
            visit(Column(kind.element_id, "element", kind.element), inside=True)

    for columns in story.schemas:
        for column in columns:
            visit(column, inside=False)
    return sorted(known.items(), key=lambda pair: pair[0])


@bend("error", counts_lie=True)
def a_delete_file_without_its_key(rng: random.Random, story: Story) -> bool:
    entry = _equality_that_counts(rng, story)
    if entry is None:
        return False
    table = entry.stored.table
    fields = [pa.field(one.name, one.type, metadata={FIELD_ID: b"9003"}) for one in table.schema]
    kept = [one for one in fields if not pa.types.is_struct(one.type)]
    if len(kept) < len(fields):
        return False
    fields = [one.with_metadata({FIELD_ID: str(9003 + n).encode()}) for n, one in enumerate(fields)]
    _with_fields(entry, fields)
    return True


@bend("error", counts_lie=True)
def position_deletes_without_positions(rng: random.Random, story: Story) -> bool:
    files = _matter(story)
    if not files:
        return False
    stored = rng.choice(files).stored
    at = stored.table.column_names.index("pos")
    metadata = {FIELD_ID: str(POSITION_ID - 500).encode()}
    stored.table = stored.table.set_column(
        at, pa.field("somewhere", pa.int64(), metadata=metadata), stored.table.column(at)
    )
    return True


# table metadata


def _metadata(story: Story, change: Callable[[dict[str, Any]], Any]) -> bool:
    story.table.last.append(change)
    return True


@bend("error")
def a_current_schema_that_is_not_there(rng: random.Random, story: Story) -> bool:
    return _metadata(story, lambda table: table.update({"current-schema-id": 77}))


@bend("error")
def a_current_snapshot_that_is_not_there(rng: random.Random, story: Story) -> bool:
    def change(table: dict[str, Any]) -> None:
        table["current-snapshot-id"] = table["refs"]["main"]["snapshot-id"] = 99_999

    return _metadata(story, change)


@bend("error")
def main_is_not_the_current_snapshot(rng: random.Random, story: Story) -> bool:
    if len(story.table.snapshots) < 2:
        return False
    other = story.table.snapshots[0].snapshot_id
    return _metadata(story, lambda table: table["refs"]["main"].update({"snapshot-id": other}))


@bend("error")
def two_fields_of_one_id(rng: random.Random, story: Story) -> bool:
    def change(table: dict[str, Any]) -> None:
        fields = table["schemas"][-1]["fields"]
        fields.append({**fields[0], "name": "once_more"})

    return _metadata(story, change)


@bend("error")
def two_fields_of_one_name(rng: random.Random, story: Story) -> bool:
    def change(table: dict[str, Any]) -> None:
        fields = table["schemas"][-1]["fields"]
        fields.append({**fields[0], "id": table["last-column-id"] + 1})
        table["last-column-id"] += 1

    return _metadata(story, change)


@bend("error")
def a_type_that_nobody_knows(rng: random.Random, story: Story) -> bool:
    kind = rng.choice(["int128", "decimal(99, 2)", "fixed[-1]", "list", "", "STRING[]", None, 7])
    return _metadata(story, lambda table: table["schemas"][-1]["fields"][0].update({"type": kind}))


@bend("either")
def types_of_places(rng: random.Random, story: Story) -> bool:
    """A reference system is a name, in any case, with commas of its own; values are not read."""
    kinds = ["geometry", "geometry(projjson:MyCrs)", "geography(EPSG:1, karney)"]
    kinds += ["geometry(a, B)", "geography(a, B, vincenty)", "geography(OGC:crs84x)"]
    return _of_type(story, rng.choice(kinds))


@bend("error")
def an_algorithm_that_nobody_knows(rng: random.Random, story: Story) -> bool:
    return _of_type(story, "geography(EPSG:1, of_ours)")


def _of_type(story: Story, kind: str) -> bool:
    """A column more, without values; `binary` is how its values come."""
    if story.version < 3:
        return False
    story.table.last_column_id += 1
    column = Column(story.table.last_column_id, "place", "binary")
    story.columns = (*story.columns, column)
    schema = max(story.table.schemas, key=lambda one: one["schema-id"])
    schema["fields"].append({**field_json(column), "type": kind})
    return True


@bend("either")
def a_spec_of_what_is_not_there(rng: random.Random, story: Story) -> bool:
    spec = story.specs[-1]
    known = any(file.constants for file in story.files if file.spec_id == spec["spec-id"])
    if not spec["fields"] or known:  # what identity said of a file that lacks the column is gone
        return False
    part = rng.choice([{"source-id": 5555}, {"transform": "of_ours[3]"}, {"transform": "bucket"}])
    return _metadata(story, lambda table: table["partition-specs"][-1]["fields"][0].update(part))


@bend("either")
def a_default_that_is_not_there(rng: random.Random, story: Story) -> bool:
    name = rng.choice(["default-spec-id", "default-sort-order-id"])
    return _metadata(story, lambda table: table.update({name: 88}))


@bend("either")
def last_numbers_that_are_too_low(rng: random.Random, story: Story) -> bool:
    names = ["last-column-id", "last-partition-id", "last-sequence-number", "next-row-id"]

    def change(table: dict[str, Any]) -> None:
        for name in rng.sample(names, 2):
            if name in table:
                table[name] = rng.choice([0, 1, -5])

    return _metadata(story, change)


@bend("right")
def what_readers_do_not_need(rng: random.Random, story: Story) -> bool:
    """Unknown parts, logs of what is gone, statistics that are not there, another order."""

    def change(table: dict[str, Any]) -> None:
        table["of-ours"] = {"deep": [1, None, {"x": 2.5}]}
        gone = {"timestamp-ms": table["last-updated-ms"], "metadata-file": "file:///gone.json"}
        table["metadata-log"] = [gone]
        about = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
        file = {"snapshot-id": table["current-snapshot-id"], "statistics-path": "file:///gone"}
        table["statistics"] = [{**file, **about}]
        rng.shuffle(table["snapshots"])
        rng.shuffle(table["schemas"])
        rng.shuffle(table["partition-specs"])
        for snapshot in table["snapshots"]:
            snapshot["summary"] |= {"total-records": "of ours", "of-ours": ""}

    return _metadata(story, change)


@bend("either")
def properties_that_nobody_understands(rng: random.Random, story: Story) -> bool:
    story.table.properties |= {
        "commit.retry.num-retries": rng.choice(["many", "", "-1"]),
        "commit.manifest.target-size-bytes": "8 MB",
        "write.metadata.metrics.default": "of_ours(3)",
        "read.split.target-size": "half",
        "of.ours": "\U0001f600" * 40,
    }
    return True


@bend("either")
def properties_that_are_no_text(rng: random.Random, story: Story) -> bool:
    value = rng.choice([3, True, None, ["a"], {"a": 1}])
    return _metadata(story, lambda table: table["properties"].update({"of.ours": value}))


@bend("either")
def metadata_in_another_encoding(rng: random.Random, story: Story) -> bool:
    codec = rng.choice(["utf-16", "utf-8-sig", "utf-32", "latin-1", "gzip", "twice"])

    def encode(text: str) -> bytes:
        if codec == "gzip":
            return gzip.compress(text.encode())
        return text.encode() * 2 if codec == "twice" else text.encode(codec)

    story.table.encode = encode
    return True


@bend("either")
def numbers_that_are_no_integers(rng: random.Random, story: Story) -> bool:
    value = rng.choice([1.5, "3", None, True, 2**70, -(2**63), [], {}])
    names = ["last-column-id", "current-schema-id", "last-updated-ms", "current-snapshot-id"]
    name = rng.choice([*names, "format-version"])
    return _metadata(story, lambda table: table.update({name: value}))


@bend("either")
def parts_that_are_missing(rng: random.Random, story: Story) -> bool:
    names = ["schemas", "current-schema-id", "partition-specs", "default-spec-id", "location"]
    names += ["table-uuid", "snapshots", "current-snapshot-id", "refs", "last-column-id"]
    names += ["format-version", "sort-orders", "properties", "last-sequence-number"]
    name = rng.choice(names)
    # a table without snapshots, or without a current one, is a table without rows
    if name in ("snapshots", "current-snapshot-id"):
        return False
    return _metadata(story, lambda table: table.pop(name, None))


@bend("either")
def snapshots_that_contradict(rng: random.Random, story: Story) -> bool:
    part = rng.choice(
        [
            {"schema-id": 66},
            {"sequence-number": 0},
            {"timestamp-ms": -1},
            {"parent-snapshot-id": 4},
            {"summary": None},
            {"manifest-list": "file:///nowhere.avro"},
            {"snapshot-id": "1001"},
        ]
    )
    return _metadata(story, lambda table: table["snapshots"][-1].update(part))


@bend("error")
def a_snapshot_twice(rng: random.Random, story: Story) -> bool:
    if len(story.table.snapshots) < 2:
        return False

    def change(table: dict[str, Any]) -> None:
        first, last = table["snapshots"][0], table["snapshots"][-1]
        twice = {**last, "manifest-list": first["manifest-list"]}
        table["snapshots"].insert(rng.choice([0, len(table["snapshots"])]), twice)

    return _metadata(story, change)


# lists


@bend("right")
def summaries_of_partitions_that_are_wrong(rng: random.Random, story: Story) -> bool:
    """Inverted, of a wrong length, too few, too many."""
    manifests = [one for one in story.table.manifests if one.spec["fields"]]
    if not manifests:
        return False
    manifest = rng.choice(manifests)
    known = manifest.summaries()
    bent = rng.choice(
        [
            [{**one, "lower_bound": one["upper_bound"], "upper_bound": one["lower_bound"]}
             for one in known if one["lower_bound"] != one["upper_bound"]],
            [{**one, "lower_bound": b"\x01\x02\x03", "upper_bound": b"\x01\x02\x03"}
             for one, kind in zip(known, manifest.partition_types, strict=True)
             if kind != "string"],
            [],
            None,
            [*known, *known],
        ]
    )  # fmt: skip
    if bent is not None and 0 < len(bent) < len(known):
        return False
    manifest.style = replace(manifest.style, summaries=False)
    manifest.listed["partitions"] = bent
    return True


@bend("error")
def a_manifest_listed_twice(rng: random.Random, story: Story) -> bool:
    data = [one for one in story.table.manifests if any(e.status < 2 for e in one.entries)]
    story.table.manifests.insert(0, rng.choice(data))
    return True


@bend("either")
def a_file_listed_twice(rng: random.Random, story: Story) -> bool:
    """Its rows are there as often."""
    file = rng.choice(story.files)
    manifest = next(
        one for one in story.table.manifests if any(file.entry is entry for entry in one.entries)
    )
    manifest.entries.insert(rng.randrange(len(manifest.entries)), file.entry)
    story.files.append(file)
    return True


@bend("either")
def manifests_from_the_future(rng: random.Random, story: Story) -> bool:
    """Sequence numbers above those of the table."""
    manifests = [one for one in story.table.manifests if one.version > 1]
    if not manifests:
        return False
    rng.choice(manifests).listed["sequence_number"] = story.table.snapshots[-1].sequence + 50
    return True


@bend("either")
def entries_from_the_future(rng: random.Random, story: Story) -> bool:
    manifests = [one for one in story.table.manifests if one.version > 1 and one.entries]
    if not manifests:
        return False
    rng.choice(rng.choice(manifests).entries).sequence = story.table.snapshots[-1].sequence + 50
    return True


@bend("right")
def numbers_of_lists_that_readers_do_not_need(rng: random.Random, story: Story) -> bool:
    manifest = rng.choice(story.table.manifests)
    manifest.listed |= {
        "min_sequence_number": rng.choice([0, 10**6]),
        "added_snapshot_id": rng.choice([0, 5, -1]),
    }
    return True


@bend("either")
def a_length_of_a_manifest_that_is_wrong(rng: random.Random, story: Story) -> bool:
    rng.choice(story.table.manifests).listed["manifest_length"] = rng.choice([0, 1, -1, 10**9])
    return True


@bend("error")
def a_manifest_that_is_not_there(rng: random.Random, story: Story) -> bool:
    manifests = [
        one for one in story.table.manifests if any(entry.status < 2 for entry in one.entries)
    ]
    rng.choice(manifests).listed["manifest_path"] = "file:///nowhere/m.avro"
    return True


# entries


@bend("right")
def parts_of_entries_that_readers_do_not_need(rng: random.Random, story: Story) -> bool:
    entry = rng.choice(story.table.entries)
    _says(
        entry,
        sort_order_id=rng.choice([77, -1]),
        split_offsets=rng.choice([[], [10**9], [-4, 4], [9, 4], [4, 4]]),
        column_sizes={1: -1, 9999: 2**62},
    )
    return True


@bend("right")
def a_key_that_is_said_twice(rng: random.Random, story: Story) -> bool:
    files = _live(story, 2)
    for entry in files:
        _says(entry, equality_ids=[*entry.record["equality_ids"], entry.record["equality_ids"][0]])
    return bool(files)


@bend("right")
def equality_ids_of_a_data_file(rng: random.Random, story: Story) -> bool:
    _says(rng.choice(story.files).entry, equality_ids=[1])
    return story.version > 1


@bend("either")
def a_file_that_says_it_is_encrypted(rng: random.Random, story: Story) -> bool:
    _says(rng.choice(story.table.entries), key_metadata=b"of ours")
    return True


@bend("either")
def partitions_of_another_type(rng: random.Random, story: Story) -> bool:
    manifests = [
        one
        for one in story.table.manifests
        if one.spec["fields"] and one.partition_types[0] in ("int", "long") and one.entries
    ]
    if not manifests:
        return False
    manifest = rng.choice(manifests)
    manifest.partition_types = ["string", *manifest.partition_types[1:]]
    for entry in manifest.entries:
        first, *others = entry.record["partition"]
        _says(entry, partition=(None if first is None else str(first), *others))
    return True


@bend("either")
def row_ids_that_overlap(rng: random.Random, story: Story) -> bool:
    if story.now < 3:
        return False
    for file in story.files:
        _says(file.entry, first_row_id=rng.choice([0, 1, -3, None]))
    return True


# files


@bend("right")
def a_mapping_that_is_not_needed(rng: random.Random, story: Story) -> bool:
    """Every column has its id; what the property says of names is asked by nobody."""
    junk = ["", "{", "[]", "{}", '[{"names": ["id"]}]', '[{"field-id": "x", "names": ["id"]}]']
    story.table.properties["schema.name-mapping.default"] = rng.choice(junk)
    return True


@bend("error", counts_lie=True)
def a_mapping_that_is_none(rng: random.Random, story: Story) -> bool:
    junk = ["", "{", "{}", "7", '[{"field-id": "x", "names": ["id"]}]', '[{"names": "id"}]']
    file = rng.choice([one for one in story.files if one.rows])
    story.table.properties["schema.name-mapping.default"] = rng.choice(junk)
    return bool(file.alive(story.columns)) and _partly(rng, file.entry)


@bend("error", counts_lie=True)
def a_required_column_that_is_lacking(rng: random.Random, story: Story) -> bool:
    for column in story.columns:
        lacking = [
            file
            for file in story.files
            if all(one.field_id != column.field_id for one in file.columns)
            and file.constants.get(column.field_id) is None
            and file.alive(story.columns)
        ]
        if lacking and column.default is None:
            for field in story.table.schemas[-1]["fields"]:
                field["required"] = field["required"] or field["id"] == column.field_id
            return True
    return False


@bend("right")
def a_footer_of_vectors_that_lies(rng: random.Random, story: Story) -> bool:
    """Readers go by the entry; what the Puffin file says of its blobs is for others."""
    file = _with_vector(rng, story)
    if file is None:
        return False
    blob = vector(file.positions)
    data, (start,) = puffin([(blob, "file:///another.parquet", 77)])
    entry = file.vector
    entry.stored = replace(entry.stored, name=f"lies-{entry.stored.name}", blob=data)
    place = str(entry.record["file_path"]).rsplit("/", maxsplit=1)[0]
    _says(
        entry, file_path=f"{place}/{entry.stored.name}", content_offset=start,
        content_size_in_bytes=len(blob),
    )  # fmt: skip
    return True


@bend("either")
def a_delete_file_that_is_not_there(rng: random.Random, story: Story) -> bool:
    files = [one for one in story.table.entries if one.record["content"] > 0]
    if not files:
        return False
    _says(rng.choice(files), file_path="file:///nowhere/deletes.parquet")
    return True
