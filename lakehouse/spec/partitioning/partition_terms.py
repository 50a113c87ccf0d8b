"""Partition specs and sort orders as JSON (spec: Appendix C) and as terms, `day(ts)`."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, unquote

import numpy as np
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
    parse_transform,
)
from pyiceberg.types import DateType, NestedField, StructType, UnknownType

from lakehouse.errors import CorruptMetadataError, InvalidInputError, InvalidPartitionSpecError
from lakehouse.spec.json_fields import (
    as_int,
    optional_int,
    require_int,
    require_list,
    require_object,
    require_str,
)
from lakehouse.spec.partitioning.compatibility import check_sort_order, check_spec
from lakehouse.spec.partitioning.sort_order import (
    UNSORTED_SORT_ORDER_ID,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from lakehouse.spec.schema.iceberg_types import fields_of

_PARAMETRIC = re.compile(r"(bucket|truncate)\s*\[\s*(\d{1,10})\s*\]")
_WITHOUT_PARAMETER = frozenset({"identity", "void", "year", "month", "day", "hour"})
_MAX_INT = 2**31 - 1


def spec_to_json(spec: PartitionSpec) -> dict[str, Any]:
    """The JSON object of the spec."""
    return {
        "spec-id": spec.spec_id,
        "fields": [partition_field_to_json(field) for field in spec.fields],
    }


def partition_field_to_json(field: PartitionField) -> dict[str, Any]:
    """The JSON object of one partition field."""
    return {
        "source-id": field.source_id,
        "field-id": field.field_id,
        "name": field.name,
        "transform": transform_name(field.transform),
    }


def spec_from_json(document: Any, where: str = "partition-spec") -> PartitionSpec:
    """Read the spec's JSON object; raises CorruptMetadataError.

    Field ids that v1 left out count from 1000.
    """
    fields = _fields(document, where)
    return partition_fields_from_json(fields, optional_int(document, "spec-id", where) or 0, where)


def partition_fields_from_json(fields: list[Any], spec_id: int, where: str) -> PartitionSpec:
    """Read a list of partition fields, the form of v1's `partition-spec`."""
    parsed: list[PartitionField] = []
    for position, document in enumerate(fields):
        here = f"{where}.fields[{position}]"
        field_id = optional_int(document, "field-id", here)
        transform, source_id = _transform_and_source(document, here)
        parsed.append(
            PartitionField(
                source_id=source_id,
                field_id=PARTITION_FIELD_ID_START + position if field_id is None else field_id,
                transform=transform,
                name=require_str(document, "name", here),
            )
        )
    if len({field.field_id for field in parsed}) != len(parsed):
        raise CorruptMetadataError(f"{where}: two fields have the same field-id.")
    return PartitionSpec(*parsed, spec_id=spec_id)


def sort_order_to_json(order: SortOrder) -> dict[str, Any]:
    """The JSON object of the spec."""
    fields = [
        {
            "transform": transform_name(field.transform),
            "source-id": field.source_id,
            "direction": field.direction.value,
            "null-order": field.null_order.value,
        }
        for field in order.fields
    ]
    return {"order-id": order.order_id, "fields": fields}


def sort_order_from_json(document: Any, where: str = "sort-order") -> SortOrder:
    """Read the JSON object of the spec; raises CorruptMetadataError naming `where`."""
    parsed: list[SortField] = []
    for position, item in enumerate(_fields(document, where)):
        here = f"{where}.fields[{position}]"
        transform, source_id = _transform_and_source(item, here)
        direction = require_str(item, "direction", here).lower()
        null_order = require_str(item, "null-order", here).lower()
        if direction not in ("asc", "desc") or null_order not in ("nulls-first", "nulls-last"):
            raise CorruptMetadataError(
                f"{here}: unknown direction {direction!r} or null-order {null_order!r}."
            )
        parsed.append(
            SortField(source_id, transform, SortDirection(direction), NullOrder(null_order))
        )
    return SortOrder(tuple(parsed), order_id=require_int(document, "order-id", where))


def new_sort_order_from_json(document: Any, where: str = "sort-order") -> SortOrder:
    """The same of one that is to be added, whose id may be left out: whoever adds it gives one.

    >>> new_sort_order_from_json({"fields": []}).order_id
    0
    """
    order_id = 1 if _fields(document, where) else UNSORTED_SORT_ORDER_ID
    return sort_order_from_json({"order-id": order_id, **document}, where)


def transform_name(transform: Transform[Any, Any]) -> str:
    """The transform's string in the spec, also of one we do not know."""
    # No other access.
    return (
        transform._transform  # noqa: SLF001
        if isinstance(transform, UnknownTransform)
        else str(transform)
    )


def transform_from_string(text: str) -> Transform[Any, Any]:
    """The transform that a string of the spec names; UnknownTransform for one we do not know.

    Raises ValueError for a parameter that is out of range.
    """
    if text in _WITHOUT_PARAMETER:
        return parse_transform(text)
    match = _PARAMETRIC.fullmatch(text)
    if match is None:
        return UnknownTransform(text)
    parameter = int(match[2])
    if not 0 < parameter <= _MAX_INT:
        raise ValueError(f"{text!r}: the parameter must be between 1 and {_MAX_INT}.")
    return BucketTransform(parameter) if match[1] == "bucket" else TruncateTransform(parameter)


def _fields(document: Any, where: str) -> list[Any]:
    return require_list(require_object(document, where).get("fields"), f"{where}.fields")


def _transform_and_source(document: Any, where: str) -> tuple[Transform[Any, Any], int]:
    """The transform and its source column.

    A transform of several columns counts as unknown, with the first of them.
    """
    text = require_str(document, "transform", where)
    sources = require_object(document, where).get("source-ids")
    source = document.get("source-id")
    if source is not None:
        ids = [as_int(source, f"{where}.source-id")]
    else:
        ids = [
            as_int(item, f"{where}.source-ids")
            for item in require_list(sources, f"{where}.source-id")
        ]
    if not ids:
        raise CorruptMetadataError(f"{where}: a field needs a source column.")
    if len(ids) > 1:
        return UnknownTransform(text), ids[0]
    try:
        return transform_from_string(text), ids[0]
    except ValueError as error:
        raise CorruptMetadataError(f"{where}: {error}") from error


MAX_FOLDER_NAME = 200

_CALL = re.compile(r"([A-Za-z]\w*)\s*\((.*)\)", re.DOTALL)
_ALIAS = re.compile(r"(.*?)\s+as\s+(?:`([^`]+)`|([^\s`()]+))", re.IGNORECASE | re.DOTALL)
_ORDERED = re.compile(
    r"(.*?)(?:\s+(asc|desc))?(?:\s+nulls[\s-]+(first|last))?", re.IGNORECASE | re.DOTALL
)
_PLAIN: dict[str, Transform[Any, Any]] = {
    "identity": IdentityTransform(),
    "void": VoidTransform(),
    "alwaysnull": VoidTransform(),
    "year": YearTransform(),
    "years": YearTransform(),
    "month": MonthTransform(),
    "months": MonthTransform(),
    "day": DayTransform(),
    "days": DayTransform(),
    "date": DayTransform(),
    "hour": HourTransform(),
    "hours": HourTransform(),
}
_TIME = (YearTransform, MonthTransform, DayTransform, HourTransform)


@dataclass(frozen=True, slots=True)
class Term:
    """A transform of a column.

    Attributes:
        column: full dotted name.
        source_id: its id.
        transform: what is done to it.
        alias: name given with `as`, if any.
    """

    column: str
    source_id: int
    transform: Transform[Any, Any]
    alias: str | None = None

    def default_name(self) -> str:
        """Iceberg's name of such a field in a new table: `ts_day`, `id_bucket`, `zip_trunc`."""
        return self.alias or self.column + _suffix(self.transform)

    def evolved_name(self) -> str:
        """Iceberg's name of such a field added later: with its parameter, as `id_bucket_16`."""
        if self.alias:
            return self.alias
        parameter = ""
        if isinstance(self.transform, BucketTransform):
            parameter = f"_{self.transform.num_buckets}"
        elif isinstance(self.transform, TruncateTransform):
            parameter = f"_{self.transform.width}"
        return self.column + _suffix(self.transform) + parameter

    def dedup_key(self) -> tuple[int, str]:
        """A key, equal for terms that exclude each other in a spec: all times of a column are."""
        return self.source_id, "time" if isinstance(self.transform, _TIME) else str(self.transform)


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether a spec puts all rows into one partition: it has no fields, or void ones alone.

    Fields are never taken out of a v1 spec; `void` takes their place.
    """
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def parse_term(text: str, schema: Schema) -> Term:
    """Read a term: `day(ts)`, `bucket(16, user_id)`, `truncate(4, zip)`, `x`, `void(x) as name`.

    Columns are dotted paths; backticks quote a name as it is.

    Raises:
        InvalidPartitionSpecError: it does not parse, or names a column that the schema does not
            have.
    """
    if not isinstance(text, str):
        raise InvalidPartitionSpecError(
            f"A partition or sort term must be text such as 'day(ts)', not {text!r}."
        )
    body, alias = text.strip(), None
    if (match := _ALIAS.fullmatch(body)) is not None:
        body, alias = match[1].strip(), match[2] or match[3]
    call = _CALL.fullmatch(body)
    if call is None:
        return _term(body, IdentityTransform(), alias, text, schema)
    function, arguments = call[1].lower(), _arguments(call[2])
    if function in _PLAIN:
        if len(arguments) != 1:
            raise InvalidPartitionSpecError(f"{text!r}: {function} takes one column.")
        return _term(arguments[0], _PLAIN[function], alias, text, schema)
    if function not in ("bucket", "truncate"):
        known = "identity, year, month, day, hour, bucket(N, column), truncate(W, column), void"
        raise InvalidPartitionSpecError(
            f"{text!r}: there is no transform {call[1]!r}; known are {known}."
        )
    numbers = [argument for argument in arguments if argument.isdecimal()]
    columns = [argument for argument in arguments if not argument.isdecimal()]
    if len(numbers) != 1 or len(columns) != 1:
        raise InvalidPartitionSpecError(f"{text!r}: {function} takes a number and a column.")
    try:
        transform = transform_from_string(f"{function}[{numbers[0]}]")
    except ValueError as error:
        raise InvalidPartitionSpecError(f"{text!r}: {error}") from error
    if not isinstance(transform, (BucketTransform, TruncateTransform)):
        raise InvalidPartitionSpecError(f"{text!r}: {numbers[0]} is out of range.")
    return _term(columns[0], transform, alias, text, schema)


def parse_partition_spec(terms: Sequence[str], schema: Schema) -> PartitionSpec:
    """A partition spec of terms, with Iceberg's names for the fields, and field ids from 1000.

    Raises:
        InvalidPartitionSpecError: a term that does not parse or apply to its column, a redundant
            one, or a name that is taken.
    """
    if isinstance(terms, str):
        raise InvalidPartitionSpecError(
            f"partition_by must be a list of terms, not the text {terms!r}."
        )
    fields: list[PartitionField] = []
    seen: dict[tuple[int, str], str] = {}
    for position, text in enumerate(terms):
        term = parse_term(text, schema)
        if term.dedup_key() in seen:
            raise InvalidPartitionSpecError(
                f"{text!r} is redundant beside {seen[term.dedup_key()]!r}."
            )
        seen[term.dedup_key()] = text
        name = term.default_name()
        check_field_name(name, term, schema)
        fields.append(
            PartitionField(
                term.source_id, PARTITION_FIELD_ID_START + position, term.transform, name
            )
        )
    spec = PartitionSpec(*fields, spec_id=0)
    check_spec(spec, schema)
    return spec


def check_field_name(name: str, term: Term, schema: Schema) -> None:
    """Raise InvalidPartitionSpecError if a partition field of this name hides a column."""
    if isinstance(term.transform, (IdentityTransform, VoidTransform)) and name == term.column:
        return
    if name in {field.name for field in schema.fields} or name in schema.column_names:
        raise InvalidPartitionSpecError(
            f"Partition field {name!r} has the name of a column: name it with '... as <name>'."
        )


def parse_sort_order(terms: Sequence[str], schema: Schema) -> SortOrder:
    """A sort order of terms such as `event_ts`, `event_ts desc nulls last`, `bucket(16, user_id)`.

    Ascending with nulls first unless said otherwise; descending has nulls last.

    Raises:
        InvalidPartitionSpecError: a term that does not parse or apply to its column.
    """
    if isinstance(terms, str):
        raise InvalidPartitionSpecError(f"sort_by must be a list of terms, not the text {terms!r}.")
    fields = [parse_sort_term(text, schema) for text in terms]
    order = SortOrder(tuple(fields), order_id=1 if fields else 0)
    check_sort_order(order, schema)
    return order


def parse_sort_term(text: str, schema: Schema) -> SortField:
    """One field of a sort order; raises InvalidPartitionSpecError."""
    match = _ORDERED.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise InvalidPartitionSpecError(
            f"A sort term must be text such as 'event_ts desc nulls last', not {text!r}."
        )
    term = parse_term(match[1], schema)
    if term.alias:
        raise InvalidPartitionSpecError(f"{text!r}: sort fields have no names.")
    descending = (match[2] or "asc").lower() == "desc"
    nulls = (match[3] or ("last" if descending else "first")).lower()
    return SortField(
        term.source_id,
        term.transform,
        SortDirection.DESC if descending else SortDirection.ASC,
        NullOrder.NULLS_LAST if nulls == "last" else NullOrder.NULLS_FIRST,
    )


def partition_type(spec: PartitionSpec, schema: Schema) -> StructType:
    """The struct of the spec's partition tuples: field ids and names, every field optional.

    A field whose source column is gone has type unknown.
    """
    by_id = fields_of(schema)
    fields = []
    for field in spec.fields:
        source = by_id.get(field.source_id)
        result = UnknownType() if source is None else field.transform.result_type(source.field_type)
        fields.append(NestedField(field.field_id, field.name, result, required=False))
    return StructType(*fields)


def partition_path(spec: PartitionSpec, schema: Schema, values: Sequence[Any]) -> str:
    """The folder of a partition, such as `ts_day=2026-06-02/id_bucket=3`; empty if unpartitioned.

    Names and values are URL-encoded, and a part of more than 200 bytes is cut and made unique by a
    hash: the folder is a convenience for people, nothing is ever read from it.

    Args:
        spec: the spec.
        schema: a schema that has its columns.
        values: one internal value a field: int days, int microseconds, Decimal, UUID, bytes, str,
            ... or None.
    """
    return "/".join(map(_cut, _path_parts(spec, schema, values)))


def summary_path(spec: PartitionSpec, schema: Schema, values: Sequence[Any]) -> str:
    """What summaries of snapshots call a partition, uncut and encoded as Java's URLEncoder does.

    Takes what `partition_path` takes.
    """
    path = "/".join(_path_parts(spec, schema, values))
    return path.replace("%2A", "*").replace("~", "%7E")


def _path_parts(spec: PartitionSpec, schema: Schema, values: Sequence[Any]) -> list[str]:
    """`name=value` of each field, URL-encoded."""
    return [
        f"{quote_plus(field.name, safe='')}="
        f"{quote_plus(_human(field.transform, result, value), safe='')}"
        for field, result, value in zip(
            spec.fields, partition_type(spec, schema).fields, values, strict=True
        )
    ]


def _cut(part: str) -> str:
    if len(part) <= MAX_FOLDER_NAME:
        return part
    digest = hashlib.blake2b(part.encode(), digest_size=8).hexdigest()
    return f"{part[:MAX_FOLDER_NAME]}-{digest}"


def _human(transform: Transform[Any, Any], result: NestedField, value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    try:
        return str(transform.to_human_string(result.field_type, value))
    except (OverflowError, ValueError):
        units: dict[type, str] = {
            YearTransform: "Y",
            MonthTransform: "M",
            DayTransform: "D",
            HourTransform: "h",
        }
        unit = units.get(type(transform), "D" if isinstance(result.field_type, DateType) else "us")
        return str(np.array(value, dtype=f"datetime64[{unit}]")).replace("T", "-")


def _suffix(transform: Transform[Any, Any]) -> str:
    suffixes: dict[type, str] = {
        BucketTransform: "_bucket",
        TruncateTransform: "_trunc",
        YearTransform: "_year",
        MonthTransform: "_month",
        DayTransform: "_day",
        HourTransform: "_hour",
        VoidTransform: "_null",
    }
    return suffixes.get(type(transform), "")


def _arguments(text: str) -> list[str]:
    """Arguments between commas; a comma between backticks belongs to a name."""
    return [part.strip() for part in re.findall(r"(?:`[^`]*`|[^,`])+", text)]


def _term(
    column: str, transform: Transform[Any, Any], alias: str | None, text: str, schema: Schema
) -> Term:
    name = column[1:-1] if len(column) > 2 and column[0] == column[-1] == "`" else column
    try:
        field = schema.find_field(name)
    except ValueError as error:
        known = ", ".join(schema.column_names[:30])
        raise InvalidPartitionSpecError(
            f"{text!r}: there is no column {name!r}; there are {known}."
        ) from error
    full_name = schema.find_column_name(field.field_id) or name
    return Term(full_name, field.field_id, transform, alias)


HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_texts(relative_path: str) -> dict[str, str | None]:
    """Column -> value of each `column=value` folder, URL-decoded; None for Hive's name of null.

    Raises:
        InvalidInputError: a column comes twice, or a folder below a partition folder is none.
    """
    texts: dict[str, str | None] = {}
    *folders, _ = relative_path.split("/")
    for folder in folders:
        column, equals, value = folder.partition("=")
        if not equals or not column:
            raise InvalidInputError(
                f"{relative_path}: folder {folder!r} is not of the form column=value",
                file=relative_path,
            )
        name = unquote(column)
        if name in texts:
            raise InvalidInputError(
                f"{relative_path}: column {name!r} occurs twice", file=relative_path
            )
        texts[name] = None if value == HIVE_NULL else unquote(value)
    return texts


def folder_texts(location: str) -> dict[str, str | None]:
    """Column -> value of the `column=value` folders that a file lies in, whatever lies between.

    Of two folders of one column the inner one counts.
    """
    pairs = (folder.partition("=") for folder in location.split("/")[:-1])
    return {
        unquote(column): None if value == HIVE_NULL else unquote(value)
        for column, equals, value in pairs
        if equals and column
    }


def is_hidden(relative_path: str) -> bool:
    """Whether Hive and Spark skip a file: part of its path begins with `.` or `_` (not `_x=1`)."""
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part)
        for part in relative_path.split("/")
    )
