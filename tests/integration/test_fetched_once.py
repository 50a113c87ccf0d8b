"""What an object store is asked for by lookups and changes: each metadata file once a process."""

from __future__ import annotations

import re
from collections import Counter

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from tests.servers import s3

_GET = re.compile(r'"GET /lake/(\S+?\.(?:avro|columnar\.parquet))(?:\?\S*)? HTTP')


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    log = tmp_path_factory.mktemp("s3") / "requests"
    with s3(log) as properties:
        yield properties, log


@pytest.mark.parametrize("rows", [1, 40], ids=["small", "with a columnar copy"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("catalog", ["sqlite", "folder"])
def test_each_manifest_and_each_list_is_fetched_once(store, tmp_path, rows, mode, catalog):
    properties, log = store
    warehouse = f"s3://lake/{tmp_path.name}"
    uri = f"sqlite:///{tmp_path}/c.db" if catalog == "sqlite" else warehouse

    def opened():
        more = {"warehouse": warehouse} if catalog == "sqlite" else {}
        return lh.load_catalog(uri, **more, **properties)

    table = opened().create_table(
        "r.t",
        pa.schema([("id", pa.int64()), ("s", pa.string())]),
        partition_by=["s"],
        properties={"write.delete.mode": mode, "write.update.mode": mode},
    )
    for n in range(4):
        ids = [n * 100 + i for i in range(rows + 1)]
        table.append(pa.table({"id": ids, "s": [f"{i // 2}" for i in range(rows + 1)]}))
    DEFAULT_CACHE.clear()
    before = len(_GET.findall(log.read_text()))
    cold = opened()
    assert cold.load_table("r.t").scan("id = 200").to_arrow().num_rows == 1
    assert cold.load_table("r.t").scan("id = 200").to_arrow().num_rows == 1
    again = cold.load_table("r.t")
    assert again.scan("id = 200 and s = '0'").to_arrow().num_rows == 1
    assert again.scan().to_arrow().num_rows == 4 * (rows + 1)
    again.delete("id = 100")
    again.update({"id": "-7"}, where="id = 300")
    assert again.scan("id = -7").to_arrow().num_rows == 1
    asked = Counter(_GET.findall(log.read_text())[before:])
    assert len(asked) > 4
    assert set(asked.values()) == {1}, {name: n for name, n in asked.items() if n > 1}
