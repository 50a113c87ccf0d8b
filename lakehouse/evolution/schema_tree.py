"""A schema that can be changed in place, and finding columns in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from lakehouse.errors import InvalidSchemaError
from lakehouse.spec.schema.iceberg_types import child_fields
from lakehouse.spec.schema.schema_json import make_field

Path = str | Sequence[str]


@dataclass(eq=False)
class Node:
    """A field. `type` describes it completely unless it is nested; then `kind` and `children` do.

    Attributes:
        kind: "struct", "list", "map" or "primitive".
        children: of a struct its fields, of a list its element, of a map its key and value.
        parent: None for the root struct.
    """

    field_id: int
    name: str
    type: IcebergType
    required: bool = False
    doc: str | None = None
    initial_default: Any = None
    write_default: Any = None
    children: list[Node] = field(default_factory=list)
    parent: Node | None = None
    _named: dict[str, Node] | None = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """Which kind of type the node has."""
        if isinstance(self.type, StructType):
            return "struct"
        if isinstance(self.type, ListType):
            return "list"
        return "map" if isinstance(self.type, MapType) else "primitive"

    @property
    def path(self) -> str:
        """Full dotted name."""
        names = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            names.append(node.name)
            node = node.parent
        return ".".join(reversed(names))

    def subtree(self) -> Iterator[Node]:
        """The node and everything below it."""
        yield self
        for child in self.children:
            yield from child.subtree()

    def enclosing(self) -> Iterator[Node]:
        """The parents, innermost first, without the root."""
        node = self.parent
        while node is not None and node.parent is not None:
            yield node
            node = node.parent

    def child(self, name: str) -> Node | None:
        """The field of this name."""
        if self._named is None:
            self._named = {child.name: child for child in reversed(self.children)}
        return self._named.get(name)

    def append(self, child: Node) -> None:
        """Put a field behind the children."""
        self.children.append(child)
        if self._named is not None:
            self._named[child.name] = child

    def remove(self, child: Node) -> None:
        """Take a field out of the children."""
        self.children.remove(child)
        if self._named is not None:
            del self._named[child.name]

    def rename(self, name: str) -> None:
        """Give the node another name."""
        named = None if self.parent is None else self.parent._named  # noqa: SLF001 - of the same class
        if named is not None:
            del named[self.name]
            named[name] = self
        self.name = name


def node_of(source: NestedField, parent: Node | None) -> Node:
    """The tree of a field and everything below it."""
    node = Node(
        source.field_id,
        source.name,
        source.field_type,
        source.required,
        source.doc,
        source.initial_default,
        source.write_default,
        parent=parent,
    )
    node.children = [node_of(child, node) for child in child_fields(source.field_type)]
    return node


def root_of(schema: Schema) -> Node:
    """The tree of a schema; the root stands for its struct and has no name."""
    return node_of(make_field(-1, "", schema.as_struct(), required=True), None)


def type_of(node: Node) -> IcebergType:
    """The type that a node and what is below it describe now."""
    if node.kind == "struct":
        return StructType(*(field_of(child) for child in node.children))
    if node.kind == "list":
        (element,) = node.children
        return ListType(
            element_id=element.field_id,
            element_type=type_of(element),
            element_required=element.required,
        )
    if node.kind == "map":
        key, value = node.children
        return MapType(key.field_id, type_of(key), value.field_id, type_of(value), value.required)
    return node.type


def field_of(node: Node) -> NestedField:
    """The field that a node describes now."""
    return make_field(
        node.field_id,
        node.name,
        type_of(node),
        required=node.required,
        doc=node.doc,
        initial_default=node.initial_default,
        write_default=node.write_default,
    )


def schema_of(root: Node, identifier_field_ids: Sequence[int], schema_id: int) -> Schema:
    """The schema that a tree describes now.

    Raises InvalidSchemaError for identifier fields that cannot identify a row.
    """
    try:
        return Schema(
            *(field_of(child) for child in root.children),
            schema_id=schema_id,
            identifier_field_ids=list(identifier_field_ids),
        )
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        for node in (below for child in root.children for below in child.subtree()):
            reason = reason.replace(f"field {node.field_id} ", f"field {node.path!r} ")
        raise InvalidSchemaError(f"The schema cannot be: {reason}.") from error


def find(root: Node, path: Path) -> Node | None:
    """The node at a path.

    A text is split at its dots, where no name with dots fits; a sequence gives the names one by
    one. `element`, `key` and `value` step into lists and maps, and may be left out in front of a
    field of a struct inside.
    """
    parts = path.split(".") if isinstance(path, str) else list(path)
    return _find(root, parts, splittable=isinstance(path, str))


def _find(node: Node, parts: list[str], *, splittable: bool) -> Node | None:
    if not parts:
        return node
    longest = len(parts) if splittable and node.kind == "struct" else 1
    for length in range(1, longest + 1):
        child = node.child(".".join(parts[:length]))
        if child is not None:
            node_below = _find(child, parts[length:], splittable=splittable)
            if node_below is not None:
                return node_below
    if node.kind in ("list", "map") and node.children[-1].kind == "struct":
        return _find(node.children[-1], parts, splittable=splittable)
    return None
