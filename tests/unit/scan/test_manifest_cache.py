"""What the cache of manifests may take, held against the memory that the kernel counts."""

from __future__ import annotations

import subprocess
import sys

import pytest

FILL = """
import sys
import pyarrow as pa, pyarrow.ipc as ipc
from lakehouse.manifests.manifest_cache import ManifestCache
from lakehouse.spec.manifests.manifest_entries import Entries
from pyiceberg.partitioning import PartitionSpec

def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * 4096

rows, limit, count = (int(one) for one in sys.argv[1:])
table = pa.table({f"c{i}": pa.array(range(rows), pa.int64()) for i in range(17)})
sink = pa.BufferOutputStream()
with ipc.new_stream(sink, table.schema) as stream:
    stream.write_table(table)
data = sink.getvalue().to_pybytes()
cache = ManifestCache(limit)
before = resident()
for i in range(count):
    decoded = ipc.open_stream(pa.BufferReader(bytearray(data))).read_all()
    cache.keep_entries(f"m{i}", None, Entries(decoded, PartitionSpec()))
assert cache.entries(f"m{count - 1}", ["c0"]) is not None
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("rows", "count"), [(1, 8_000), (100, 5_000), (10_000, 80)])
def test_its_limit_holds_for_manifests_of_any_length(rows, count):
    limit = 16 << 20
    command = [sys.executable, "-c", FILL, str(rows), str(limit), str(count)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 2.5 * limit
