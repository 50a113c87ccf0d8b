"""What a table was made by, recorded with it, and what another definition changes of it.

A definition's layout is laid over the table's own only where the definition changed: what somebody
changed of the table by hand stays.
"""

from __future__ import annotations

import ast
import inspect
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any, Literal

import orjson
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UnknownType,
    UUIDType,
)

from lakehouse.errors import InvalidPropertyError, InvalidSchemaError
from lakehouse.evolution.type_promotion import is_narrower, promotion_obstacle
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table import Table

DEFINITION = "lakehouse.definition"
"""The table property that holds, as JSON, what a table was made by."""

LAYOUT_BY_AGE = TableProperties.maintenance_layout_by_age.name

Effect = Literal["create", "evolve", "from now on", "recompute", "keep", "harmless", "refuse"]
_PLAIN = (str, int, float, bool, bytes, date, timedelta, type(None))
_NUMBERS = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
_ALIKE: tuple[tuple[type[IcebergType], ...], ...] = (
    _NUMBERS,
    (TimestampType, TimestampNanoType),
    (TimestamptzType, TimestamptzNanoType),
    (StringType, UUIDType),
)


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """What a changed definition does to a table.

    Attributes:
        table: dotted name.
        what: the part of the definition, such as `column amount` or `event_time.zone`.
        before: as the table has it, or was made by; None: not at all.
        after: as the definition says; None: not at all.
        effect: `create` the table; `evolve` its columns or layout, for new files; what lands `from
            now on` is treated so; `recompute` what is there; `keep` what is there as it is;
            `harmless` to the table; `refuse`: a run fails, and writes nothing.
        said: the consequence, and what to do where a run is refused.
    """

    table: str
    what: str
    before: str | None
    after: str | None
    effect: Effect
    said: str

    def __str__(self) -> str:
        of = f"{self.table}: {self.what}"
        if self.before is None and self.after is None:
            return f"{of}: {self.said}"
        return f"{of} is {self.after or 'gone'}, it was {self.before or 'not there'}: {self.said}"

    def to_dict(self) -> dict[str, str | None]:
        """As JSON-able data."""
        return asdict(self)


def recorded(table: Table) -> dict[str, Any] | None:
    """What the table says it was made by; None: nothing.

    Raises:
        InvalidPropertyError: it says so in another form.
    """
    text = table.properties.get(DEFINITION)
    if text is None:
        return None
    try:
        definition = orjson.loads(text)
    except orjson.JSONDecodeError:
        definition = None
    if not isinstance(definition, dict):
        raise InvalidPropertyError(
            f"{table.name}: the property {DEFINITION} is no JSON object: {text[:100]!r}; remove it "
            f"with remove_properties({DEFINITION!r})",
            property=DEFINITION,
            table=table.name,
        )
    return definition


def as_property(definition: Mapping[str, Any]) -> dict[str, str]:
    """The property of a table that is made by a definition."""
    return {DEFINITION: orjson.dumps(definition, option=orjson.OPT_SORT_KEYS).decode()}


def record(table: Table, definition: Mapping[str, Any]) -> None:
    """Let the table say that it is as the definition has it; no commit where it says so."""
    wanted = as_property(definition)
    if table.properties.get(DEFINITION) != wanted[DEFINITION]:
        table.set_properties(wanted)


def code_of(function: Callable[..., object]) -> str:
    """A function's code without comments and layout, with the plain values that it closes over.

    Empty where there is no source to tell it by. Functions that it calls are not part of it.
    """
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
    with suppress(SyntaxError):  # a lambda amid a call: as it is written
        text = ast.dump(ast.parse(text))
    closed = inspect.getclosurevars(function).nonlocals
    plain = {name: value for name, value in closed.items() if isinstance(value, _PLAIN)}
    return f"{text}{sorted(plain.items())!r}"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a definition wants new files to be laid out.

    Attributes:
        partition_by: partition terms; None: the definition does not say.
        sort_by: sort terms; None: the definition does not say.
        layout_by_age: the table property of that name; None: the definition does not say.
    """

    partition_by: Sequence[str] | None = None
    sort_by: Sequence[str] | None = None
    layout_by_age: str | None = None

    def definition(self) -> dict[str, list[str]]:
        """What is recorded of it."""
        aged = self.layout_by_age
        parts = {
            "partition_by": self.partition_by,
            "sort_by": self.sort_by,
            "layout_by_age": aged if aged is None else _steps(aged),
        }
        return {name: list(terms) for name, terms in parts.items() if terms is not None}

    def properties(self) -> dict[str, str]:
        """Properties of a table that is made so."""
        aged = {LAYOUT_BY_AGE: self.layout_by_age} if self.layout_by_age else {}
        return as_property(self.definition()) | aged

    def changes(self, table: Table) -> list[DefinitionChange]:
        """What becomes of the table's partition spec and sort order.

        Raises:
            InvalidPartitionSpecError: the table cannot be laid out so.
        """
        definition = recorded(table) or {}
        changes = []
        if self._changed("partition_by", self.partition_by, definition):
            update = UpdatePartitionSpec(table.metadata)
            update.set(*self.partition_by or ())
            if update.spec().spec_id != table.metadata.default_spec_id:
                changes.append(self._change(table, "partition_by", _terms_of(table)))
        if self._changed("sort_by", self.sort_by, definition):
            order = UpdateSortOrder(table.metadata)
            _lay_order(order, self.sort_by or ())
            if order.sort_order().order_id != table.metadata.default_sort_order_id:
                fields = table.metadata.sort_order().fields
                before = ", ".join(f"{_column(table, f.source_id)} {f.direction}" for f in fields)
                changes.append(self._change(table, "sort_by", before))
        steps = None if self.layout_by_age is None else _steps(self.layout_by_age)
        before = table.properties.get(LAYOUT_BY_AGE, "")
        if self._changed("layout_by_age", steps, definition) and before != self.layout_by_age:
            meaning = "compaction moves closed periods"
            if not steps:
                meaning = "compaction brings closed periods back to the table's partitions"
            after = self.layout_by_age or "nothing"
            changes.append(
                DefinitionChange(
                    table.name, "layout_by_age", before or "nothing", after, "evolve", meaning
                )
            )
        return changes

    def lay(self, table: Table) -> list[DefinitionChange]:
        """Change the table's spec and order to it; returns what was changed.

        Raises:
            InvalidPartitionSpecError: the table cannot be laid out so.
        """
        changes = self.changes(table)
        for change in changes:
            if change.what == "partition_by":
                with table.update_partition_spec() as spec:
                    spec.set(*self.partition_by or ())
            elif change.what == "layout_by_age":
                if self.layout_by_age:
                    table.set_properties({LAYOUT_BY_AGE: self.layout_by_age})
                else:
                    table.remove_properties(LAYOUT_BY_AGE)
            else:
                with table.update_sort_order() as order:
                    _lay_order(order, self.sort_by or ())
        return changes

    @staticmethod
    def _changed(name: str, terms: Sequence[str] | None, before: Mapping[str, Any]) -> bool:
        if terms is None:
            return False
        # a table that others made keeps its own where the definition names none
        return before[name] != list(terms) if name in before else bool(terms)

    def _change(self, table: Table, name: str, before: str) -> DefinitionChange:
        after = ", ".join(getattr(self, name))
        done = "partitioned" if name == "partition_by" else "sorted"
        return DefinitionChange(
            table.name,
            name,
            before or "nothing",
            after or "nothing",
            "evolve",
            f"new files are {done} so; files that are there stay as they are and are read as "
            "before, until compaction rewrites them",
        )


def _steps(text: str) -> list[str]:
    return [step.strip() for step in text.split(";") if step.strip()]


def _lay_order(update: UpdateSortOrder, terms: Sequence[str]) -> None:
    if terms:
        update.set(*terms)
    else:
        update.clear()


def _terms_of(table: Table) -> str:
    return ", ".join(
        str(term.transform)
        if (column := _column(table, term.source_id)) is None
        else f"{term.transform}({column})"
        for term in table.spec().fields
        if not isinstance(term.transform, VoidTransform)
    )


def _column(table: Table, field_id: int) -> str | None:
    return table.schema().find_column_name(field_id)


def rename_command(table: str, name: str, new: str) -> str:
    """The shell command that renames a column of a table.

    >>> print(rename_command("raw.shop", "paid", "is paid"))
    lakehouse sql 'ALTER TABLE raw.shop RENAME COLUMN "paid" TO "is paid"'
    """
    old, new = ('"' + each.replace('"', '""') + '"' for each in (name, new))
    return f"lakehouse sql {shlex.quote(f'ALTER TABLE {table} RENAME COLUMN {old} TO {new}')}"


def output_changes(table: Table, schema: Schema) -> list[DefinitionChange]:
    """What becomes of a table's columns when it is computed with others.

    Args:
        table: as it is.
        schema: the columns of what is computed now.
    """
    current = {field.name: field for field in table.schema().fields}
    new = {field.name: field for field in schema.fields}
    added = [field for name, field in new.items() if name not in current]
    gone = [field for name, field in current.items() if name not in new]
    changes = [
        _column_change(table, field.name, None, field.field_type, "evolve", "it is added")
        for field in added
    ]
    for field in gone:
        meaning = "it is kept, and null in whatever is computed from now on"
        alike = [other.name for other in added if other.field_type == field.field_type]
        if len(alike) == 1 and len(gone) == 1:
            meaning += (
                f"; if {alike[0]} is its new name, rename it before the next run: "
                f"{rename_command(table.name, field.name, alike[0])}"
            )
        if field.required and field.write_default is None:
            meaning = (
                "it is required, so nothing can be written: compute it, or drop it with "
                f"update_schema().drop_column({field.name!r})"
            )
        elif field.write_default is not None:
            meaning = meaning.replace("null", f"{field.write_default!r}, its default,", 1)
        effect: Effect = "refuse" if field.required and field.write_default is None else "keep"
        changes.append(_column_change(table, field.name, field.field_type, None, effect, meaning))
    for name in current.keys() & new.keys():
        changes += _type_change(table, current[name], new[name].field_type)
    return sorted(changes, key=lambda change: change.what)


def make_room(table: Table, schema: Schema, *, partial: bool = False) -> list[DefinitionChange]:
    """Add columns and promote types so that the table holds what is computed now.

    Args:
        table: it is moved to the version that has them.
        schema: the columns of what is computed now.
        partial: whether columns that are not computed keep the values that they have, as those of
            an upsert do.

    Returns:
        What was changed, and what stays though it is not computed any more.

    Raises:
        InvalidSchemaError: a column's type is another one, which no promotion leads to.
    """
    changes = output_changes(table, schema)
    if partial:
        changes = [change for change in changes if change.after is not None]
    for change in changes:
        if change.effect == "refuse":
            raise InvalidSchemaError(str(change), table=table.name)
    evolved = {c.what.removeprefix("column ") for c in changes if c.effect == "evolve"}
    if evolved:
        required = {field.name for field in table.schema().fields if field.required}
        fields = [
            field.model_copy(update={"required": field.name in required})
            for field in schema.fields
            if field.name in evolved
        ]
        with table.update_schema() as update:
            update.union_by_name(Schema(*fields))
    return changes


def _type_change(table: Table, mine: NestedField, wanted: IcebergType) -> list[DefinitionChange]:
    kind, version = mine.field_type, table.metadata.format_version
    if isinstance(wanted, UnknownType) or is_narrower(wanted, kind, version):
        return []
    if not kind.is_primitive and type(kind) is type(wanted):
        try:
            wider = mine.model_copy(update={"field_type": wanted})
            union = UpdateSchema(table.metadata).union_by_name(Schema(wider))
            if not union.changes():
                return []
            meaning = "what it contains is added and promoted"
            return [_column_change(table, mine.name, kind, wanted, "evolve", meaning)]
        except InvalidSchemaError as error:
            obstacle: str | None = error.message
    elif is_narrower(kind, wanted, version):
        return [_column_change(table, mine.name, kind, wanted, "evolve", "it is promoted")]
    elif any(isinstance(kind, group) and isinstance(wanted, group) for group in _ALIKE):
        meaning = f"it stays {kind}; a value that does not fit fails the run"
        return [_column_change(table, mine.name, kind, wanted, "keep", meaning)]
    else:
        obstacle = promotion_obstacle(kind, wanted, version)
    meaning = (
        f"{obstacle}; nothing is written. Compute {mine.name} as {kind}, give the column another "
        f'name, or drop the table (lakehouse sql "DROP TABLE {table.name}") and materialize all '
        "of it"
    )
    return [_column_change(table, mine.name, kind, wanted, "refuse", meaning)]


def _column_change(
    table: Table,
    name: str,
    before: IcebergType | None,
    after: IcebergType | None,
    effect: Effect,
    meaning: str,
) -> DefinitionChange:
    texts = [None if kind is None else str(kind) for kind in (before, after)]
    return DefinitionChange(table.name, f"column {name}", texts[0], texts[1], effect, meaning)


def tell(changes: Sequence[DefinitionChange], say: Callable[[str], None]) -> None:
    """Say each change in a line of its own."""
    for change in changes:
        say(f"definition changed: {change}")
