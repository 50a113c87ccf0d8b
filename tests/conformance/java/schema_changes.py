"""Random changes of a schema, by either engine, and what they make of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)

from lakehouse.errors import InvalidSchemaError
from lakehouse.spec.types.type_text import to_iceberg_type
from tests.conformance.java.both_engines import BothEngines
from tests.conformance.java.json_rows import Row
from tests.conformance.java.judge import JudgeError
from tests.conformance.java.random_rows import leaves, primitives, value

_WITH_DEFAULTS = (BooleanType, IntegerType, LongType, StringType, UUIDType)


class SchemaChanges:
    """Changes the schema of a table.

    Args:
        random: decides.
        both: the table.
        asks_java: whether Java is there to be asked for names that are taken.

    Attributes:
        in_deletes: ids of fields that stay, because equality deletes compare them: of a dropped one
            Java says "Cannot find required field"; ours still applies them, as the specification
            asks for.
        changed: path of the column that was changed last.
        spare_names: those of columns dropped or renamed since, taken again by others.
    """

    def __init__(self, random: Random, both: BothEngines, *, asks_java: bool = True) -> None:
        self._asks_java = asks_java
        self._random = random
        self._both = both
        self._defaults: dict[int, Any] = {}
        self._count = 0
        self._seen: dict[int, int] = {}
        self.in_deletes: set[int] = set()
        self.spare_names: set[str] = set()
        self.changed = ""

    def seen(self, snapshot_id: int) -> None:
        """Remember how many changes came before a snapshot."""
        self._seen[snapshot_id] = self._count

    def since(self, snapshot_id: int) -> bool:
        """Whether the schema changed after a snapshot."""
        return self._seen.get(snapshot_id) != self._count

    def change(self, who: str, version: int, kind: str = "", name: str = "") -> str:
        """Change the table's schema by `Java`, `pyiceberg` or us; what was done.

        Args:
            who: changes it.
            version: of the format.
            kind: of the change; drawn when empty.
            name: of the column that is dropped; drawn when empty.
        """
        schema = self._both.schema_of()
        if self._asks_java:
            self._ask_for_taken_names(schema)
        kinds = ("add", "add", "rename", "drop", "widen", "optional", "first")
        kind = kind or self._random.choice(kinds)
        made = {"name": name} if name else getattr(self, f"_{kind}")(schema, version)
        if made is None:
            kind, made = "add", self._add(schema, version)
        self._count += 1
        change = {"change": kind, **made}
        self.changed = ".".join(filter(None, (made.get("parent"), made["name"])))
        if who == "Java":
            self._both.java("schema", changes=[change])
        elif who == "pyiceberg":
            self._pyicebergs(change)
        else:
            self._ours(change)
        self._learn_default(change)
        if kind in ("drop", "rename"):
            self.spare_names.add(made["name"].rpartition(".")[2])
        return f"{who} change{'' if who == 'we' else 's'} the schema, {kind}: {made}"

    def _new_name(self, schema: Schema, parent: str | None, otherwise: str) -> str:
        """One that another column had, or one that none had."""
        inside = schema if parent is None else schema.find_field(parent).field_type
        taken = {field.name for field in inside.fields}
        free = sorted(self.spare_names - taken)
        return self._random.choice(free) if free and self._random.random() < 0.6 else otherwise

    def _ask_for_taken_names(self, schema: Schema) -> None:
        """Neither adds a column with the name of another column's partition field."""
        specs = self._both.table().metadata.partition_specs
        for name in sorted({field.name for spec in specs for field in spec.fields}):
            if name in schema.column_names:
                continue
            change = {"change": "add", "parent": None, "name": name, "type": "long"}
            with pytest.raises(InvalidSchemaError, match="partition field of another column"):
                self._ours(change)
            with pytest.raises(JudgeError, match="Cannot create identity partition sourced"):
                self._both.java("schema", changes=[change])

    def _learn_default(self, change: dict[str, Any]) -> None:
        if change.get("default") is not None:
            path = ".".join(filter(None, (change["parent"], change["name"])))
            self._defaults[self._both.schema_of().find_field(path).field_id] = change["default"]

    def migrated(self, old: Any, before: IcebergType, after: IcebergType) -> Any:
        """A value of the schema before as the one after reads it."""
        if old is None:
            return None
        if isinstance(after, StructType):
            return self._migrated_struct(old, before, after)
        if isinstance(after, ListType):
            return [self.migrated(one, before.element_type, after.element_type) for one in old]
        if isinstance(after, MapType):
            return [
                [key, self.migrated(one, before.value_type, after.value_type)] for key, one in old
            ]
        return old

    def _migrated_struct(self, old: Row, before: StructType, after: StructType) -> Row:
        known = {field.field_id: field.field_type for field in before.fields}
        row: Row = {}
        for field in after.fields:
            name = str(field.field_id)
            if field.field_id in known:
                row[name] = self.migrated(old[name], known[field.field_id], field.field_type)
            else:
                row[name] = self._defaults.get(field.field_id)
        return row

    def _structs(self, schema: Schema) -> list[str]:
        spare = self._spare(schema)
        return [path for path, field in spare if isinstance(field.field_type, StructType)]

    def _add(self, schema: Schema, version: int) -> dict[str, Any]:
        parent = self._random.choice([None, None, *self._structs(schema)])
        kind = self._random.choice(primitives(version))
        name = self._new_name(schema, parent, f"n{self._count}")
        made: dict[str, Any] = {"parent": parent, "name": name, "type": str(kind)}
        if version >= 3 and isinstance(kind, _WITH_DEFAULTS) and self._random.random() < 0.6:
            made["default"] = value(self._random, kind)
        return made

    def _spare(self, schema: Schema) -> list[tuple[str, NestedField]]:
        """Columns but `rid`, and fields of structs at any depth."""

        def inside(struct: StructType, prefix: str) -> Iterator[tuple[str, NestedField]]:
            for field in struct.fields:
                yield prefix + field.name, field
                if isinstance(field.field_type, StructType):
                    yield from inside(field.field_type, f"{prefix}{field.name}.")

        return [one for one in inside(schema.as_struct(), "") if one[0] != "rid"]

    def _rename(self, schema: Schema, _: int) -> dict[str, Any] | None:
        path, _field = self._random.choice(self._spare(schema))
        parent = path.rpartition(".")[0] or None
        return {"name": path, "to": self._new_name(schema, parent, f"r{self._count}")}

    def _drop(self, schema: Schema, _: int) -> dict[str, Any] | None:
        """Of what no partition spec derives from, and no equality delete compares."""
        sources = self.in_deletes | {
            field.source_id
            for spec in self._both.table().metadata.partition_specs
            for field in spec.fields
        }
        free = [
            path
            for path, field in self._spare(schema)
            if not sources & _ids_of(field)
            and (
                "." not in path
                or len(schema.find_field(path.rpartition(".")[0]).field_type.fields) > 1
            )
        ]
        top = [path for path in free if "." not in path]
        if not free or (len(top) < 2 and len(schema.fields) < 4):
            return None
        return {"name": self._random.choice(free)}

    def _widen(self, schema: Schema, _: int) -> dict[str, Any] | None:
        wider: list[tuple[str, PrimitiveType]] = []
        for path, _id, kind in leaves(schema.as_struct()):
            if isinstance(kind, IntegerType):
                wider.append((path, LongType()))
            elif isinstance(kind, FloatType):
                wider.append((path, DoubleType()))
            elif isinstance(kind, DecimalType) and kind.precision < 38:
                wider.append((path, DecimalType(min(38, kind.precision + 6), kind.scale)))
        if not wider:
            return None
        path, kind = self._random.choice(wider)
        return {"name": path, "type": str(kind)}

    def _optional(self, schema: Schema, _: int) -> dict[str, Any] | None:
        required = [path for path, field in self._spare(schema) if field.required]
        return {"name": self._random.choice(required)} if required else None

    def _first(self, schema: Schema, _: int) -> dict[str, Any]:
        return {"name": self._random.choice(self._spare(schema))[0]}

    def _ours(self, change: dict[str, Any]) -> None:
        name = change["name"]
        with self._both.table().update_schema() as update:
            match change["change"]:
                case "add":
                    path = ".".join(filter(None, (change["parent"], name)))
                    update.add_column(path, change["type"], default=_written(change))
                case "rename":
                    update.rename_column(name, change["to"])
                case "drop":
                    update.drop_column(name)
                case "widen":
                    update.update_column(name, change["type"])
                case "optional":
                    update.make_optional(name)
                case "first":
                    update.move_first(name)

    def _pyicebergs(self, change: dict[str, Any]) -> None:
        path = tuple(change["name"].split("."))
        with self._both.pyiceberg().update_schema(allow_incompatible_changes=True) as update:
            match change["change"]:
                case "add":
                    above = change["parent"].split(".") if change["parent"] else []
                    update.add_column((*above, *path), to_iceberg_type(change["type"], "n"))
                case "rename":
                    update.rename_column(path, change["to"])
                case "drop":
                    update.delete_column(path)
                case "widen":
                    update.update_column(path, to_iceberg_type(change["type"], "n"))
                case "optional":
                    update.make_column_optional(path)
                case "first":
                    update.move_first(path)


def _written(change: dict[str, Any]) -> Any:
    """A default as our interface takes it."""
    default = change.get("default")
    if default is not None and change["type"] == "uuid":
        return "-".join((default[:8], default[8:12], default[12:16], default[16:20], default[20:]))
    return default


def _ids_of(field: NestedField) -> set[int]:
    """Ids of a field and of all inside it."""
    document = json.loads(field.model_dump_json())
    found: set[int] = set()

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            found.update(
                one for key, one in node.items() if key.endswith("id") and type(one) is int
            )
            for one in node.values():
                collect(one)
        elif isinstance(node, list):
            for one in node:
                collect(one)

    collect(document)
    return found
