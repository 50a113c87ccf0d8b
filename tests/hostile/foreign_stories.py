"""Random lives of tables that strangers write: evolution, specs, upgrades, every kind of delete.

A story keeps what a table holds as rows by field id; brute force over them says what is right.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.hostile.foreign_files import (
    PATH_ID,
    POSITION_ID,
    Entry,
    ForeignTable,
    Manifest,
    Snapshot,
    Stored,
    Style,
    puffin,
    vector,
)


@dataclass(frozen=True)
class Column:
    """A field by its id; `kind` is the name of a primitive type, or one of the three below."""

    field_id: int
    name: str
    kind: Kind
    default: Any = None
    required: bool = False


@dataclass(frozen=True)
class Struct:
    fields: tuple[Column, ...]


@dataclass(frozen=True)
class Many:
    element_id: int
    element: Kind


@dataclass(frozen=True)
class Pairs:
    key_id: int
    value_id: int
    value: Kind


Kind = str | Struct | Many | Pairs
Row = dict[int, Any]
UTC = dt.UTC
EPOCH = dt.datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
NOON = dt.datetime.combine(dt.date(2026, 6, 1), dt.time(12, 0, 1))
NAN = float("nan")
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [-2, 0, 1, 2, 7],
    "long": [-2, 0, 1, 2, 2**40],
    "float": [0.0, -0.0, 1.5, 0.25, NAN],
    "double": [0.0, -0.0, 1.5, 0.25, NAN],
    "decimal(9, 2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("1.10"), Decimal("9999999.99")],
    "decimal(18, 2)": [Decimal("-1.50"), Decimal("1.10"), Decimal("9999999999999999.99")],
    "decimal(38, 4)": [Decimal("-7.0001"), Decimal("0.0000"), Decimal("12.3400")],
    "string": [
        "",
        "a",
        "b",
        "zz",
        "é",
        "what is longer than sixteen characters",
        "\U0010ffff" * 20,
    ],
    "binary": [b"", b"a", b"\xff" * 20, b"\x00b"],
    "fixed[4]": [b"\x00\x00\x00\x01", b"\xff\xff\xff\xff", b"abcd"],
    "uuid": [uuid.UUID(int=1), uuid.UUID(int=2**127 + 5), uuid.UUID(int=2**100)],
    "date": [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2026, 6, 1)],
    "time": [dt.time(0, 0), dt.time(23, 59, 59, 999_000)],
    "timestamp": [EPOCH - dt.timedelta(seconds=1), EPOCH, NOON],
    "timestamptz": [EPOCH.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC)],
}
PROMOTED = {
    "int": "long",
    "float": "double",
    "decimal(9, 2)": "decimal(18, 2)",
    "date": "timestamp",
}
SPEC_KINDS = {"int": "int", "long": "long", "string": "string", "date": "int", "boolean": "boolean"}
DEFAULTS = {"int": 7, "long": 2, "string": "a", "boolean": True, "double": 1.5}
ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(9, 2)": pa.decimal128(9, 2),
    "decimal(18, 2)": pa.decimal128(18, 2),
    "decimal(38, 4)": pa.decimal128(38, 4),
    "string": pa.string(),
    "binary": pa.binary(),
    "fixed[4]": pa.binary(4),
    "uuid": pa.binary(16),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
OTHERWISE: dict[str, list[pa.DataType]] = {
    "string": [pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    "binary": [pa.large_binary()],
    "timestamp": [pa.timestamp("ms"), pa.timestamp("ns")],
    "timestamptz": [pa.timestamp("ms", "UTC"), pa.timestamp("ns", "UTC")],
}
"""What other writers have for the same types."""
ENDS = ("lower_bounds", "upper_bounds")


def as_json(kind: Kind) -> Any:
    """A type as table metadata spells it."""
    if isinstance(kind, str):
        return kind
    if isinstance(kind, Struct):
        return {"type": "struct", "fields": [field_json(one) for one in kind.fields]}
    if isinstance(kind, Many):
        about = {"type": "list", "element-id": kind.element_id, "element-required": False}
        return {**about, "element": as_json(kind.element)}
    return {
        "type": "map",
        "key-id": kind.key_id,
        "key": "string",
        "value-id": kind.value_id,
        "value": as_json(kind.value),
        "value-required": False,
    }


def field_json(column: Column) -> dict[str, Any]:
    """A column as table metadata spells it."""
    default = {} if column.default is None else {"initial-default": column.default}
    return {
        "id": column.field_id,
        "name": column.name,
        "type": as_json(column.kind),
        "required": column.required,
        **default,
    }


def serialized(value: Any, kind: str) -> bytes:
    """Single-value serialization (specification: Appendix D)."""
    if kind == "boolean":
        return bytes([value])
    if kind == "string":
        return str(value).encode()
    if kind in ("binary", "fixed[4]"):
        return bytes(value)
    if kind == "uuid":
        return bytes(value.bytes)
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind.startswith("decimal"):
        number = int(value.scaleb(-value.as_tuple().exponent))
        return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    if kind == "date":
        value = (value - EPOCH.date()).days
    elif kind == "time":
        value = ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
    elif kind.startswith("timestamp"):
        value = (value.replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1)
    return struct.pack("<i" if kind in ("int", "date") else "<q", value)


def promoted(value: Any, have: Kind, want: Kind) -> Any:
    """A value that was written as one type, read as another."""
    if value is None:
        return None
    if isinstance(want, Struct) and isinstance(have, Struct):
        return {one.field_id: found(value, have.fields, one) for one in want.fields}
    if isinstance(want, Many) and isinstance(have, Many):
        return [promoted(one, have.element, want.element) for one in value]
    if isinstance(want, Pairs) and isinstance(have, Pairs):
        return [(key, promoted(one, have.value, want.value)) for key, one in value]
    if have == "date" and want == "timestamp":
        return dt.datetime.combine(value, dt.time())
    return value


def found(
    row: Row, have: Sequence[Column], want: Column, constants: Mapping[int, Any] | None = None
) -> Any:
    """A column of a row that was written with the columns `have`."""
    mine = next((one for one in have if one.field_id == want.field_id), None)
    if mine is None:
        return (constants or {}).get(want.field_id, want.default)
    return promoted(row[want.field_id], mine.kind, want.kind)


def token(value: Any) -> Any:
    """Equal for values that are the same to Java: NaN is NaN, and -0.0 is not 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else ("float", value, math.copysign(1, value))
    return value


def leaves(
    columns: Sequence[Column], above: tuple[Column, ...] = ()
) -> Iterator[tuple[Column, ...]]:
    """Primitive columns outside lists and maps, each with the structs around it."""
    for column in columns:
        if isinstance(column.kind, Struct):
            yield from leaves(column.kind.fields, (*above, column))
        elif isinstance(column.kind, str):
            yield (*above, column)


def at(row: Row | None, path: Sequence[Column]) -> Any:
    """The value at the end of a path; null where a struct is."""
    for column in path:
        row = None if row is None else row[column.field_id]
    return row


def changed(columns: Sequence[Column], field_id: int, to: Column | None) -> tuple[Column, ...]:
    """The columns with another one in the place of one, or without it."""
    result = []
    for column in columns:
        if column.field_id == field_id:
            result += [] if to is None else [to]
            continue
        if isinstance(column.kind, Struct):
            below = changed(column.kind.fields, field_id, to)
            column = replace(column, kind=Struct(below)) if below else None
        result += [] if column is None else [column]
    return tuple(result)


@dataclass
class Layout:
    """How one writer lays out one file."""

    rng: random.Random
    part_ids: bool = True
    otherwise: bool = False
    shuffled: bool = False
    renamed: bool = False
    ids: bool = True

    def field(self, column: Column, kind: pa.DataType, *, named: bool = True) -> pa.Field:
        name = f"f{column.field_id}" if self.renamed else column.name
        named = named and self.ids
        ids = {b"PARQUET:field_id": str(column.field_id).encode()} if named else None
        return pa.field(name, kind, metadata=ids)

    def array(self, values: Sequence[Any], kind: Kind) -> pa.Array:
        if isinstance(kind, Struct):
            children = [
                self.array([None if row is None else row[one.field_id] for row in values], one.kind)
                for one in kind.fields
            ]
            fields = [
                self.field(one, child.type)
                for one, child in zip(kind.fields, children, strict=True)
            ]
            mask = pa.array([row is None for row in values], pa.bool_())
            return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
        if isinstance(kind, str):
            plain = ARROW[kind]
            if kind == "uuid":
                values = [None if one is None else one.bytes for one in values]
            other = self.rng.choice(OTHERWISE.get(kind, [plain])) if self.otherwise else plain
            return pa.array(values, plain).cast(other)
        offsets: list[int | None] = []
        items: list[Any] = []
        for value in values:
            offsets.append(None if value is None else len(items))
            items += value or ()
        ends = pa.array([*offsets, len(items)], pa.int32())
        if isinstance(kind, Many):
            below = self.array(items, kind.element)
            element = Column(kind.element_id, "element", kind.element)
            part = self.field(element, below.type, named=self.part_ids)
            return pa.ListArray.from_arrays(ends, below, type=pa.list_(part))
        keys = self.array([key for key, _ in items], "string")
        below = self.array([value for _, value in items], kind.value)
        key = self.field(Column(kind.key_id, "key", "string"), keys.type, named=self.part_ids)
        value_column = Column(kind.value_id, "value", kind.value)
        part = self.field(value_column, below.type, named=self.part_ids)
        mapped = pa.map_(key.with_nullable(False), part)
        return pa.MapArray.from_arrays(ends, keys, below, type=mapped)

    def table(self, rows: Sequence[Row], columns: Sequence[Column]) -> pa.Table:
        arrays = [self.array([row[one.field_id] for row in rows], one.kind) for one in columns]
        fields = [self.field(one, array.type) for one, array in zip(columns, arrays, strict=True)]
        order = list(range(len(columns)))
        if self.shuffled:
            self.rng.shuffle(order)
        return pa.table([arrays[n] for n in order], schema=pa.schema([fields[n] for n in order]))


@dataclass
class Written:
    """A data file of the story: its rows as they were written, and which of them are gone."""

    entry: Entry
    columns: tuple[Column, ...]
    rows: list[Row]
    sequence: int
    spec_id: int
    partition: tuple[Any, ...]
    constants: dict[int, Any]
    positions: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    vector: Entry | None = None

    @property
    def path(self) -> str:
        return str(self.entry.record["file_path"])

    def alive(self, columns: Sequence[Column]) -> list[Row]:
        """Rows left, as the columns of a schema."""
        dead = self.positions | self.gone
        return [
            {one.field_id: found(row, self.columns, one, self.constants) for one in columns}
            for number, row in enumerate(self.rows)
            if number not in dead
        ]


class Story:
    """The life of a table, drawn from a seed; `folder` is where it will be written.

    With `for_java` only of what Iceberg's Java library reads as the specification says: equality
    deletes by present columns at the top, dates stay dates.

    Attributes:
        table: its parts, to be bent and written.
        files: live data files.
        columns: of the current schema.
    """

    def __init__(self, seed: int, folder: Path, steps: int = 8, *, for_java: bool = False) -> None:
        self.rng = random.Random(seed)
        self._formats = random.Random(f"formats {seed}")
        self._avro = self._formats.choice([0, 0, 0.3])
        self._for_java = for_java
        self._compared: set[int] = set()
        self.folder = folder
        self.version = self.rng.choice([1, 2, 2, 3, 3])
        self.now = self.rng.choice([*range(1, self.version + 1), self.version])
        self._last_id = self._files = self._names = 0
        self.columns: tuple[Column, ...] = ()
        self.columns = (Column(self._id(), "id", "long"),)
        for _ in range(self.rng.randint(1, 4)):
            self.columns += (self._column(),)
        self.schemas = [self.columns]
        self.specs: list[dict[str, Any]] = [{"spec-id": 0, "fields": []}]
        self.files: list[Written] = []
        self.table = ForeignTable(self.version, [], self.specs)
        self._respec()
        self._append()
        for _ in range(steps):
            self.step()
        self.table.last_column_id = self._last_id
        self.table.schemas = [
            {"type": "struct", "schema-id": n, "fields": [field_json(one) for one in columns]}
            for n, columns in enumerate(self.schemas)
        ]
        for each in self.table.snapshots:
            for manifest in each.manifests:
                manifest.schema = self.table.schemas[0]

    def rows(self) -> list[Row]:
        """What is right: the rows of the table by the ids of its current schema."""
        return [row for file in self.files for row in file.alive(self.columns)]

    def step(self) -> None:
        """Something that some writer does."""
        if self.now < self.version and self.rng.random() < 0.5:
            self.now += 1
        deletes = [self._equality, self._equality, self._positions] if self.now > 1 else []
        evolve = [self._rename, self._drop, self._add, self._add, self._promote, self._respec]
        evolve += [self._take_again, self._outlived]
        act = [self._append, self._rewrite, self._remove, *deletes, *deletes, *evolve]
        self.rng.choice(act)()

    # ids, names, columns

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _column(self, depth: int = 0) -> Column:
        field_id = self._id()
        kind = self._kind(depth)
        taken = {one.name for one in self.columns}
        free = [name for name in "abcdefgh" if name not in taken]
        self._names += 1
        # names come again after a drop
        name = self.rng.choice(free) if free and depth == 0 else f"n{self._names}"
        return Column(field_id, name, kind)

    def _kind(self, depth: int = 0) -> Kind:
        nested = self.rng.random() if depth < 2 else 0
        if nested > 0.8:
            fields = [self._column(depth + 1) for _ in range(self.rng.randint(1, 3))]
            return Struct(tuple(fields))
        if nested > 0.72:
            return Many(self._id(), self._kind(depth + 1))
        if nested > 0.66:
            return Pairs(self._id(), self._id(), self._kind(depth + 1))
        return self.rng.choice(sorted(VALUES.keys() - ({"uuid"} if self._for_java else set())))

    def value(self, kind: Kind) -> Any:
        """One that is often null."""
        if self.chance(0.2):
            return None
        if isinstance(kind, Struct):
            return {one.field_id: self.value(one.kind) for one in kind.fields}
        if isinstance(kind, Many):
            return [self.value(kind.element) for _ in range(self.rng.randint(0, 3))]
        if isinstance(kind, Pairs):
            return [(key, self.value(kind.value)) for key in "xyz"[: self.rng.randint(0, 3)]]
        return self.rng.choice(VALUES[kind])

    # evolution

    def _sources(self) -> set[int]:
        """Columns that stay."""
        specs = {one["source-id"] for spec in self.specs for one in spec["fields"]}
        return specs | (self._compared if self._for_java else set())

    def _anywhere(self) -> list[Column]:
        """Columns outside lists and maps that may change, structs too."""
        ways = list(leaves(self.columns))
        every = {one.field_id: one for way in ways for one in way}
        return [one for key, one in every.items() if key != 1]

    def _evolved(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        self.schemas.append(columns)

    def _rename(self) -> None:
        if choice := self._anywhere():
            column = self.rng.choice(choice)
            self._names += 1
            to = replace(column, name=f"r{self._names}")
            self._evolved(changed(self.columns, column.field_id, to))

    def _drop(self) -> None:
        sources = self._sources()
        choice = [one for one in self._anywhere() if one.field_id not in sources]
        if choice:
            newest = max(choice, key=lambda column: column.field_id)
            column = newest if self.chance(0.4) else self.rng.choice(choice)
            self._evolved(changed(self.columns, column.field_id, None))

    def _add(self) -> None:
        column = self._column()
        if self.now > 2 and self.chance(0.6):
            kind = self.rng.choice(sorted(DEFAULTS))
            column = replace(column, kind=kind, default=DEFAULTS[kind])
        structs = [one for one in self.columns if isinstance(one.kind, Struct)]
        if structs and self.chance(0.5):
            around = self.rng.choice(structs)
            column = replace(column, name=f"n{column.field_id}")
            to = replace(around, kind=Struct((*around.kind.fields, column)))
            self._evolved(changed(self.columns, around.field_id, to))
        else:
            self._evolved((*self.columns, column))

    def _take_again(self) -> None:
        """A column is dropped, its name taken by another like it: files of both, by one writer."""
        if self.now < self.version:
            return
        sources = self._sources()
        choice = [
            column
            for column in self.columns
            if column.field_id != 1 and column.field_id not in sources
        ]
        nested = [column for column in choice if not isinstance(column.kind, str)]
        if not choice:
            return
        column = self.rng.choice(nested or choice)
        before = self.columns
        again = Column(self._id(), column.name, self._renumbered(column.kind))
        self._evolved(changed(before, column.field_id, again))
        spec = self.specs[-1]
        made = [self._data_file(spec, columns) for columns in (self.columns, before, self.columns)]
        self.files += made
        manifest = self._new([file.entry for file in made], spec["spec-id"])
        self._commit([*self._manifests(), manifest])

    def _outlived(self) -> None:
        """A column is widened, written and dropped, then rows go by what it held."""
        sources = self._sources()
        choice = [
            one
            for one in self._anywhere()
            if one.field_id not in sources
            and isinstance(one.kind, str)
            and PROMOTED.get(one.kind, "timestamp") != "timestamp"
        ]
        if not choice or self.now == 1:
            return
        column = self.rng.choice(choice)
        wider = replace(column, kind=PROMOTED[str(column.kind)])
        self._evolved(changed(self.columns, column.field_id, wider))
        self._append()
        self._evolved(changed(self.columns, column.field_id, None))
        self._equality(column.field_id)

    def _renumbered(self, kind: Kind) -> Kind:
        if isinstance(kind, str):
            return kind
        if isinstance(kind, Struct):
            fields = (
                replace(child, field_id=self._id(), kind=self._renumbered(child.kind))
                for child in kind.fields
            )
            return Struct(tuple(fields))
        if isinstance(kind, Many):
            return Many(self._id(), self._renumbered(kind.element))
        return Pairs(self._id(), self._id(), self._renumbered(kind.value))

    def _promote(self) -> None:
        sources = self._sources()
        for column in self._anywhere():
            to = PROMOTED.get(column.kind) if isinstance(column.kind, str) else None
            timely = to != "timestamp" or (
                self.now > 2 and column.field_id not in sources and not self._for_java
            )
            if to is not None and timely and self.chance(0.6):
                self._evolved(changed(self.columns, column.field_id, replace(column, kind=to)))
                return

    def _respec(self) -> None:
        if self.chance(0.5):
            return
        choice = [one for one in self.columns if one.kind in SPEC_KINDS]
        column = self.rng.choice(choice)
        transforms = ["identity"] + ["truncate[2]"] * (column.kind in ("int", "long", "string"))
        known = sum(len(spec["fields"]) for spec in self.specs)
        part = {
            "source-id": column.field_id,
            "field-id": 1000 + known,
            "name": f"p{known}",
            "transform": self.rng.choice(transforms),
        }
        number = self.specs[-1]["spec-id"] + 1
        self.specs.append({"spec-id": number, "fields": [part] if self.chance(0.8) else []})

    # commits

    def _commit(self, manifests: list[Manifest]) -> None:
        number = len(self.table.snapshots) + 1
        sequence = self._sequence()
        snapshot = Snapshot(
            1000 + number, sequence, self.now, len(self.schemas) - 1, manifests, self._style()
        )
        self.table.snapshots.append(snapshot)

    def _sequence(self) -> int:
        last = max((one.sequence for one in self.table.snapshots), default=0)
        return last + 1 if self.now > 1 else 0

    def _style(self) -> Style:
        return Style(
            codec=self.rng.choice(["null", "deflate"]),
            backwards=self.chance(0.2),
            extra=self.chance(0.2),
            null_last=self.chance(0.2),
            summaries=self.chance(0.7),
        )

    def _manifests(self) -> list[Manifest]:
        return list(self.table.manifests) if self.table.snapshots else []

    def _new(self, entries: list[Entry], spec_id: int, *, deletes: bool = False) -> Manifest:
        spec = next(one for one in self.specs if one["spec-id"] == spec_id)
        by_id = {one.field_id: one for columns in self.schemas for one in columns}
        kinds = [SPEC_KINDS[str(by_id[one["source-id"]].kind)] for one in spec["fields"]]
        style = self._style()
        if self.chance(0.2):
            style.without = ("key_metadata", "sort_order_id", "column_sizes", "split_offsets")
        added = (1001 + len(self.table.snapshots), self._sequence())
        return Manifest(entries, spec, kinds, deletes, self.now, added, style)

    def _entry(self, stored: Stored, record: dict[str, Any]) -> Entry:
        explicit = self.now > 1 and self.chance(0.3)
        record = {
            "content": 0,
            "file_path": f"{self.folder.as_uri()}/data/{stored.name}",
            "file_format": self.rng.choice(["PARQUET", "parquet"]),
            **record,
        }
        if stored.avro:
            record["file_format"] = self._formats.choice(["AVRO", "avro"])
        snapshot = 1001 + len(self.table.snapshots) if self.chance(0.5) else None
        return Entry(record, stored, self._sequence() if explicit else None, snapshot=snapshot)

    def _stored(self, prefix: str, table: pa.Table) -> Stored:
        self._files += 1
        options = {
            "compression": self.rng.choice(["none", "snappy", "zstd", "gzip"]),
            "row_group_size": self.rng.choice([1, 2, 3, 1000]),
            "use_dictionary": self.chance(0.5),
            "data_page_version": self.rng.choice(["1.0", "2.0"]),
            "store_schema": self.chance(0.5),
            "store_decimal_as_integer": self.chance(0.3),
            "use_compliant_nested_type": self.chance(0.7),
            "write_statistics": self.chance(0.7),
        }
        avro = self._formats.random() < self._avro
        ending = "avro" if avro else "parquet"
        return Stored(f"{prefix}{self._files}.{ending}", table, options, avro=avro)

    def _layout(self) -> Layout:
        return Layout(
            self.rng,
            part_ids=self._for_java or self.chance(0.7),
            otherwise=self.chance(0.3),
            shuffled=self.chance(0.4),
            renamed=self.chance(0.3),
        )

    def _append(self) -> None:
        spec = self.rng.choice(self.specs) if self.chance(0.3) else self.specs[-1]
        made = [self._data_file(spec) for _ in range(self.rng.randint(1, 3))]
        self.files += made
        manifest = self._new([one.entry for one in made], spec["spec-id"])
        self._commit([*self._manifests(), manifest])

    def _data_file(
        self, spec: dict[str, Any], plainly: tuple[Column, ...] | None = None
    ) -> Written:
        """A data file under a spec; `plainly`: with all of these columns, as few writers do."""
        known = [
            columns
            for columns in self.schemas
            if {one["source-id"] for one in spec["fields"]} <= {one.field_id for one in columns}
        ]
        columns = self.rng.choice(known) if self.chance(0.25) else self.columns
        columns = plainly or columns
        partition, pinned, constants = self._partition(spec, columns)
        has = [
            one
            for one in columns
            if one.field_id == 1
            or plainly
            or not (self.chance(0.5) if one.field_id in constants else self.chance(0.08))
            or one.field_id in pinned.keys() - constants.keys()
        ]
        rows = [
            {one.field_id: self.value(one.kind) for one in has} | {1: self.rng.randint(0, 99)}
            for _ in range(0 if self.chance(0.04) and self.files else self.rng.randint(1, 8))
        ]
        for row in rows:
            row.update({key: value for key, value in pinned.items() if key in row})
        record = {"record_count": len(rows), "partition": partition, **self._metrics(rows, has)}
        layout = Layout(self.rng, part_ids=self._for_java) if plainly else self._layout()
        stored = self._stored("data", layout.table(rows, has))
        if plainly:
            stored.options |= {"store_schema": False, "use_compliant_nested_type": True}
        lacking = {one.field_id for one in columns} - {one.field_id for one in has}
        used = {key: value for key, value in constants.items() if key in lacking}
        entry = self._entry(stored, record)
        return Written(entry, tuple(has), rows, self._sequence(), spec["spec-id"], partition, used)

    def _partition(
        self, spec: dict[str, Any], columns: Sequence[Column]
    ) -> tuple[tuple[Any, ...], Row, dict[int, Any]]:
        """The partition of a file, what its rows hold for it, and what identity says of them."""
        partition: list[Any] = []
        pinned: Row = {}
        constants: dict[int, Any] = {}
        for one in spec["fields"]:
            column = next(c for c in columns if c.field_id == one["source-id"])
            value = self.value(column.kind)
            pinned[column.field_id] = value
            if one["transform"] == "identity":
                constants[column.field_id] = value
            elif value is not None:
                value = value[:2] if isinstance(value, str) else value - value % 2
            if isinstance(value, dt.date):
                value = (value - EPOCH.date()).days
            partition.append(value)
        return tuple(partition), pinned, constants

    def _metrics(self, rows: Sequence[Row], columns: Sequence[Column]) -> dict[str, Any]:
        """Counts and bounds, true ones: whole, cut, wide, for some columns, or none."""
        if self.chance(0.15):
            return {}
        found_: dict[str, dict[int, Any]] = {
            name: {} for name in ("value_counts", "null_value_counts", "nan_value_counts", *ENDS)
        }
        for path in leaves(columns):
            column, kind = path[-1], str(path[-1].kind)
            if self.chance(0.15):
                continue
            values = [at(row, path) for row in rows]
            there = [value for value in values if value is not None]
            ordered = [value for value in there if token(value) != "nan"]
            if self.chance(0.9):
                found_["value_counts"][column.field_id] = len(values)
                found_["null_value_counts"][column.field_id] = len(values) - len(there)
                if kind in ("float", "double"):
                    found_["nan_value_counts"][column.field_id] = len(there) - len(ordered)
            if not ordered:
                continue
            order = _order(kind)
            low, high = (serialized(end(ordered, key=order), kind) for end in (min, max))
            if kind in ("string", "binary") and self.chance(0.4):
                low, high = _cut(low, high, kind, self.rng.choice([1, 16]))
            if self.chance(0.95):
                found_["lower_bounds"][column.field_id] = low
            if high is not None and self.chance(0.95):
                found_["upper_bounds"][column.field_id] = high
        return {name: values for name, values in found_.items() if self.chance(0.95)}

    def _rewrite(self) -> None:
        """Manifests of a spec become one, their entries existing ones."""
        if self.now < self.version and self.now == 1:
            return
        manifests = self._manifests()
        pick = self.rng.choice(manifests)
        same = [
            one
            for one in manifests
            if (one.spec["spec-id"], one.deletes) == (pick.spec["spec-id"], pick.deletes)
        ]
        entries = [
            self._kept(entry, one) for one in same for entry in one.entries if entry.status < 2
        ]
        merged = self._new(entries, pick.spec["spec-id"], deletes=pick.deletes)
        if entries:
            self._commit([*(one for one in manifests if one not in same), merged])

    def _kept(self, entry: Entry, manifest: Manifest, status: int = 0) -> Entry:
        """An entry in a later manifest: what it inherited is said."""
        sequence = manifest.added[1] if entry.sequence is None else entry.sequence
        snapshot = manifest.added[0] if entry.snapshot is None else entry.snapshot
        kept = replace(entry, status=status, sequence=sequence, snapshot=snapshot)
        for file in self.files:
            if file.entry is entry:
                file.entry = kept
            if file.vector is entry:
                file.vector = kept
        return kept

    def _without(self, gone: Sequence[Entry]) -> list[Manifest]:
        """The manifests without some entries: those that had one are written again."""
        result = []
        for manifest in self._manifests():
            if not any(entry is one for one in gone for entry in manifest.entries):
                result.append(manifest)
                continue
            entries = [
                self._kept(entry, manifest, 2 if any(entry is one for one in gone) else 0)
                for entry in manifest.entries
                if entry.status < 2
            ]
            result.append(self._new(entries, manifest.spec["spec-id"], deletes=manifest.deletes))
        return result

    def _remove(self) -> None:
        if len(self.files) > 1:
            file = self.files.pop(self.rng.randrange(len(self.files)))
            self._commit(self._without([file.entry]))

    # deletes

    def _positions(self) -> None:
        target = self.rng.choice([file for file in self.files if file.rows] or self.files)
        if self.now > 2 or not target.rows:
            self._vectors(target)
            return
        beside = [
            file
            for file in self.files
            if file.rows and (file.spec_id, file.partition) == (target.spec_id, target.partition)
        ]
        targets = [target] if self.chance(0.5) else beside
        named = [
            (file.path, self.rng.randrange(len(file.rows)))
            for file in targets
            for _ in range(self.rng.randint(1, 3))
        ]
        for file in targets:
            file.positions |= {position for path, position in named if path == file.path}
        if self.chance(0.2):
            named += [(target.path, len(target.rows) + 5), ("file:///nowhere.parquet", 1)]
        if self.chance(0.7):
            named.sort()
        record: dict[str, Any] = {"content": 1, "partition": target.partition}
        record["record_count"] = len(named)
        paths = sorted({path for path, _ in named})
        if len(paths) == 1 and self.chance(0.3):
            record["referenced_data_file"] = target.path
        if self.chance(0.6):
            record["lower_bounds"] = {PATH_ID: paths[0].encode()}
            record["upper_bounds"] = {PATH_ID: paths[-1].encode()}
        ids = [{b"PARQUET:field_id": str(one).encode()} for one in (PATH_ID, POSITION_ID)]
        columns = [
            pa.array([path for path, _ in named]),
            pa.array([n for _, n in named], pa.int64()),
        ]
        fields = [
            pa.field("file_path", pa.string(), metadata=ids[0]),
            pa.field("pos", pa.int64(), metadata=ids[1]),
        ]
        if self.chance(0.2):
            rows = self._layout().array([{1: 5} for _ in named], Struct((Column(1, "id", "long"),)))
            metadata = {b"PARQUET:field_id": b"2147483544"}
            columns, fields = (
                [*columns, rows],
                [*fields, pa.field("row", rows.type, metadata=metadata)],
            )
        stored = self._stored("positions", pa.table(columns, schema=pa.schema(fields)))
        manifest = self._new([self._entry(stored, record)], target.spec_id, deletes=True)
        self._commit([*self._manifests(), manifest])

    def _vectors(self, target: Written) -> None:
        """Deletion vectors of some files of a spec, in one Puffin file."""
        same = [file for file in self.files if file.rows and file.spec_id == target.spec_id]
        if self.now < 3 or not same:
            return
        targets = self.rng.sample(same, self.rng.randint(1, len(same)))
        for file in targets:
            file.positions |= {self.rng.randrange(len(file.rows)) for _ in range(2)}
        replaced = [file.vector for file in targets if file.vector is not None]
        manifests = self._without(replaced)
        blobs = [(vector(file.positions), file.path, len(file.positions)) for file in targets]
        data, starts = puffin(blobs)
        self._files += 1
        stored = Stored(f"vectors{self._files}.puffin", blob=data)
        entries = []
        for file, start, (blob, path, count) in zip(targets, starts, blobs, strict=True):
            record = {
                "content": 1,
                "partition": file.partition,
                "record_count": count,
                "referenced_data_file": path,
                "content_offset": start,
                "content_size_in_bytes": len(blob),
            }
            entry = self._entry(stored, record)
            entry.record["file_format"] = self.rng.choice(["PUFFIN", "puffin"])
            file.vector = entry
            entries.append(entry)
        manifest = self._new(entries, target.spec_id, deletes=True)
        self._commit([*manifests, manifest])

    def _equality(self, by: int | None = None) -> None:
        """Rows by the values of one or two fields, also dropped ones, wherever these stand.

        Rows of the same commit stay.
        """
        ways: dict[int, tuple[Column, ...]] = {}
        for columns in self.schemas:
            ways |= {path[-1].field_id: path for path in leaves(columns)}
        if self._for_java:
            now = {one.field_id for one in self.columns if one.kind != "fixed[4]"}
            ways = {one: path for one, path in ways.items() if one in now}
            by = None
        target = self.files[-1] if by else self.rng.choice(self.files)
        has = {path[-1].field_id for path in leaves(target.columns)}
        lacking = sorted(ways.keys() - has)
        if not ways:
            return
        choice = lacking if lacking and self.chance(0.3) else sorted(ways)
        ids = self.rng.sample(choice, min(len(choice), self.rng.choice([1, 1, 2])))
        ids = [by] if by else ids
        self._compared |= set(ids)
        paths = [ways[one] for one in ids]
        rows: list[list[Any]] = []
        for _ in range(self.rng.randint(1, 3)):
            row = self.rng.choice(self._as_keys(target, paths) or [[None] * len(paths)])
            drawn = [self.value(str(path[-1].kind)) for path in paths]
            rows.append(row if self.chance(0.7) else drawn)
        spec = next(one for one in self.specs if one["spec-id"] == target.spec_id)
        everywhere = not spec["fields"]
        gone = {tuple(map(token, row)) for row in rows}
        sequence = self._sequence()
        for file in self.files:
            here = everywhere or (file.spec_id, file.partition) == (
                target.spec_id,
                target.partition,
            )
            if here and file.sequence < sequence:
                for number, row in enumerate(self._as_keys(file, paths)):
                    if tuple(map(token, row)) in gone:
                        file.gone.add(number)
        table = self._key_table(paths, rows)
        record: dict[str, Any] = {
            "content": 2,
            "partition": target.partition,
            "record_count": len(rows),
            "equality_ids": self.rng.sample(ids, len(ids)),
        }
        entry = self._entry(self._stored("equality", table), record)
        manifests = [*self._manifests(), self._new([entry], target.spec_id, deletes=True)]
        known = {one.field_id for one in self.columns}
        if self.chance(0.3) and {one["source-id"] for one in spec["fields"]} <= known:
            beside = self._data_file(spec)
            self.files.append(beside)
            manifests.append(self._new([beside.entry], target.spec_id))
        self._commit(manifests)

    def _as_keys(self, file: Written, paths: Sequence[tuple[Column, ...]]) -> list[list[Any]]:
        return [
            [
                at({path[0].field_id: found(row, file.columns, path[0], file.constants)}, path)
                for path in paths
            ]
            for row in file.rows
        ]

    def _key_table(self, paths: Sequence[tuple[Column, ...]], rows: list[list[Any]]) -> pa.Table:
        """The keys in their structs, or at the top, with a column more at times."""
        layout = self._layout()
        flat = self.chance(0.3) or len({path[0].field_id for path in paths}) < len(paths)
        columns: list[pa.Array] = []
        fields: list[pa.Field] = []
        for number, path in enumerate(paths):
            column = path[-1]
            array = layout.array([row[number] for row in rows], str(column.kind))
            part = layout.field(column, array.type)
            for around in () if flat else path[-2::-1]:
                array = pa.StructArray.from_arrays([array], fields=[part])
                part = layout.field(around, array.type)
            columns.append(array)
            fields.append(pa.field(f"k{number}", part.type, metadata=part.metadata))
        if self.chance(0.2):
            columns.append(pa.array(["of ours"] * len(rows)))
            fields.append(pa.field("extra", pa.string(), metadata={b"PARQUET:field_id": b"9002"}))
        order = self.rng.sample(range(len(columns)), len(columns))
        return pa.table([columns[n] for n in order], schema=pa.schema([fields[n] for n in order]))


def _order(kind: str) -> Any:
    if kind == "uuid":
        return lambda value: value.bytes
    if kind in ("float", "double"):
        return lambda value: (value, math.copysign(1, value))
    return lambda value: value


def _cut(low: bytes, high: bytes, kind: str, length: int) -> tuple[bytes, bytes | None]:
    """Bounds of so many characters or bytes; no upper one where none can be above."""
    if kind == "binary":
        end = high[:length]
        kept = end.rstrip(b"\xff")
        raised = kept[:-1] + bytes([kept[-1] + 1]) if kept else None
        return low[:length], high if len(high) <= length else raised
    low_text, high_text = low.decode(), high.decode()
    if len(high_text) <= length:
        return low_text[:length].encode(), high
    kept_text = high_text[:length].rstrip("\U0010ffff")
    raised_text = kept_text[:-1] + chr(ord(kept_text[-1]) + 1) if kept_text else None
    return low_text[:length].encode(), None if raised_text is None else raised_text.encode()
