"""What needs no metastore; the rest is `make test-metastores`."""

from __future__ import annotations

import sys

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

import lakehouse as lh
from lakehouse.catalog import open_catalog
from lakehouse.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from lakehouse.spec.schema.iceberg_types import VariantType
from tests.cluster.ports import free_port

SIMPLE = (
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(9, 2)),
    *(DateType(), TimeType(), TimestampType(), TimestamptzType(), StringType(), UUIDType()),
    *(FixedType(4), BinaryType(), UnknownType()),
)


def test_types_are_named_as_pyiceberg_names_them():
    from pyiceberg.catalog.hive import SchemaToHiveConverter
    from pyiceberg.schema import visit

    from lakehouse.catalog.metastores.hive_tables import hive_type

    nested = (
        StructType(NestedField(1, "a", LongType()), NestedField(2, "b", StringType())),
        ListType(3, DecimalType(20, 4), element_required=False),
        MapType(4, StringType(), 5, ListType(6, DateType()), value_required=False),
    )
    for one in (*SIMPLE, *nested):
        assert hive_type(one) == visit(one, SchemaToHiveConverter(hive2_compatible=False)), one


def test_types_that_hive_does_not_have_keep_no_table_out():
    from lakehouse.catalog.metastores.hive_tables import hive_type

    assert [hive_type(one) for one in (VariantType(), TimestampNanoType())] == [
        "binary",
        "timestamp",
    ]
    assert Schema(NestedField(1, "v", VariantType()))


def test_a_metastore_that_is_away_is_a_storage_error():
    catalog = open_catalog(f"hms://127.0.0.1:{free_port()}", **{"catalog.retry-timeout-ms": "0"})
    with pytest.raises(StorageError, match="not reached") as caught:
        catalog.list_namespaces()
    assert caught.value.retryable


@pytest.mark.parametrize("uri", ["hms://host:9083", "thrift://host:9083", "hms://a:1,thrift://b"])
def test_by_type_and_by_scheme(uri):
    lake = lh.load_catalog("prod", type="hive", uri=uri)
    assert lake.catalog.uri == uri
    assert lake.catalog.warehouse == ""


def test_what_is_no_host_and_kerberos_are_refused():
    with pytest.raises(InvalidInputError, match="names no metastore"):
        open_catalog("hms:///")
    with pytest.raises(UnsupportedFeatureError, match="Kerberos"):
        open_catalog("hms://host", **{"hive.kerberos-authentication": "true"})
    with pytest.raises(InvalidInputError, match=r"type 'sql'.*hive catalog"):
        lh.load_catalog("prod", type="sql", uri="hms://host:9083", warehouse="/data")


def test_without_thrift_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("lakehouse.catalog.metastores")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("hive_metastore")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "thrift", None)
    monkeypatch.setitem(sys.modules, "thrift.Thrift", None)
    with pytest.raises(InvalidInputError, match=r"pylakehouse\[hive\]"):
        open_catalog("hms://host:9083")
