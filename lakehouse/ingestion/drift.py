"""Schema drift: what the data of some days asks of the raw table's columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lakehouse.errors import InvalidSchemaError
from lakehouse.ingestion.reading.typing.value_kinds import fits, inferred, promoted
from lakehouse.ingestion.source import (
    LANDING_FILE,
    LANDING_LINE,
    RESERVED_COLUMNS,
    UNBUCKETED_TYPES,
    Column,
    Source,
)

_LONGEST_NAME = 255
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")

Observed = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Drift:
    """Changes that make room for the data.

    Attributes:
        added: columns that the table does not have yet.
        promoted: columns whose type is promoted, with the new type.
    """

    added: tuple[Column, ...] = ()
    promoted: tuple[Column, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.promoted)


def usable_name(name: str) -> bool:
    """Whether a field name can be a column.

    It is printable, of 1 to 255 characters without dots and backquotes, and not one of the
    pipeline's own.
    """
    return (
        0 < len(name) <= _LONGEST_NAME
        and name.isprintable()
        and not set(name) & set(".`")
        and name not in (LANDING_FILE, LANDING_LINE)
    )


def resolve(
    source: Source, current: Sequence[Column], observed: Observed, taken: Collection[str] = ()
) -> Drift:
    """Decide on columns to add and types to promote.

    Args:
        source: its drift policy and event-time column.
        current: the source columns that the table has.
        observed: for each field of the data how many values of each kind it had.
        taken: names that no column may have: those of partition fields.

    A column with nothing but nulls is not added: nothing tells its type; nor is an alias of another
    column. Of names that differ only
    by case the one that came first is a column, and of more than `max_fields` columns the first;
    records with the others are quarantined, or keep them as `Source.rescue` says.
    """
    if source.drift == "quarantine":
        return Drift()
    types = {column.name: column.type for column in current}
    reserved = (*RESERVED_COLUMNS, *taken, *([source.rescue] if source.rescue else ()))
    folded = {name.casefold() for name in (*types, *reserved)}
    aliases = {alias for column in source.columns for alias in column.aliases}
    added: list[Column] = []
    promotions: list[Column] = []
    for name in observed:
        kinds = observed[name]
        if name in types:
            wider = widened(types[name], kinds)
            if wider != types[name]:
                promotions.append(Column(name, wider))
            continue
        if name in aliases:
            continue
        new_type = inferred(kinds)
        room = len(types) + len(added) < source.max_fields
        if room and new_type and usable_name(name) and name.casefold() not in folded:
            folded.add(name.casefold())
            if name in source.bucketed and new_type in UNBUCKETED_TYPES:
                new_type = "json"  # its text has a hash
            added.append(Column(name, new_type))
    return Drift(tuple(added), tuple(promotions))


def redeclared(source: Source, current: Sequence[Column]) -> Drift:
    """What the source's declared columns ask of a table that was made by earlier ones.

    A column that the table holds wider than declared, as drift makes it, stays so.

    Args:
        source: with the columns that it declares now.
        current: the source columns that the table has.

    Raises:
        InvalidSchemaError: a declared type is another one than the table's, and no promotion leads
            from the one to the other.
    """
    types = {column.name: column.type.replace(" ", "") for column in current}
    declared = [Column(c.name, c.type.replace(" ", "")) for c in source.columns]
    redeclaration = [c for c in declared if c.name in types and c.type != types[c.name]]
    for column in redeclaration:
        if not _wider(types[column.name], column.type) and not _wider(
            column.type, types[column.name]
        ):
            raise InvalidSchemaError(
                f"source {source.name!r} declares {column.name!r} as {column.type}, and "
                f"{source.table} holds it as {types[column.name]}: Iceberg promotes int to long, "
                "float to double and decimals to more digits, nothing else, so nothing was "
                f"written. Declare it as {types[column.name]} again; or drop the table (lakehouse "
                f'sql "DROP TABLE {source.table}") and materialize all of its days, which takes '
                "every landing file again",
                table=source.table,
                column=column.name,
            )
    return Drift(
        tuple(c for c in declared if c.name not in types and c.name not in RESERVED_COLUMNS),
        tuple(c for c in redeclaration if _wider(c.type, types[c.name])),
    )


def _wider(wide: str, narrow: str) -> bool:
    """Whether the specification promotes the narrow type to the wide one."""
    if (narrow, wide) in (("int", "long"), ("float", "double")):
        return True
    more, less = _DECIMAL.fullmatch(wide), _DECIMAL.fullmatch(narrow)
    return bool(more and less and more[2] == less[2] and int(more[1]) > int(less[1]))


def widened(column_type: str, kinds: Mapping[str, int]) -> str:
    """The column's type after all promotions that its values need and the specification allows."""
    for kind in sorted(kinds):
        if not fits(kind, column_type):
            column_type = promoted(column_type, kind) or column_type
    return column_type


def merge(observed: Sequence[Observed]) -> dict[str, dict[str, int]]:
    """The sum of several observations."""
    total: dict[str, dict[str, int]] = {}
    for fields in observed:
        for name, kinds in fields.items():
            into = total.setdefault(name, {})
            for kind, count in kinds.items():
                into[kind] = into.get(kind, 0) + count
    return total
