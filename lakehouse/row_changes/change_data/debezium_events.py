"""Events of Debezium as rows of changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from lakehouse.errors import InvalidInputError, InvalidSchemaError
from lakehouse.row_changes.change_data.connect_types import (
    UNKNOWN,
    ConnectType,
    arrow_type,
    counted,
    row_types,
)
from lakehouse.row_changes.change_data.unchanged_values import is_placeholder, left_out

OP = "__op"
_ROW_OPS = ("c", "u", "r", "d")


def debezium_changes(
    events: object, keys: Sequence[str], *, add_fields: Sequence[str] = ()
) -> pa.Table:
    """Rows for `Table.apply_changes` from events of Debezium, in their order.

    >>> events = [
    ...     '{"op": "c", "after": {"id": 1, "name": "Ada"}, "source": {"lsn": 10}}',
    ...     '{"op": "d", "before": {"id": 1}, "after": null, "source": {"lsn": 11}}',
    ... ]
    >>> changes = lh.debezium_changes(events, keys=["id"], add_fields=["source.lsn"])
    >>> changes.to_pylist()[1]
    {'id': 1, 'name': None, '__op': 'd', '__source_lsn': 11}
    >>> users = lake.create_table("raw.users", pa.schema({"id": pa.int64(), "name": pa.string()}))
    >>> users.apply_changes(
    ...     changes, keys=["id"], sequence_by=["__source_lsn"], delete_when="__op = 'd'"
    ... ).superseded
    1

    Columns are those of `after`, then `__op` and the requested fields, named as Debezium's
    `ExtractNewRecordState` names them. Events with a schema (`schemas.enable`) have its types:
    decimals, dates, times. Without one types follow the values: an integer is a long, a time the
    number that it is. Tombstones (null) are left out. An event that changes the key of its row is
    two changes: a delete of the old key comes before the row with the new one.

    Args:
        events: values of messages as JSON: text, bytes or parsed; or Arrow data with the columns
            of the envelope, `before` and `after` as structs, as readers make it of Avro.
        keys: columns of the key.
        add_fields: further fields of the envelope, such as `source.lsn` or `ts_ms`.

    Raises:
        InvalidInputError: an event that is none of Debezium, lacks its row or its key, empties the
            table (`t`), or leaves out a value that did not change (TOAST in PostgreSQL).
        InvalidSchemaError: values of a column that have no type in common.
    """
    rows = _Rows()
    for number, envelope, types in _envelopes(events):
        op = envelope.get("op")
        if op not in _ROW_OPS:
            raise _refused(number, _why_not(op))
        added = {f"__{path.replace('.', '_')}": _at(envelope, path) for path in add_fields}
        before = _row_of(envelope, "before", number)
        after = _row_of(envelope, "after", number)
        if op == "d":
            old = _key_of(before, keys, number, "before")
            rows.add({**old, OP: "d", **added}, types, number)
            continue
        new = _key_of(after, keys, number, "after")
        missing = [name for name, value in after.items() if is_placeholder(value)]
        if missing:
            raise _unchanged(number, missing[0])
        held = {key: before.get(key) for key in keys} if op == "u" else new
        if held != new and None not in held.values():
            rows.add({**held, OP: "d", **added}, types, number)
        rows.add({**after, OP: op, **added}, types, number)
    return rows.table((OP, *(f"__{path.replace('.', '_')}" for path in add_fields)))


@dataclass(slots=True)
class _Rows:
    """Rows whose columns and types grow as rows come."""

    rows: list[Mapping[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    types: dict[str, pa.DataType] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any], types: Mapping[str, ConnectType], number: int) -> None:
        """A row, as it is in the event of some number. Raises InvalidInputError."""
        made = {}
        for name, value in row.items():
            kind = types.get(name, UNKNOWN)
            try:
                made[name] = None if value is None else kind.convert(value)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise _refused(
                    number, f"has {value!r} as {name!r}, which its schema does not allow: {error}"
                ) from error
            self.names.setdefault(name)
        for name, kind in types.items():
            self.names.setdefault(name)
            if kind.arrow is not None and self.types.get(name) != kind.arrow:
                self.types[name] = _common(name, self.types.get(name, kind.arrow), kind.arrow)
        self.rows.append(made)
        self.numbers.append(number)

    def table(self, last: Sequence[str]) -> pa.Table:
        names = [*(name for name in self.names if name not in last), *last]
        columns = {}
        for name in names:
            values = [row.get(name) for row in self.rows]
            try:
                columns[name] = pa.array(values, self.types.get(name))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise InvalidSchemaError(
                    f"values of {name!r} in the events have no type in common: {error}",
                    column=name,
                ) from error
            row = None if name in last else left_out(columns[name])
            if row is not None:
                raise _unchanged(self.numbers[row], name)
        return pa.table(columns)


def _common(name: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    both = [pa.schema([(name, kind)]) for kind in (one, other)]
    try:
        return pa.unify_schemas(both, promote_options="permissive").field(name).type
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidSchemaError(
            f"column {name!r} is {one} in some events and {other} in others: apply them apart",
            column=name,
        ) from error


def _envelopes(
    events: object,
) -> Iterator[tuple[int, Mapping[str, Any], Mapping[str, ConnectType]]]:
    """Events that are no tombstones: number, envelope, types of its row as far as they are known.

    Raises InvalidInputError.
    """
    if hasattr(events, "__arrow_c_stream__"):
        yield from _arrow_envelopes(events)
        return
    if not isinstance(events, Iterable) or isinstance(events, str | bytes | Mapping):
        raise InvalidInputError(
            f"events are several messages, not {type(events).__name__}: give a list of them"
        )
    schema: Any = None
    types: dict[str, ConnectType] = {}
    for number, event in enumerate(events):
        document = _parsed(event, number) if isinstance(event, str | bytes) else event
        if document is None:
            continue
        if not isinstance(document, Mapping):
            raise _refused(number, f"is {type(document).__name__}, no object")
        if "payload" not in document:
            yield number, document, {}
            continue
        if document.get("schema") != schema:
            schema = document["schema"]
            types = {} if schema is None else row_types(schema)
        if document["payload"] is not None:
            if not isinstance(document["payload"], Mapping):
                raise _refused(number, "has a payload that is no object")
            yield number, document["payload"], types


def _arrow_envelopes(
    events: Any,
) -> Iterator[tuple[int, Mapping[str, Any], Mapping[str, ConnectType]]]:
    table = pa.RecordBatchReader.from_stream(events).read_all()
    row = next(
        (
            table.schema.field(side).type
            for side in ("after", "before")
            if side in table.column_names
        ),
        None,
    )
    if row is None or not pa.types.is_struct(row) or "op" not in table.column_names:
        raise InvalidInputError(
            "Arrow data of events has the columns of Debezium's envelope: op, and before and after "
            f"as structs; these are {', '.join(table.column_names)}"
        )
    types = {field.name: arrow_type(field.type) for field in row}
    plain = [
        field.with_type(counted(field.type)) if field.name in ("before", "after") else field
        for field in table.schema
    ]
    for number, envelope in enumerate(table.cast(pa.schema(plain)).to_pylist()):
        if any(envelope.get(member) is not None for member in ("op", "before", "after")):
            yield number, envelope, types


def _parsed(event: str | bytes, number: int) -> Any:
    try:
        return orjson.loads(event) if event else None
    except orjson.JSONDecodeError as error:
        raise _refused(number, f"is no JSON: {error}") from error


def _key_of(row: Mapping[str, Any], keys: Sequence[str], number: int, side: str) -> dict[str, Any]:
    if not row:
        raise _refused(number, f"has no {side!r}: its row is not known")
    missing = [key for key in keys if row.get(key) is None]
    if missing:
        raise _refused(number, f"has no value of the key {missing[0]!r} in {side!r}")
    return {key: row[key] for key in keys}


def _at(envelope: Mapping[str, Any], path: str) -> Any:
    value: Any = envelope
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _row_of(envelope: Mapping[str, Any], side: str, number: int) -> Mapping[str, Any]:
    row = envelope.get(side) or {}
    if not isinstance(row, Mapping):
        raise _refused(
            number,
            f"has a {side!r} that is {type(row).__name__}, no object: documents of MongoDB are "
            "flattened first (ExtractNewDocumentState)",
        )
    return row


def _unchanged(number: int, name: str) -> InvalidInputError:
    return _refused(
        number,
        f"leaves out the value of {name!r}, which did not change: have the source send whole rows "
        "(in PostgreSQL REPLICA IDENTITY FULL)",
    )


def _why_not(op: object) -> str:
    if op == "t":
        return "empties the table (truncate): delete its rows, and apply the events after it"
    if op is None:
        return "has no op: rows that are flattened already go to apply_changes as they are"
    return f"has the op {op!r}, which changes no row"


def _refused(number: int, why: str) -> InvalidInputError:
    return InvalidInputError(f"event {number} {why}", event=number)
