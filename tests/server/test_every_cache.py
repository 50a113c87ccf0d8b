"""Whatever a server keeps has a bound, whoever wrote it: nothing grows with the tables there were.

What is new and keeps something for ever is found here by growing, without being named.
"""

from __future__ import annotations

import functools
import gc
import sys
import tracemalloc
import types
import uuid
from collections import OrderedDict, deque

import pytest
import requests

from lakehouse.kept_by_bytes import MADE, KeptByBytes
from lakehouse.server.access.principals_file import read_rules
from lakehouse.server.http_server import HttpServer
from lakehouse.server.memory_bounds import DEFAULT_BOUNDS, MemoryBounds
from lakehouse.server.rest_app import rest_app
from tests.server.conftest import open_lake
from tests.server.guarded import SECRETS, rules_file

TABLES = 25
MIB = 1024 * 1024
COUNTED = {
    # texts of at most 256 characters together
    "lakehouse.catalog.sql.sql_pointers._namespace_path": 1024,
    "lakehouse.expressions.functions.sql_casts._kind": 64,
    "lakehouse.expressions.transforms.partition_transforms.transform_value": 4096,
    "lakehouse.server.http_messages._identifier": 4096,
    "lakehouse.server.http_messages._namespace": 4096,
    "lakehouse.server.operations.table_operations._tag": 1024,
    # locations, of at most 4,096 characters
    "lakehouse.storage.location.canonical": 1024,
    "lakehouse.storage.location.parse": 1024,
    # of the process's own settings and statements
    "lakehouse.catalog.sql.sql_database._parsed_sql": 128,
    "lakehouse.rest.http_client._shared": 64,
    "lakehouse.storage.storage_by_scheme._shared": 32,
    # names of the keys of variants: metadata of at most what one value takes
    "lakehouse.spec.types.variant_values._names": 256,
    # of nothing, or of a format version
    "lakehouse.expressions.sql.sql_grammar._dialect": None,
    "lakehouse.spec.manifests.manifest_list._parsed_schema": None,
}
"""Caches that count what they keep, instead of its bytes: how many, of what is short."""


def caches():
    """Every `lru_cache` of the modules that are loaded, by name."""
    found = {}
    for name, module in [*sys.modules.items()]:
        if name.split(".")[0] != "lakehouse" or name.split(".")[1:2] in (
            [one] for one in ("agents", "ingestion", "orchestration", "spark")
        ):
            continue
        for one in vars(module).values():
            kept = one
            if isinstance(one, types.FunctionType) and one.__closure__:
                inside = [cell.cell_contents for cell in one.__closure__]
                kept = next((x for x in inside if isinstance(x, functools._lru_cache_wrapper)), one)
            if isinstance(kept, functools._lru_cache_wrapper):
                found[f"{kept.__module__}.{kept.__name__}"] = kept
    return {name: one for name, one in found.items() if name.startswith("lakehouse.")}


def test_whatever_counts_what_it_keeps_is_known():
    found = {name: one.cache_info().maxsize for name, one in caches().items()}
    assert found == {name: most for name, most in COUNTED.items() if name in found}
    assert len(found) >= 10
    for module in [one for name, one in sys.modules.items() if name.startswith("lakehouse.")]:
        for name, one in vars(module).items():
            if isinstance(one, KeptByBytes):
                assert one.bytes_max <= 128 * MIB, (module, name)


def containers():
    """How many items has each container that the garbage collector knows."""
    kinds = (dict, list, set, deque, OrderedDict)
    return {id(one): (len(one), one) for one in gc.get_objects() if isinstance(one, kinds)}


class Client:
    """Has a server make tables, and forget them."""

    def __init__(self, url, name):
        self.url, self.session, self.number = f"{url}/v1", requests.Session(), 0
        form = {
            "grant_type": "client_credentials",
            "client_id": name,
            "client_secret": SECRETS[name],
        }
        answer = self.session.post(f"{self.url}/oauth/tokens", data=form, timeout=60)
        self.session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def ask(self, method, path, body=None):
        key = {} if method == "GET" else {"Idempotency-Key": str(uuid.uuid4())}
        return self.session.request(
            method, f"{self.url}/namespaces{path}", json=body, headers=key, timeout=60
        )

    def one_table(self, plans=1):
        self.number += 1
        name = f"t{uuid.uuid4().hex}"
        fields = [
            {"id": n + 1, "name": f"{name}_{n}", "type": "long", "required": False}
            for n in range(4)
        ]
        body = {"name": name, "schema": {"type": "struct", "schema-id": 0, "fields": fields}}
        table = f"/ann/tables/{name}"
        assert self.ask("POST", "/ann/tables", body).status_code == 200
        for query in ("", "?snapshots=refs"):
            assert self.ask("GET", table + query).status_code == 200
        update = {"action": "set-properties", "updates": {"a": name}}
        assert self.ask("POST", table, {"requirements": [], "updates": [update]}).status_code == 200
        asked = {"filter": {"type": "eq", "term": f"{name}_0", "value": self.number}}
        for _ in range(plans):
            assert self.ask("POST", f"{table}/plan", asked).status_code == 200
        assert self.ask("GET", f"/ann/tables/no{name}").status_code == 404
        view = {
            "name": f"v{name}",
            "schema": body["schema"],
            "view-version": {
                "version-id": 1,
                "timestamp-ms": 1,
                "schema-id": 0,
                "summary": {},
                "representations": [
                    {"type": "sql", "sql": f"select '{name}'", "dialect": "duckdb"}
                ],
                "default-namespace": ["ann"],
            },
        }
        assert self.ask("POST", "/ann/views", view).status_code == 200
        assert self.ask("DELETE", f"/ann/views/v{name}").status_code == 204
        login = {"grant_type": "client_credentials", "client_id": "ann", "client_secret": name}
        # guessed secrets and unknown tokens are kept nowhere, either
        if self.number % 20 == 0:
            refused = requests.post(f"{self.url}/oauth/tokens", data=login, timeout=60)
            assert refused.status_code == 401
        assert (
            requests.get(
                f"{self.url}/config", headers={"Authorization": f"Bearer {name}"}, timeout=60
            ).status_code
            == 401
        )
        assert self.ask("DELETE", f"{table}?purgeRequested=true").status_code == 204


def kept_by_a_round(client):
    """Bytes that are allocated by making and forgetting tables, and not freed."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(TABLES):
        client.one_table()
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return kept


@pytest.fixture
def imported_too():
    """What was imported, which `tests/conftest.py` freezes, is an object of the collector again."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


@pytest.mark.slow
@pytest.mark.usefixtures("imported_too")
@pytest.mark.parametrize("kind", ["filesystem", "sqlite"])
def test_nothing_grows_with_the_tables_that_there_were(tmp_path, kind):
    lake = open_lake(kind, tmp_path / "lake")
    lake.create_namespace("ann")
    small = dict.fromkeys(("plans", "tables", "manifests", "types"), MIB // 8)
    bounds = MemoryBounds(**small)
    app = rest_app(lake, rules=read_rules(rules_file(tmp_path)), memory=bounds)
    try:
        with HttpServer(app, "127.0.0.1", 0, is_guarded=True) as server:
            client = Client(server.url, "ann")
            client.one_table(plans=70)  # more than are known by their ids
            for _ in range(TABLES):
                client.one_table()
            gc.collect()
            before = {key: size for key, (size, _) in containers().items()}
            counts = {name: one.cache_info().currsize for name, one in caches().items()}
            # what is kept grows in every round; a table of the process (of interned strings, that
            # of a long session takes 15 MiB when it is doubled) grows in one of them
            taken = min(kept_by_a_round(client) for _ in range(3))
            bounded = [one for one in gc.get_objects() if isinstance(one, KeptByBytes)]
            assert all(one.held <= one.bytes_max <= 128 * MIB for one in bounded)
            own = {id(one._kept) for one in bounded}
            own |= {id(bounded), id(own)}  # they may lie where something small lay before
            grown = [
                repr(one)[:1000]
                for key, (size, one) in containers().items()
                if key not in own and key in before and size - before[key] >= 3 * TABLES // 2
            ]
            assert grown == []
            counted = {n: c.cache_info().currsize for n, c in caches().items()}
            growing = {name for name, size in counted.items() if size > counts.get(name, 0)}
            assert growing <= COUNTED.keys()
            assert MADE.held <= bounds.types
            # what is replaced was allocated unseen: as much again as all bounds is the most
            assert taken < 4 * MIB
    finally:
        tracemalloc.stop()
        DEFAULT_BOUNDS.bound_process()
