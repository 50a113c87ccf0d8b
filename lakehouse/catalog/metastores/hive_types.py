"""Iceberg's types as Hive names them, in a Hive Metastore and in Glue."""

from __future__ import annotations

from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType

_NAMES = {
    **{name: name for name in ("boolean", "int", "float", "double", "date", "string", "binary")},
    "long": "bigint",
    "time": "string",
    "uuid": "string",
    "unknown": "void",
    "timestamp": "timestamp",
    "timestamp_ns": "timestamp",
}
_INSTANTS = ("timestamptz", "timestamptz_ns")


def hive_type(iceberg: IcebergType, instant: str = "timestamp with local time zone") -> str:
    """The type as Hive names it; what it does not know is bytes.

    `instant`: the name of a timestamp with time zone.

    >>> from pyiceberg.types import LongType
    >>> hive_type(LongType())
    'bigint'
    """
    if isinstance(iceberg, StructType):
        inner = (f"{field.name}:{hive_type(field.field_type, instant)}" for field in iceberg.fields)
        return f"struct<{','.join(inner)}>"
    if isinstance(iceberg, ListType):
        return f"array<{hive_type(iceberg.element_type, instant)}>"
    if isinstance(iceberg, MapType):
        key, value = (hive_type(one, instant) for one in (iceberg.key_type, iceberg.value_type))
        return f"map<{key},{value}>"
    if isinstance(iceberg, DecimalType):
        return f"decimal({iceberg.precision},{iceberg.scale})"
    if isinstance(iceberg, FixedType):
        return "binary"
    name = str(iceberg)
    return instant if name in _INSTANTS else _NAMES.get(name, "binary")
