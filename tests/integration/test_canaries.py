"""Canaries: secrets planted wherever users can put them, and searched in all that is written."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import make_url

import lakehouse as lh
from lakehouse.errors import LakehouseError
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.table.scan_reports import SCAN_REPORT_SCHEMA, TableListener
from lakehouse.transaction import Transaction

CANARY = "canary-5eC7et"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def said(caplog):
    """All that is said: texts of the test, and log records of every library with tracebacks."""
    caplog.set_level(logging.DEBUG)
    texts = []
    yield texts
    formatter = logging.Formatter("%(name)s %(message)s")
    everything = [*texts, *(formatter.format(record) for record in caplog.records)]
    assert len(everything) > 10
    assert [text for text in everything if CANARY in text] == []


class Reports:
    """A listener that keeps what it is told, as JSON."""

    def __init__(self, lines):
        self._lines = lines

    def scan_planned(self, report):
        self._lines.append(json.dumps(report.to_dict()))


def fails(said, act, *kinds):
    """The act fails; what it says, chained causes and all, is searched."""
    with pytest.raises(kinds or LakehouseError) as caught:
        act()
    error = caught.value
    # source lines of the test itself are no leak, and neither is where the interpreter stood
    said.append(
        "\n".join(
            line for line in traceback.format_exception(error) if not line.startswith('  File "')
        )
    )
    said.append(f"{error!r} {getattr(error, 'context', '')}")


def objects(table):
    """Objects that end up in somebody's log line."""
    transaction = table.transaction().set_properties({"note": "plain"})
    version = table.catalog.load(table.identifier)
    return [
        table, table.metadata, version, table.catalog, table.storage, transaction,
        transaction.operations, table.schema,
        table.scan(), table.scan().plan(), table.snapshots(), table.write_request(),
        SetProperties({"s3.secret-access-key": CANARY}),
    ]  # fmt: skip


def written(table):
    """The files of the table; not metadata files if the secret is in a table property."""
    return {
        info.location: table.storage.read(info.location)
        for info in table.storage.list(table.location)
    }


def test_catalog_url_and_storage_options(said, postgres_uri, s3_properties, tmp_path):
    uri = make_url(postgres_uri).set(password=CANARY).render_as_string(hide_password=False)
    secrets = {
        "s3.secret-access-key": CANARY,
        "s3.session-token": CANARY,
        "gcs.service-account-key": CANARY,
        "token": CANARY,
    }
    lake = lh.load_catalog(
        uri,
        warehouse=f"s3://lake/{uuid.uuid4().hex}",
        name=uuid.uuid4().hex,
        **{**s3_properties, **secrets},
    )
    reports = []
    sink = lake.create_table("ops.scans", SCAN_REPORT_SCHEMA)
    listener = TableListener(sink)
    for one in (Reports(reports), listener):
        lake.add_listener(one)
    table = lake.create_table("raw.events", ROWS.schema, partition_by=["bucket(2, id)"])
    snapshot = table.append(ROWS)
    table.delete(where="id = 2")
    assert table.scan(where="id > 1").to_arrow().num_rows == 1
    table.compact()
    listener.close()
    said += [repr(one) for one in (lake, snapshot, *objects(table))]
    said += [
        *reports,
        json.dumps(table.refresh().snapshots()[-1].summary),
        str(sink.refresh().scan().to_arrow()),
    ]
    fails(said, lambda: lake.load_table("raw.nothing"))
    fails(said, lambda: lake.create_table("raw.events", ROWS.schema))
    fails(said, lambda: lake.create_table("raw.out", ROWS.schema, location="s3://elsewhere/x"))
    table.storage.delete([task.data_file.file_path for task in table.refresh().scan().plan().tasks])
    fails(said, lambda: lake.load_table("raw.events").scan().to_arrow())
    content = written(table) | written(sink)
    assert len(content) > 10
    assert [name for name, data in content.items() if CANARY.encode() in data] == []


def test_servers_that_do_not_answer_or_refuse(said, tmp_path):
    gone = {
        "s3.endpoint": "http://127.0.0.1:1",
        "s3.region": "x",
        "s3.access-key-id": "me",
        "s3.secret-access-key": CANARY,
    }
    quick = {
        "storage.retry-timeout-ms": "0",
        "storage.timeout-ms": "500",
        "catalog.retry-timeout-ms": "0",
    }
    lake = lh.load_catalog("s3://bucket/warehouse", **gone, **quick)
    fails(said, lambda: lake.load_table("raw.events"))
    fails(said, lambda: lake.catalog.storage("s3://bucket/x").read("s3://bucket/x"))
    fails(said, lambda: lake.catalog.storage("s3://bucket/x").write("s3://bucket/x", b""))
    fails(said, lambda: list(lake.catalog.storage("s3://bucket/x").list("s3://bucket/x")))
    fails(said, lambda: lake.catalog.storage("s3://bucket/x").open_output("s3://bucket/x").close())
    said.append(repr(lake.catalog.storage("s3://bucket/x")))
    for uri in (
        f"postgresql+psycopg://me:{CANARY}@127.0.0.1:1/db",
        f"postgresql+psycopg://me@127.0.0.1:1/db?password={CANARY}",
        f"postgresql://me:a{CANARY}/b@127.0.0.1:x/db",
        f"https://me:{CANARY}@127.0.0.1:1/rest",
    ):
        fails(
            said,
            lambda uri=uri: lh.load_catalog(uri, warehouse=str(tmp_path), **quick).load_table(
                "raw.events"
            ),
        )
    fails(
        said,
        lambda: lh.load_catalog(
            "gs://bucket/x", **{"gcs.service-account-key": CANARY}, **quick
        ).load_table("raw.events"),
    )
    fails(
        said,
        lambda: lh.load_catalog(
            "abfss://c@account/x", **{"adls.account-key": CANARY}, **quick
        ).load_table("raw.events"),
    )


def test_table_properties(said, tmp_path):
    """A secret in a table property is found in the table's metadata, and nowhere else."""
    lake = lh.load_catalog(str(tmp_path / "warehouse"))
    lines = []
    lake.add_listener(Reports(lines))
    table = lake.create_table(
        "raw.events",
        ROWS.schema,
        properties={"s3.secret-access-key": CANARY, "my.password": CANARY},
    )
    table.append(ROWS)
    table.delete(where="id = 1")
    table.compact()
    assert table.scan().to_arrow().num_rows == 2
    said += [repr(one) for one in objects(table)]
    said += [*lines, *(json.dumps(snapshot.summary) for snapshot in table.refresh().snapshots())]
    base = table.catalog.load(table.identifier)
    table.append(ROWS)
    fails(
        said, lambda: table.catalog.commit(table.identifier, base, (), (SetProperties({"a": "b"}),))
    )
    fails(said, lambda: table.append(pa.table({"other": [1]})))
    fails(
        said,
        lambda: (
            Transaction(table.catalog, table.identifier, decided_on=base).rollback_to(1).commit()
        ),
    )
    for name, data in written(table).items():
        assert name.endswith(".metadata.json") or CANARY.encode() not in data


def test_errors_keep_their_words_when_workers_send_them(said, tmp_path):
    lake = lh.load_catalog(
        f"sqlite:///{tmp_path}/catalog.db",
        warehouse=str(tmp_path),
        **{"s3.secret-access-key": CANARY},
    )
    with pytest.raises(LakehouseError) as caught:
        lake.load_table("raw.events")
    # Our own.
    said += [repr(pickle.loads(pickle.dumps(caught.value))), *map(str, range(10))]  # noqa: S301
    assert not [
        path
        for path in Path(tmp_path).rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    ]
    lake.catalog.close()
