from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakehouse.lake
from lakehouse.cli import app

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("region", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Command:
    """Runs `lakehouse` in this process against one catalog."""

    def __init__(self, catalog):
        self.catalog = catalog

    def __call__(self, *arguments, catalog=True, env=None):
        given = ["--catalog", self.catalog] if catalog else []
        result = CliRunner().invoke(
            app, [*map(str, arguments), *given], env={"COLUMNS": "200", **(env or {})}
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)


def batch(start, count, region):
    return pa.table(
        {
            "id": range(start, start + count),
            "region": [region] * count,
            "at": [number * 86_400_000_000 for number in range(count)],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def warehouse():
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def table(warehouse):
    lake = lakehouse.lake.load_catalog(warehouse)
    found = lake.create_table("raw.events", SCHEMA, partition_by=["region"])
    for number in range(6):
        found.append(batch(10 * number, 10, f"r{number % 2}"))
    return found


@pytest.fixture
def run(table, warehouse):
    return Command(warehouse)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in ("CATALOG", "WAREHOUSE", "NAME", "PROPERTIES"):
        monkeypatch.delenv(f"LAKEHOUSE_{name}", raising=False)
