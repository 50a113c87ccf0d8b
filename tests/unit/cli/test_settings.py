from __future__ import annotations

import pytest

import lakehouse as lh
from lakehouse.catalog.redaction import hide_secrets
from lakehouse.cli.catalog_settings import CatalogOptions, catalog_options
from lakehouse.errors import InvalidInputError
from lakehouse.table.times import duration_ms, moment_ms

DAY = 86_400_000


def test_options_win_over_the_environment_and_that_over_defaults(monkeypatch):
    assert catalog_options().uri == ".lakehouse/warehouse"
    monkeypatch.setenv("LAKEHOUSE_CATALOG", "/env")
    monkeypatch.setenv("LAKEHOUSE_WAREHOUSE", "/env/w")
    monkeypatch.setenv("LAKEHOUSE_PROPERTIES", '{"s3.region": "env", "s3.endpoint": "env"}')
    found = catalog_options(catalog="/option", properties=["s3.region=option=1"])
    assert (found.uri, found.warehouse, found.name) == ("/option", None, "lakehouse")
    assert dict(found.properties) == {"s3.region": "option=1", "s3.endpoint": "env"}
    assert catalog_options().uri == "/env"


@pytest.mark.parametrize(
    ("catalog", "warehouse"),
    [
        (None, "/env/w"),
        ("/option", None),
        ("file:///option", None),
        ("s3://bucket/x", None),
        ("relative", None),
        ("sqlite:///c.db", "/env/w"),
        ("postgresql+psycopg://h/db", "/env/w"),
        ("https://h", "/env/w"),
    ],
)
def test_a_warehouse_of_the_environment_is_not_that_of_a_folder_named_as_catalog(
    monkeypatch, catalog, warehouse
):
    monkeypatch.setenv("LAKEHOUSE_CATALOG", "sqlite:///env.db")
    monkeypatch.setenv("LAKEHOUSE_WAREHOUSE", "/env/w")
    assert catalog_options(catalog).warehouse == warehouse
    assert catalog_options(catalog, "/option/w").warehouse == "/option/w"


CANARY = "Kanarienvogel"
URLS = [
    "postgresql+psycopg://user:{}@127.0.0.1:1/db",
    "postgresql+psycopg://user:p@x{}@127.0.0.1:1/db",
    "postgresql+psycopg://user:p%40{}@127.0.0.1:1/db",
    "postgresql+psycopg://user:a/{}@127.0.0.1:1/db",
    "postgresql+psycopg://user:{}@127.0.0.1:port/db",
    "postgresql+psycopg://127.0.0.1:1/db?user=u&password={}",
    "mysql://user:{}@127.0.0.1/db",
    "s3://key:{}@bucket/x",
    "https://user:{}@127.0.0.1:1/api",
    "https://user:p@x{}@127.0.0.1:1/api",
    "https://user:a/{}@127.0.0.1:1/api",
    "https://user:80/{}@127.0.0.1:1/api",
    "http://127.0.0.1:1/api?token={}",
    "http://127.0.0.1:1/api?a=b&access_token={}#x",
]

AT_ONCE = {"catalog.retry-timeout-ms": "0", "rest.retry-timeout-ms": "0"}


@pytest.mark.parametrize("warehouse", ["/w", None])
@pytest.mark.parametrize("url", URLS)
def test_no_password_of_a_url_reaches_an_error(tmp_path, url, warehouse):
    with pytest.raises(lh.LakehouseError) as found:
        lh.load_catalog(url.format(CANARY), warehouse=warehouse, **AT_ONCE).list_tables()
    assert CANARY not in str(found.value) + repr(found.value.context)


@pytest.mark.parametrize("url", URLS)
def test_no_password_of_a_url_is_printed(url):
    """Whatever a library says of the URL, or of a part of it."""
    options = CatalogOptions(url.format(CANARY), None, "x", {})
    for said in (url.format(CANARY), f"no host x{CANARY}@127.0.0.1"):
        assert CANARY not in options.redact(f"cannot reach {said}: refused")


@pytest.mark.parametrize("item", ["novalue", "=x", "warehouse=x", "environment=x"])
def test_unusable_properties_are_refused(item):
    with pytest.raises(InvalidInputError):
        catalog_options(properties=[item])


@pytest.mark.parametrize("value", ["{", "[]", '{"a": {"b": 1}}'])
def test_an_unusable_environment_is_refused_without_showing_it(monkeypatch, value):
    monkeypatch.setenv("LAKEHOUSE_PROPERTIES", value)
    with pytest.raises(InvalidInputError, match="LAKEHOUSE_PROPERTIES"):
        catalog_options()


def test_secrets_are_taken_out_of_texts():
    options = CatalogOptions(
        "postgresql+psycopg://u:p4ssw0rd@h/db",
        None,
        "x",
        {"s3.secret-access-key": "SECRETKEY", "s3.region": "eu", "token": "abc"},
    )
    text = options.redact(
        "cannot reach postgresql+psycopg://u:p4ssw0rd@h/db with SECRETKEY in eu; http://a:b@c"
    )
    assert text == "cannot reach postgresql+psycopg://u:***@h/db with *** in eu; http://a:***@c"
    assert "p4ssw0rd" not in repr(options)
    assert "SECRETKEY" not in repr(options)


def test_secret_properties_are_hidden_and_others_not():
    shown = hide_secrets(
        {
            "s3.secret-access-key": "x",
            "s3.access-key-id": "x",
            "auth.token": "x",
            "note": "http://u:p@h",
            "owner": "me",
        }
    )
    assert shown == {
        "s3.secret-access-key": "***",
        "s3.access-key-id": "***",
        "auth.token": "***",
        "note": "http://u:***@h",
        "owner": "me",
    }


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90s", 90_000),
        ("30m", 1_800_000),
        ("12h", DAY // 2),
        ("7d", 7 * DAY),
        ("2w", 14 * DAY),
        ("5 ms", 5),
    ],
)
def test_durations(text, ms):
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5h", "1y", "7d2h"])
def test_what_is_no_duration(text):
    with pytest.raises(InvalidInputError):
        duration_ms(text)


def test_moments_are_ages_or_iso():
    assert moment_ms("1d", 5 * DAY) == 4 * DAY
    assert moment_ms("1970-01-02", 0) == DAY
    assert moment_ms("1970-01-02T01:00:00+01:00", 0) == DAY
    assert moment_ms("1969-12-31T00:00:00Z", 0) == -DAY
    with pytest.raises(InvalidInputError):
        moment_ms("soon", 0)
