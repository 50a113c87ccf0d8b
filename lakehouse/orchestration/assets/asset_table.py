"""Which table holds an asset, and how it is written: of plain assets by key and metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import dagster as dg
import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from lakehouse.data.writing.untyped_columns import without_untyped
from lakehouse.engines import to_schema
from lakehouse.errors import InvalidInputError, InvalidSchemaError, TableAlreadyExistsError
from lakehouse.ingestion.definition_changes import (
    LAYOUT_BY_AGE,
    DefinitionChange,
    Effect,
    Layout,
    as_property,
    make_room,
    record,
    recorded,
    tell,
)
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.asset_attributes import code_digest, is_ours
from lakehouse.orchestration.assets.partition_filter import (
    PARTITION_EXPR,
    PartitionExpr,
    default_partition_terms,
    partition_filter,
)
from lakehouse.table import Table

WriteMode = Literal["overwrite", "append", "upsert"]
IO_MANAGER = "io_manager"
"""The resource that holds the values of assets which name no other."""
_COLUMN_SCHEMA = "dagster/column_schema"
_MICROSECONDS: dict[type[IcebergType], IcebergType] = {
    TimestampNanoType: TimestampType(),
    TimestamptzNanoType: TimestamptzType(),
}


@dataclass(frozen=True, kw_only=True)
class AssetTable:
    """The table of an asset.

    Attributes:
        asset: the asset's key, slash-separated.
        name: the table's dotted name: metadata `table`, or the parts of the key.
        write_mode: metadata `write_mode`: `overwrite` replaces the partitions of the run (all rows
            of an asset without partitions), `append` adds, `upsert` changes rows by key.
        upsert_keys: metadata `upsert_keys`: the columns of that key.
        branch: metadata `branch`; None: that of the I/O manager.
        partition_expr: metadata `partition_expr`, see `partition_filter`.
        partition_by: metadata `partition_by`: terms of the table; None: a new one is partitioned
            after the asset's partitions.
        sort_by: metadata `sort_by`: terms of the table.
        layout_by_age: metadata `layout_by_age`: how closed periods are laid out, as the table
            property says it; None: of a new table that is partitioned by days or hours of the
            asset's partitions by month after 30 days; empty: as they were written.
        properties: metadata `table_properties`.
        docs: of columns, from metadata `dagster/column_schema`.
    """

    asset: str
    name: str
    write_mode: WriteMode = "overwrite"
    upsert_keys: tuple[str, ...] = ()
    branch: str | None = None
    partition_expr: PartitionExpr = None
    partition_by: tuple[str, ...] | None = None
    sort_by: tuple[str, ...] = ()
    layout_by_age: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    docs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, key: dg.AssetKey, metadata: Mapping[str, Any], namespace: str) -> AssetTable:
        """The table of an asset.

        Args:
            key: the asset's; one of a single part lies in `namespace`.
            metadata: of its definition; entries that are not for a table are left alone.
            namespace: of keys without one.

        Raises:
            InvalidInputError: an entry is not what it should be.
        """
        asset = key.to_user_string()

        def entry(name: str, kind: Any, wanted: str) -> Any:
            return _entry(asset, metadata, name, kind, wanted)

        def texts(name: str) -> tuple[str, ...] | None:
            given = entry(name, str | Sequence[str], "a text or a list of texts")
            if given is None:
                return None
            return (given,) if isinstance(given, str) else tuple(given)

        refresh = metadata.get("refresh")
        if refresh in ("auto", "incremental", "incremental_strict"):
            model = f"SqlModel(name={asset.replace('/', '.')!r}, sql=..., refresh={refresh!r})"
            wanted = f"left out of a function, which is not followed: write its SQL as {model}"
            raise _wrong(asset, "refresh", refresh, wanted)
        modes = f"one of {', '.join(get_args(WriteMode))}"
        mode: WriteMode = entry("write_mode", WriteMode, modes) or "overwrite"
        keys = texts("upsert_keys") or ()
        if (mode == "upsert") != bool(keys):
            wanted = 'the key columns where "write_mode" is "upsert", and only there'
            raise _wrong(asset, "upsert_keys", keys or None, wanted)
        parts = key.path if len(key.path) > 1 else [namespace, *key.path]
        return cls(
            asset=asset,
            name=entry("table", str, "a text") or ".".join(parts),
            write_mode=mode,
            upsert_keys=keys,
            branch=entry("branch", str, "a text"),
            partition_expr=entry(
                PARTITION_EXPR, str | Mapping[str, str], "a text, or texts by name"
            ),
            partition_by=texts("partition_by"),
            sort_by=texts("sort_by") or (),
            layout_by_age=entry("layout_by_age", str, "a text"),
            properties=dict(entry("table_properties", Mapping[str, str], "texts by name") or {}),
            docs=_docs(metadata),
        )

    def typed(
        self, lake: Lakehouse, rows: pa.Table | pa.RecordBatchReader
    ) -> tuple[pa.Table | pa.RecordBatchReader, pa.Schema]:
        """The rows without new columns of nulls alone, which have no type before version 3.

        They become columns with their first value. Returns the rows and their schema.

        Raises:
            InvalidSchemaError: a column is new but for the case of its name, which Spark cannot
                tell apart.
        """
        table = lake.load_table(self.name) if lake.table_exists(self.name) else None
        known = Schema() if table is None else table.schema()
        by_case = {field.name.casefold(): field.name for field in known.fields}
        for name in rows.schema.names:
            if by_case.setdefault(name.casefold(), name) != name:
                raise InvalidSchemaError(
                    f"asset {self.asset} gives the column {name!r}, and {self.name} has "
                    f"{by_case[name.casefold()]!r}: engines that ignore case, such as Spark, could "
                    "not read both. Give one of them another name",
                    table=self.name,
                    column=name,
                )
        version = (
            int(self.properties.get("format-version", "2"))
            if table is None
            else table.metadata.format_version
        )
        if version < 3 and not all(pa.types.is_null(kind) for kind in rows.schema.types):
            rows, _ = without_untyped(rows, known)
        return rows, rows.schema

    def where(
        self, definition: dg.PartitionsDefinition, keys: Sequence[str], schema: Schema
    ) -> BooleanExpression:
        """The rows of some partitions; see `partition_filter`."""
        return partition_filter(definition, keys, self.partition_expr, schema, self.asset)

    @property
    def layout(self) -> Layout:
        """How files of its table are laid out, as far as the metadata says."""
        return Layout(self.partition_by, self.sort_by, self.layout_by_age)

    def definition(self) -> dict[str, Any]:
        """What is recorded with the table."""
        return {
            **self.layout.definition(),
            "table_properties": dict(self.properties),
            "write_mode": self.write_mode,
            "upsert_keys": list(self.upsert_keys),
            "partition_expr": self.partition_expr,
        }

    def changes(self, table: Table) -> list[DefinitionChange]:
        """What metadata that is other than the recorded one does to the table.

        Raises:
            InvalidPartitionSpecError: the table cannot be laid out so.
        """
        changes, known, now = self.layout.changes(table), recorded(table) or {}, self.definition()
        for part, effect, consequence in (
            ("table_properties", "evolve", "they are set, and those that are gone are removed"),
            ("write_mode", "from now on", "rows that are there stay"),
            ("upsert_keys", "from now on", "rows that are there stay"),
            ("partition_expr", "from now on", "rows that are there stay"),
        ):
            if part in known and known[part] != now[part]:
                before, after = str(known[part] or None), str(now[part] or None)
                changes.append(
                    DefinitionChange(
                        self.name, part, before, after, cast("Effect", effect), consequence
                    )
                )
        return changes

    def follow(self, table: Table, say: Callable[[str], None]) -> None:
        """Change layout and properties of a table that is there as the definition has changed.

        Raises:
            InvalidPartitionSpecError: the table cannot be laid out so.
        """
        changes = self.changes(table)
        if any(change.what == "table_properties" for change in changes):
            before = (recorded(table) or {})["table_properties"]
            gone = [name for name in before if name not in self.properties]
            changed = {k: v for k, v in self.properties.items() if before.get(k) != v}
            if changed:
                table.set_properties(changed)
            if gone:
                table.remove_properties(*gone)
        self.layout.lay(table)
        tell(changes, say)
        record(table, self.definition())

    def ready(
        self,
        lake: Lakehouse,
        schema: object,
        partitions: dg.PartitionsDefinition | None,
        say: Callable[[str], None],
    ) -> Table:
        """The table with room for rows of a schema, created where it is missing.

        A layout or properties that the asset's definition has changed are the table's from now on.
        Columns that the rows have gained are added, types are promoted as Iceberg allows it, the
        documentation of columns is that of the asset. `say` takes lines: what changes, and what
        stays though the rows do not have it any more. Nanoseconds, which pandas gives every time,
        are kept where the table can have them (format version 3), else they become microseconds,
        and a value that has more is refused when it is written.

        Raises:
            InvalidSchemaError | InvalidPartitionSpecError: the table cannot be so.
        """
        given = to_schema(schema)
        if not lake.table_exists(self.name):
            version = self.properties.get("format-version", "2")
            given = self._with_docs(given if version >= "3" else _microseconds(given))
            terms = self._terms(given, partitions)
            try:
                return lake.create_table(
                    self.name,
                    given,
                    partition_by=terms,
                    sort_by=self.sort_by,
                    properties={
                        **self._aged(terms),
                        **self.properties,
                        **as_property(self.definition()),
                    },
                )
            except TableAlreadyExistsError:  # another partition's run came first
                pass
        table = lake.load_table(self.name)
        given = self._with_docs(
            given if table.metadata.format_version >= 3 else _microseconds(given)
        )
        tell(make_room(table, given, partial=self.write_mode == "upsert"), say)
        documented = self._new_docs(table)
        if documented:
            with table.update_schema() as change:
                for name, doc in documented.items():
                    change.update_column(name, doc=doc)
        self.follow(table, say)
        return table

    def _terms(self, schema: Schema, partitions: dg.PartitionsDefinition | None) -> Sequence[str]:
        if self.partition_by is not None:
            return self.partition_by
        if partitions is None:
            return ()
        return default_partition_terms(partitions, self.partition_expr, schema, self.asset)

    def _aged(self, terms: Sequence[str]) -> dict[str, str]:
        """The property by which closed periods of a new table are laid out.

        By default where it is partitioned by hours or days of its asset.
        """
        aged = self.layout_by_age
        if aged is None:
            fine = [term for term in terms if term.startswith(("hour(", "day("))]
            if self.partition_by is not None:
                fine = [term for term in fine if term.endswith(f"({self.partition_expr})")]
            aged = f"30d: month({fine[0].partition('(')[2]}" if fine else None
        return {LAYOUT_BY_AGE: aged} if aged else {}

    def _new_docs(self, table: Table) -> dict[str, str]:
        known = {field.name: field.doc for field in table.schema().fields}
        return {
            name: doc for name, doc in self.docs.items() if name in known and known[name] != doc
        }

    def _with_docs(self, schema: Schema) -> Schema:
        return Schema(
            *[
                field.model_copy(update={"doc": self.docs.get(field.name, field.doc)})
                for field in schema.fields
            ]
        )


def _microseconds(schema: Schema) -> Schema:
    return Schema(
        *[
            field.model_copy(
                update={"field_type": _MICROSECONDS.get(type(field.field_type), field.field_type)}
            )
            for field in schema.fields
        ]
    )


def _entry(asset: str, metadata: Mapping[str, Any], name: str, kind: Any, wanted: str) -> Any:
    """An entry of an asset's metadata; None: it has none. Raises InvalidInputError."""
    given = metadata.get(name)
    value = given.value if isinstance(given, dg.MetadataValue) else given
    try:
        return TypeAdapter(kind | None).validate_python(value, strict=True)
    except ValidationError:
        raise _wrong(asset, name, value, wanted) from None


def _wrong(asset: str, name: str, value: object, wanted: str) -> InvalidInputError:
    return InvalidInputError(
        f"asset {asset}: its metadata {name!r} is {value!r}: it must be {wanted}", asset=asset
    )


def _docs(metadata: Mapping[str, Any]) -> dict[str, str]:
    given = metadata.get(_COLUMN_SCHEMA)
    schema = given.schema if isinstance(given, dg.TableSchemaMetadataValue) else given
    columns = schema.columns if isinstance(schema, dg.TableSchema) else []
    return {column.name: column.description for column in columns if column.description}


def plain_tables(definitions: Iterable[object], namespace: str = "default") -> tuple[str, ...]:
    """Names of the tables of assets that give their value to the I/O manager.

    Args:
        definitions: of Dagster; those that are no assets are passed over.
        namespace: of assets whose key has one part, see `LakehouseIOManager.namespace`.

    Raises:
        InvalidInputError: an asset's metadata is not what it should be.
    """
    return tuple(
        AssetTable.of(key, asset.metadata_by_key.get(key, {}), namespace).name
        for asset, key in plain_assets(definitions)
    )


def plain_assets(definitions: Iterable[object]) -> list[tuple[dg.AssetsDefinition, dg.AssetKey]]:
    """A project's assets that give their value to the I/O manager, in the definitions' order."""
    assets = [
        definition
        for definition in definitions
        if isinstance(definition, dg.AssetsDefinition) and not is_ours(definition.node_def)
    ]
    return [
        (asset, key)
        for asset in assets
        if asset.is_executable
        for key in sorted(asset.keys)
        if asset.get_io_manager_key_for_asset_key(key) == IO_MANAGER
        and not _gives_nothing(asset, key)
    ]


def with_code_versions(definitions: Iterable[Any]) -> list[Any]:
    """The definitions; plain assets have a `code_version`, so that Dagster tells changed code.

    It is the one that the user gave, else a digest of the function's code and of the plain values
    that it closes over. Functions that it calls are not part of it: who changes them gives a
    `code_version`.
    """
    listed = list(definitions)
    plain = {id(asset) for asset, _ in plain_assets(listed)}
    return [
        _versioned(definition) if id(definition) in plain else definition for definition in listed
    ]


def code_version(asset: dg.AssetsDefinition, key: dg.AssetKey) -> str:
    """What tells the code of an asset from other code; empty: nothing does."""
    return asset.code_versions_by_key.get(key) or code_digest(asset.node_def)


def _versioned(asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    return asset.map_asset_specs(
        lambda spec: spec.replace_attributes(code_version=code_version(asset, spec.key) or None)
    )


def _gives_nothing(asset: dg.AssetsDefinition, key: dg.AssetKey) -> bool:
    output = asset.get_output_name_for_asset_key(key)
    return asset.op.output_def_named(output).dagster_type.is_nothing
