"""Catalogs by name from pyiceberg's configuration; pyiceberg opens each, with the same tables."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import lakehouse as lh
from lakehouse.catalog.configured import choose_catalog
from lakehouse.cli.catalog_settings import catalog_options
from tests.rest_server import rest

SCHEMA = pa.schema([pa.field("id", pa.int64())])
CANARY = "s3cr3t-canary"


@pytest.fixture(autouse=True)
def nothing_configured(tmp_path, monkeypatch):
    """A home of its own, and a working directory without configuration."""
    for name in [one for one in os.environ if one.upper().startswith("PYICEBERG_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")


def sql_yaml(tmp_path, name: str = "prod") -> str:
    return (
        f"catalog:\n  {name}:\n    type: sql\n    uri: sqlite:///{tmp_path}/{name}.db\n"
        f"    warehouse: file://{tmp_path}/{name}\n"
    )


@pytest.mark.parametrize("place", ["home", "here", "PYICEBERG_HOME"])
def test_a_file_is_found_where_pyiceberg_looks(tmp_path, monkeypatch, place):
    folder = tmp_path / place
    folder.mkdir(exist_ok=True)
    (folder / ".pyiceberg.yaml").write_text(sql_yaml(tmp_path))
    if place == "PYICEBERG_HOME":
        monkeypatch.setenv("PYICEBERG_HOME", str(folder))
    lake = lh.load_catalog("prod")
    assert (lake.name, lake.warehouse) == ("prod", f"file://{tmp_path}/prod")
    lake.create_table("raw.events", SCHEMA).append(pa.table({"id": [1, 2]}))
    config = pyiceberg.utils.config.Config().get_catalog_config("prod")
    theirs = SqlCatalog("prod", **{key: str(value) for key, value in config.items()})
    assert theirs.load_table("raw.events").scan().to_arrow()["id"].to_pylist() == [1, 2]
    theirs.create_table("raw.theirs", SCHEMA)
    assert lh.load_catalog("PROD", name="prod").list_tables() == ["raw.events", "raw.theirs"]


def test_variables_come_before_the_file_and_arguments_before_both(tmp_path, monkeypatch):
    (tmp_path / "home" / ".pyiceberg.yaml").write_text(sql_yaml(tmp_path))
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", f"file://{tmp_path}/variable")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__S3__ACCESS_KEY_ID", CANARY)
    chosen = choose_catalog("prod")
    assert chosen.warehouse == f"file://{tmp_path}/variable"
    assert chosen.properties == {"s3.access-key-id": CANARY}
    assert CANARY not in repr(chosen)
    told = choose_catalog(
        "prod", warehouse=str(tmp_path / "told"), properties={"s3.access-key-id": "x"}
    )
    assert (told.warehouse, dict(told.properties)) == (
        str(tmp_path / "told"),
        {"s3.access-key-id": "x"},
    )


def test_a_rest_catalog_by_name(tmp_path, monkeypatch):
    with rest(tmp_path) as served:
        monkeypatch.setenv("PYICEBERG_CATALOG__REMOTE__URI", served.url)
        monkeypatch.setenv("PYICEBERG_CATALOG__REMOTE__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__REMOTE__WAREHOUSE", f"file://{tmp_path}/warehouse")
        lake = lh.load_catalog("remote")
        lake.create_table("raw.events", SCHEMA)
        assert lake.list_tables() == ["raw.events"]


def test_a_name_with_everything_given(tmp_path):
    lake = lh.load_catalog(
        "mine", type="sql", uri=f"sqlite:///{tmp_path}/x.db", warehouse=str(tmp_path / "w")
    )
    lake.create_table("raw.events", SCHEMA)
    theirs = pyiceberg.catalog.load_catalog(
        "mine", type="sql", uri=f"sqlite:///{tmp_path}/x.db", warehouse=str(tmp_path / "w")
    )
    assert theirs.list_tables("raw") == [("raw", "events")]


def test_a_location_is_what_it_was(tmp_path):
    (tmp_path / "home" / ".pyiceberg.yaml").write_text(sql_yaml(tmp_path, "warehouse"))
    here = f"file://{tmp_path}/here"
    assert lh.load_catalog("./warehouse").warehouse == f"{here}/warehouse"
    assert lh.load_catalog("other").warehouse == f"{here}/other"
    assert lh.load_catalog(uri="warehouse").warehouse == f"{here}/warehouse"
    assert lh.load_catalog(str(tmp_path / "x")).name == "lakehouse"
    assert (
        lh.load_catalog(f"sqlite:///{tmp_path}/y.db", warehouse=str(tmp_path)).name == "lakehouse"
    )
    assert lh.load_catalog("warehouse").name == "warehouse", "configured"


@pytest.mark.parametrize("kind", ["dynamodb", "in-memory", "bigquery", "nonsense"])
def test_other_types_are_refused_by_name(tmp_path, kind):
    with pytest.raises(lh.InvalidInputError, match=rf"'prod'.*'{kind}'.*rest, sql"):
        lh.load_catalog("prod", type=kind, uri="thrift://host:9083", warehouse=str(tmp_path))


def test_jdbc_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(lh.InvalidInputError, match=r"not opened here.*postgresql\+psycopg"):
        lh.load_catalog("jdbc:postgresql://host/catalog", warehouse="file:///data")
    with pytest.raises(lh.InvalidInputError, match=r"'jdbc'.*postgresql\+psycopg"):
        lh.load_catalog("prod", type="jdbc", uri="thrift://host:9083", warehouse="/data")


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"type": "sql"}, r"'prod' has no uri.*PYICEBERG_CATALOG__PROD__URI"),
        ({"type": "sql", "uri": "http://u:pw@localhost"}, r"'sql'.*rest catalog: http://u:\*\*\*@"),
        ({"type": "rest", "uri": "/data"}, "'rest'.*filesystem"),
        ({"py-catalog-impl": "os.path", "uri": "/data"}, "py-catalog-impl"),
    ],
)
def test_what_contradicts_itself_is_refused(said, match):
    with pytest.raises(lh.InvalidInputError, match=match):
        lh.load_catalog("prod", **said)


def test_neither_and_both_are_refused():
    with pytest.raises(lh.InvalidInputError, match="Which catalog"):
        lh.load_catalog()
    with pytest.raises(lh.InvalidInputError, match="Two locations"):
        lh.load_catalog("file:///a", uri="file:///b")


@pytest.mark.parametrize(
    "text",
    ["catalog: [", "catalog: prod", "catalog:\n  prod: 3", "catalog:\n  prod:\n    a:\n      b: c"],
)
def test_a_broken_configuration_says_so(tmp_path, text):
    (tmp_path / "home" / ".pyiceberg.yaml").write_text(text)
    with pytest.raises(lh.InvalidInputError, match="pyiceberg's configuration"):
        lh.load_catalog("prod")
    assert lh.load_catalog("./prod").list_tables() == [], "a location asks no configuration"


@pytest.mark.parametrize(
    "text", [f"catalog:\n  prod:\n    s3.secret-access-key: [{CANARY}", f"catalog: {CANARY}"]
)
def test_a_broken_configuration_shows_none_of_its_secrets(tmp_path, monkeypatch, text):
    (tmp_path / "home" / ".pyiceberg.yaml").write_text(text)
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__S3__TOKEN", CANARY)
    with pytest.raises(lh.InvalidInputError) as found:
        lh.load_catalog("prod")
    assert CANARY not in "".join(traceback.format_exception(found.value))


def test_the_command_line_takes_a_name_and_hides_its_secrets(tmp_path, monkeypatch):
    (tmp_path / "home" / ".pyiceberg.yaml").write_text(
        sql_yaml(tmp_path) + f"    s3.secret-access-key: {CANARY}\n"
    )
    monkeypatch.setenv("LAKEHOUSE_WAREHOUSE", "/elsewhere")
    options = catalog_options("prod")
    assert (options.name, options.warehouse) == ("prod", f"file://{tmp_path}/prod")
    assert options.redact(f"cannot log in with {CANARY}") == "cannot log in with ***"
    assert CANARY not in repr(options)


def test_a_path_is_a_folder_even_where_a_catalog_has_its_name(tmp_path):
    (tmp_path / "here" / ".pyiceberg.yaml").write_text(sql_yaml(tmp_path))
    lh.load_catalog(Path("prod")).create_table("raw.events", SCHEMA)
    assert lh.load_catalog(str(tmp_path / "here" / "prod")).list_tables() == ["raw.events"]
    assert lh.load_catalog("prod").list_tables() == []


def test_the_warehouse_may_be_a_path(tmp_path):
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh")
    assert lake.create_table("raw.events", SCHEMA).location.startswith(f"file://{tmp_path}/wh/")
