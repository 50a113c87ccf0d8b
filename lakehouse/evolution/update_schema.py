"""Changing the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, NestedField

from lakehouse.errors import InvalidSchemaError
from lakehouse.evolution.schema_tree import Node, Path, find, node_of, root_of, schema_of
from lakehouse.evolution.type_promotion import (
    changes_partition_values,
    is_narrower,
    promoted_default,
    promotion_obstacle,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AddSchema,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    Changes,
    Requirement,
    SetCurrentSchema,
)
from lakehouse.spec.partitioning.compatibility import check_schema_for_version
from lakehouse.spec.schema.iceberg_types import MAX_COLUMN_ID
from lakehouse.spec.schema.schema_json import (
    check_names,
    default_from_json,
    fresh_field,
    fresh_type,
    make_field,
)
from lakehouse.spec.types.arrow_types import schema_from_arrow
from lakehouse.spec.types.type_text import to_iceberg_type


class _Unset:
    """No value was given; None is one."""


UNSET: Final = _Unset()


class UpdateSchema:
    """Collects changes of the current schema; `changes()` gives them as one commit.

    Each call applies to the schema as the calls before have left it. Columns are named by dotted
    paths (`location.lat`, `points.element.x`, `attributes.value`), or by a sequence of names where
    a name has dots. A change that could not be read back right from the files there are raises
    InvalidSchemaError with the reason, and leaves the builder as it was.

    Column ids are never used twice, not even for a column of the same name.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._base = metadata.schema()
        self._root = root_of(self._base)
        self._last_id = metadata.last_column_id
        self._identifiers = list(self._base.identifier_field_ids)

    def add_column(
        self,
        path: Path,
        type: object,  # noqa: A002 - the word of pyiceberg and of the schema
        *,
        doc: str | None = None,
        required: bool = False,
        default: Any = None,
    ) -> UpdateSchema:
        """Add a column, or a field of a struct, at its end.

        Args:
            path: the new name, after the path of the struct it goes into.
            type: a pyiceberg type, an Arrow type, or text such as "string", "decimal(10,2)",
                "list<long>".
            doc: comment.
            required: whether it is never null; needs a default, because the files there are do not
                have it.
            default: v3: its value in rows that were written without it, now or later. None is null.
        """
        parent, name = self._place(path)
        field_type = to_iceberg_type(
            type, ".".join([*([parent.path] if parent.path else []), name])
        )
        self._check_new_name(parent, name)
        self._refuse_in_key(parent, "a field cannot be added to a map key")
        value = default_from_json(field_type, default)
        if value is not None and self._metadata.format_version < 3:
            raise InvalidSchemaError(
                f"Column {name!r}: defaults need format version 3, the table is "
                f"v{self._metadata.format_version}."
            )
        if required and value is None:
            raise InvalidSchemaError(
                f"Column {name!r} cannot be added as required without a default: rows written so "
                "far have no value for it."
            )
        self._append(
            parent,
            make_field(
                0,
                name,
                field_type,
                required=required,
                doc=doc,
                initial_default=value,
                write_default=value,
            ),
        )
        return self

    def drop_column(self, path: Path) -> UpdateSchema:
        """Drop a column; snapshots so far keep it.

        A column of the same name added later is another one.
        """
        node = self._existing(path)
        if node.parent is None or node.parent.kind != "struct":
            raise InvalidSchemaError(
                f"Column {node.path!r} is part of its "
                f"{node.parent.kind if node.parent else 'schema'}: drop that."
            )
        self._refuse_in_key(node.parent, "a field of a map key cannot be dropped")
        gone = {below.field_id: below.path for below in node.subtree()}
        for field_id, name in gone.items():
            self._refuse_if_used(field_id, name)
        if node.parent is self._root and len(self._root.children) == 1:
            raise InvalidSchemaError(
                f"Column {node.path!r} is the last one: a table has at least one column."
            )
        if len(node.parent.children) == 1:
            raise InvalidSchemaError(
                f"Column {node.path!r} is the last field of its struct: drop {node.parent.path!r}."
            )
        node.parent.remove(node)
        return self

    def rename_column(self, path: Path, new_name: str) -> UpdateSchema:
        """Give a column another name; it keeps its id and its place."""
        node = self._existing(path)
        if node.parent is None or node.parent.kind != "struct":
            raise InvalidSchemaError(
                f"{node.path!r} cannot be renamed: elements, keys and values have fixed names."
            )
        self._refuse_in_key(node.parent, "a field of a map key cannot be renamed")
        if new_name != node.name:
            self._check_new_name(node.parent, new_name)
            node.rename(new_name)
        return self

    def update_column(
        self,
        path: Path,
        type: object = None,  # noqa: A002
        *,
        required: bool | None = None,
        doc: str | None | _Unset = UNSET,
        default: Any = UNSET,
    ) -> UpdateSchema:
        """Change the type (promotion), optionality, comment or (v3) the default of later rows.

        Args:
            path: the column.
            type: the wider type, if it changes.
            required: False makes it optional; True is refused unless it is required already.
            doc: the new comment; None removes it.
            default: v3: the new write default; None removes it. What older rows got does not
                change.
        """
        node = self._existing(path)
        new_type = None if type is None else to_iceberg_type(type, node.path)
        self._refuse_in_key(node, "a map key cannot be changed")
        if new_type is not None:
            self._check_promotion(node, new_type)
        if required is not None:
            self._check_required(node, required)
        value: Any = (
            UNSET
            if isinstance(default, _Unset)
            else self._checked_default(node, new_type or node.type, default)
        )
        if new_type is not None and new_type != node.type:
            self._promote(node, new_type)
        if required is not None:
            node.required = required
        if not isinstance(doc, _Unset):
            node.doc = doc
        if value is not UNSET:
            node.write_default = value
        return self

    def make_optional(self, path: Path) -> UpdateSchema:
        """Allow nulls."""
        return self.update_column(path, required=False)

    def move_first(self, path: Path) -> UpdateSchema:
        """Put a column first in its struct."""
        node, siblings = self._movable(path)
        siblings.remove(node)
        siblings.insert(0, node)
        return self

    def move_before(self, path: Path, other: Path) -> UpdateSchema:
        """Put a column before another one of the same struct."""
        return self._move_beside(path, other, 0)

    def move_after(self, path: Path, other: Path) -> UpdateSchema:
        """Put a column after another one of the same struct."""
        return self._move_beside(path, other, 1)

    def set_identifier_fields(self, *paths: Path) -> UpdateSchema:
        """Name the columns that identify a row.

        They are required, no floats, and not inside lists, maps or optional structs.
        """
        self._identifiers = [self._existing(path).field_id for path in paths]
        return self

    def union_by_name(self, schema: Schema | pa.Schema) -> UpdateSchema:
        """Make room for data of another schema: add columns, promote types, allow nulls.

        Columns are matched by name, at every depth. Columns that only the table has stay as they
        are; new ones are optional. All of it or, with an error, none.
        """
        incoming = schema_from_arrow(schema) if isinstance(schema, pa.Schema) else schema
        trial = UpdateSchema(self._metadata)
        trial._adopt(self)
        trial._union(trial._root, incoming.fields)
        self._adopt(trial)
        return self

    def schema(self) -> Schema:
        """The schema as it is now; raises InvalidSchemaError if this table cannot have it."""
        schema_id = max(schema.schema_id for schema in self._metadata.schemas) + 1
        result = schema_of(self._root, self._identifiers, schema_id)
        check_names(result.as_struct())
        check_schema_for_version(result, self._metadata.format_version)
        return result

    def changes(self) -> Changes:
        """Requirements and updates; empty when nothing changed.

        A concurrent change of columns, spec or order conflicts.
        """
        schema = self.schema()
        if schema == self._base:
            return Changes()
        requirements: tuple[Requirement, ...] = (
            AssertTableUUID(self._metadata.table_uuid),
            AssertCurrentSchemaId(self._metadata.current_schema_id),
            AssertLastAssignedFieldId(self._metadata.last_column_id),
            AssertDefaultSpecId(self._metadata.default_spec_id),
            AssertDefaultSortOrderId(self._metadata.default_sort_order_id),
        )
        return Changes(requirements, (AddSchema(schema), SetCurrentSchema()))

    # Finding

    def _existing(self, path: Path) -> Node:
        node = find(self._root, path)
        if node is None or node is self._root:
            known = ", ".join(child.path for child in self._root.children[:30])
            raise InvalidSchemaError(f"There is no column {_text(path)!r}; there are {known}.")
        return node

    def _place(self, path: Path) -> tuple[Node, str]:
        """The struct that a new field goes into, and its name."""
        parts = path.split(".") if isinstance(path, str) else list(path)
        if not parts or not all(isinstance(part, str) and part for part in parts):
            raise InvalidSchemaError(f"{path!r} does not name a column.")
        parent = (
            find(self._root, parts[:-1] if not isinstance(path, str) else ".".join(parts[:-1]))
            if parts[:-1]
            else self._root
        )
        if parent is not None and parent.kind in ("list", "map"):
            parent = parent.children[-1]
        if parent is None or parent.kind != "struct":
            raise InvalidSchemaError(
                f"Column {_text(path)!r} cannot be added: there is no struct "
                f"{'.'.join(parts[:-1])!r}."
            )
        return parent, parts[-1]

    def _movable(self, path: Path) -> tuple[Node, list[Node]]:
        node = self._existing(path)
        if node.parent is None or node.parent.kind != "struct":
            raise InvalidSchemaError(f"{node.path!r} cannot be moved: only fields of a struct can.")
        self._refuse_in_key(node.parent, "a field of a map key cannot be moved")
        return node, node.parent.children

    def _move_beside(self, path: Path, other: Path, offset: int) -> UpdateSchema:
        node, siblings = self._movable(path)
        anchor = self._existing(other)
        if anchor.parent is not node.parent:
            raise InvalidSchemaError(
                f"{node.path!r} cannot be moved beside {anchor.path!r}: they are not in the same "
                "struct."
            )
        if anchor is not node:
            siblings.remove(node)
            siblings.insert(siblings.index(anchor) + offset, node)
        return self

    # Checking

    def _check_new_name(self, parent: Node, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidSchemaError(f"{name!r} does not name a column.")
        if parent.child(name) is not None:
            raise InvalidSchemaError(
                f"There is a column {'.'.join(filter(None, (parent.path, name)))!r} already."
            )

    def _refuse_in_key(self, node: Node, reason: str) -> None:
        for inside in (node, *node.enclosing()):
            if (
                inside.parent is not None
                and inside.parent.kind == "map"
                and inside is inside.parent.children[0]
            ):
                raise InvalidSchemaError(
                    f"Column {node.path!r}: {reason}, because equal keys would no longer be equal."
                )

    def _refuse_if_used(self, field_id: int, name: str) -> None:
        for spec in self._metadata.partition_specs:
            for field in spec.fields:
                if field.source_id == field_id and not isinstance(field.transform, VoidTransform):
                    raise InvalidSchemaError(
                        f"Column {name!r} cannot be dropped: partition field {field.name!r} (spec "
                        f"{spec.spec_id}) needs it."
                    )
        if any(field.source_id == field_id for field in self._metadata.sort_order().fields):
            raise InvalidSchemaError(
                f"Column {name!r} cannot be dropped: the sort order is made from it. Change that "
                "first."
            )
        if field_id in self._identifiers:
            raise InvalidSchemaError(
                f"Column {name!r} cannot be dropped: it identifies rows. Change the identifier "
                "fields first."
            )

    def _check_promotion(self, node: Node, new_type: IcebergType) -> None:
        if node.kind != "primitive":
            raise InvalidSchemaError(
                f"Column {node.path!r} is a {node.kind}: change the fields in it one by one."
            )
        obstacle = promotion_obstacle(node.type, new_type, self._metadata.format_version)
        if obstacle is not None:
            raise InvalidSchemaError(
                f"Column {node.path!r} cannot change from {node.type} to {new_type}: {obstacle}.",
                column=node.path,
            )
        for spec in self._metadata.partition_specs:
            for field in spec.fields:
                if field.source_id == node.field_id and changes_partition_values(
                    field, node.type, new_type
                ):
                    raise InvalidSchemaError(
                        f"Column {node.path!r} cannot change from {node.type} to {new_type}: "
                        f"partition field {field.name!r} of spec {spec.spec_id} would get other "
                        "values."
                    )

    def _check_required(self, node: Node, required: bool) -> None:
        if required and not node.required:
            raise InvalidSchemaError(
                f"Column {node.path!r} cannot become required: rows written so far may be null."
            )
        if not required:
            for identifier in self._identifiers:
                if any(below.field_id == identifier for below in node.subtree()):
                    raise InvalidSchemaError(
                        f"Column {node.path!r} cannot become optional: it identifies rows."
                    )

    def _checked_default(self, node: Node, field_type: IcebergType, default: Any) -> Any:
        if self._metadata.format_version < 3 and default is not None:
            raise InvalidSchemaError(f"Column {node.path!r}: defaults need format version 3.")
        if node.parent is None or node.parent.kind != "struct":
            raise InvalidSchemaError(
                f"{node.path!r} cannot have a default: only fields of a struct can."
            )
        return default_from_json(field_type, default)

    # Changing

    def _append(self, parent: Node, field: NestedField) -> None:
        field_id = self._next_id()
        field_type = fresh_type(field.field_type, self._next_id, {})
        check_names(field_type)
        parent.append(node_of(fresh_field(field, field_id, field_type), parent))

    def _next_id(self) -> int:
        if self._last_id >= MAX_COLUMN_ID:
            raise InvalidSchemaError(f"Table {self._metadata.location} has used up its column ids.")
        self._last_id += 1
        return self._last_id

    def _promote(self, node: Node, new_type: IcebergType) -> None:
        fresh = node_of(
            make_field(node.field_id, node.name, fresh_type(new_type, self._next_id, {})),
            node.parent,
        )
        node.type, node.children = fresh.type, fresh.children
        for child in node.children:
            child.parent = node
        node.initial_default = promoted_default(node.initial_default, new_type)
        node.write_default = promoted_default(node.write_default, new_type)

    def _adopt(self, other: UpdateSchema) -> None:
        self._root = node_of(
            make_field(-1, "", schema_of(other._root, (), 0).as_struct(), required=True), None
        )
        self._last_id = other._last_id
        self._identifiers = list(other._identifiers)

    def _union(self, parent: Node, fields: Sequence[NestedField]) -> None:
        for field in fields:
            node = parent.child(field.name)
            if node is None:
                self._refuse_in_key(parent, "a field cannot be added to a map key")
                self._append(parent, make_field(0, field.name, field.field_type, doc=field.doc))
            else:
                self._union_field(node, field)

    def _union_field(self, node: Node, field: NestedField) -> None:
        in_key = node.name == "key" and node.parent is not None and node.parent.kind == "map"
        if node.required and not field.required and not in_key:
            self._check_required(node, required=False)
            node.required = False
        if field.doc and field.doc != node.doc:
            node.doc = field.doc
        incoming = node_of(field, None)
        if node.kind != "primitive" and incoming.kind == node.kind:
            if node.kind == "struct":
                self._union(node, [_as_field(child) for child in incoming.children])
            else:
                for mine, theirs in zip(node.children, incoming.children, strict=True):
                    self._union_field(mine, _as_field(theirs))
            return
        version = self._metadata.format_version
        if node.type == field.field_type or is_narrower(
            field.field_type, node.type, max(version, 3)
        ):
            return
        if node.kind != "primitive":
            raise InvalidSchemaError(
                f"Column {node.path!r} is a {node.kind} in the table and {field.field_type} in "
                "the data.",
                column=node.path,
            )
        self._refuse_in_key(node, "a map key cannot be changed")
        self._check_promotion(node, field.field_type)
        self._promote(node, field.field_type)


def _as_field(node: Node) -> NestedField:
    return make_field(node.field_id, node.name, node.type, required=node.required, doc=node.doc)


def _text(path: Path) -> str:
    return path if isinstance(path, str) else ".".join(map(str, path))
