"""Appends a second to one table behind our REST server, from many writers on the same machine.

python -m benchmarks.group_commit [--seconds 10] [--writers 64] [--processes 2] [--cases ...]. Every
writer writes a Parquet file and its manifest, synced, and has them appended (`table.append` of our
client); an append counts when the server has said yes. `own-snapshot` and `shared-snapshot` are
group commits, `commit` is what any client of the protocol does. `requests` asks the same of the
server alone: manifests are there before, and plain sockets send the requests. In the end every row
is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import lakehouse as lh  # noqa: E402
from benchmarks.peers.http_load import Connection, drive, request  # noqa: E402
from benchmarks.rest import free_port  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "group_commit.json"
MODES = ("own-snapshot", "shared-snapshot", "commit", "requests")
KINDS = ("sqlite", "filesystem")
ROWS = 10
STARTING_SECONDS = 6
"""Until all writers begin."""
SCHEMA = pa.schema({"id": pa.int64(), "writer": pa.int32(), "name": pa.string()})


def rows(writer: int, number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    columns = [list(ids), [writer] * ROWS, [f"row {n}" for n in ids]]
    return pa.table(columns, schema=SCHEMA)


def work(url: str, mode: str, first: int, writers: int, begin: float, until: float) -> None:
    """`writers` threads of one process append; prints the time of the end, and all latencies."""
    seconds: list[float] = []

    def write(writer: int) -> None:
        properties = {"append-mode": mode, "snapshot-loading-mode": "refs"}
        table = lh.load_catalog(url, **properties).load_table("bench.events")
        time.sleep(max(0.0, begin - time.time()))
        number = 0
        while (began := time.time()) < until:
            table.append(rows(writer, number))
            number += 1
            seconds.append(time.time() - began)

    threads = [threading.Thread(target=write, args=(first + n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps([time.time(), seconds]))


def serve(kind: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    warehouse = f"{folder}/warehouse"
    catalog = warehouse if kind == "filesystem" else f"sqlite:///{folder}/catalog.db"
    cli = "from lakehouse.cli import app; app()"
    where = ["--catalog", catalog, "--warehouse", warehouse, "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-c", cli, "serve", *where], cwd=ROOT)
    until = time.monotonic() + 60
    while True:
        try:
            connection = Connection(port)
            connection.ask(request("GET", "/config"))
            connection.close()
        except OSError:
            if time.monotonic() > until or process.poll() is not None:
                raise
            time.sleep(0.05)
        else:
            return process


def clients(
    url: str, mode: str, writers: int, processes: int, seconds: float
) -> tuple[float, list[float]]:
    """Seconds until the last one was answered, and those of each append of all writers."""
    begin = time.time() + STARTING_SECONDS
    each = writers // processes
    command = [sys.executable, "-m", "benchmarks.group_commit", "--worker", url, mode]
    running = [
        subprocess.Popen(
            [*command, str(n * each), str(each), str(begin), str(begin + seconds)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        for n in range(processes)
    ]
    answers = [json.loads(process.communicate(timeout=600)[0]) for process in running]
    return max(end for end, _ in answers) - begin, [s for _, each in answers for s in each]


def requests_alone(port: int, writers: int, seconds: float) -> dict[str, Any]:
    """The same of the server alone."""
    table = lh.load_catalog(f"http://127.0.0.1:{port}").load_table("bench.events")
    table.append(rows(0, 0))
    uuid_, location = table.metadata.table_uuid, table.metadata.location
    listed = table.inspect.manifests().to_pylist()[0]
    source = Path(listed["path"])
    names = [source.with_name(f"copy-{n}.avro") for n in range(int(seconds * 1500) + writers)]
    for name in names:
        shutil.copy(source, name)
    assert str(source).startswith(location)
    lock, left = threading.Lock(), iter(names)

    def ask(_client: int, _number: int) -> bytes:
        with lock:
            path = next(left)
        manifest = {
            "path": str(path),
            "length": listed["length"],
            "partition-spec-id": 0,
            "added-files-count": 1,
            "added-rows-count": ROWS,
        }
        body = {
            "append-id": uuid.uuid4().int & ((1 << 62) - 1),
            "table-uuid": uuid_,
            "branch": "main",
            "manifests": [manifest],
            "summary": {"added-files-size": "900"},
        }
        plain = request("POST", "/namespaces/bench/tables/events/appends", body)
        return plain.replace(b"\r\n", f"\r\nIdempotency-Key: {uuid.uuid4()}\r\n".encode(), 1)

    return drive(port, writers, seconds, ask).summary()


def case(kind: str, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="group-", dir=Path.cwd()))
    port = free_port()
    server = serve(kind, folder, port)
    url = f"http://127.0.0.1:{port}"
    try:
        lh.load_catalog(url).create_table("bench.events", SCHEMA)
        if mode == "requests":
            measured = requests_alone(port, options.writers, options.seconds)
        else:
            elapsed, unordered = clients(
                url, mode, options.writers, options.processes, options.seconds
            )
            ordered = sorted(unordered)
            measured = {
                "per_s": round(len(ordered) / elapsed, 1),
                "p50_ms": round(1000 * ordered[len(ordered) // 2], 1),
                "p99_ms": round(1000 * ordered[int(len(ordered) * 0.99)], 1),
                "acknowledged": len(ordered),
            }
        table = lh.load_catalog(url).load_table("bench.events")
        if mode != "requests":
            assert table.scan().count() == ROWS * measured["acknowledged"]
        name = table.metadata_location.rpartition("/")[2]
        versions = int(re.findall(r"\d+", name)[0])
        status = Path(f"/proc/{server.pid}/stat").read_text().split()
        ticks = os.sysconf("SC_CLK_TCK")
        measured |= {
            "snapshots": len(table.metadata.snapshots),
            "versions": versions,
            "server_cpu_s": round((int(status[13]) + int(status[14])) / ticks, 1),
        }
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
    row = {"catalog": kind, "mode": mode, "writers": options.writers, **measured}
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group_commit")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--worker", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        url, mode, first, writers, begin, until = options.worker
        return work(url, mode, int(first), int(writers), float(begin), float(until))
    kinds, modes = options.kinds.split(","), options.modes.split(",")
    result = {
        "what": "acknowledged appends a second to one table behind our REST server",
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "processes_of_clients": options.processes,
        "rows": [case(kind, mode, options) for kind in kinds for mode in modes],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return None


if __name__ == "__main__":
    main()
