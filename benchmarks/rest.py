"""Our REST server beside Iceberg's reference catalog, both over SQLite, asked by the same clients.

python -m benchmarks.rest [--seconds 6] [--rounds 3] [--files 200000] [--atlas FOLDER]
[--workers 1]. Rounds alternate between the two; of each case the median round is kept. The clients
run on the same two cores. The reference (`RESTCatalogAdapter` over `JdbcCatalog`, from Maven
Central) needs a JDK and Maven. Last a server of ours that does nothing else plans the whole Atlas
table, 2.7 million files with twins, which is written to FOLDER, or found there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.atlas import (  # noqa: E402
    BUCKETS,
    DAYS,
    FULL_FILES_PER_PARTITION,
    SCHEMA,
    build,
    metric,
)
from benchmarks.peers.http_load import Connection, drive, request  # noqa: E402
from benchmarks.plan_atlas import make_twins  # noqa: E402
from tests.cluster.ports import free_port  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "rest.json"
HOME = Path(__file__).parent / "peers" / "rest_adapter"
SIDES = ("lakehouse", "reference")
TABLES, COLUMNS = 20, 20
APPENDS = 400
"""Snapshots of the larger table."""
START_MS = 1_767_225_600_000
TABLE_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": n, "name": f"c{n}", "type": "long", "required": False} for n in range(1, COLUMNS + 1)
    ],
}


@dataclass
class Side:
    """A server that runs.

    Attributes:
        name: of the contender.
        port: where it listens.
        process: that it runs in.
        large: snapshot ids of its larger table.
    """

    name: str
    port: int
    process: subprocess.Popen[bytes]

    def ask(self, method: str, path: str, document: Any = None) -> Any:
        """The answer to one request, which must be 200 or 204."""
        connection = Connection(self.port)
        try:
            status, body = connection.ask(request(method, path, document))
        finally:
            connection.close()
        if status not in (200, 204):
            raise RuntimeError(f"{self.name}: {method} {path}: {status} {body[:400]!r}")
        return json.loads(body) if body else None

    def memory_mib(self) -> float:
        """Most memory that it ever had."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmHWM:\s+(\d+) kB", text)
        return round(int(match[1]) / 1024, 0) if match else 0.0


@contextlib.contextmanager
def running(
    name: str, folder: Path, classpath: str, *, warehouse: Path | None = None, workers: int = 1
) -> Iterator[Side]:
    port = free_port()
    if name == "lakehouse":
        cli = "from lakehouse.cli import app; app()"
        where = [
            "--catalog",
            f"sqlite:///{folder}/catalog.db",
            "--warehouse",
            str(warehouse or folder / "warehouse"),
        ]
        command = [sys.executable, "-c", cli, "serve", *where, "--port", str(port)]
        command += ["--workers", str(workers)]
    else:
        main = "org.apache.iceberg.rest.RestAdapter"
        command = ["java", "-Xmx1g", "-cp", classpath, main, str(port), str(folder)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    side = Side(name, port, process)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                side.ask("GET", "/config")
                break
            except OSError:
                if time.monotonic() > until or process.poll() is not None:
                    raise
                time.sleep(0.1)
        yield side
    finally:
        process.terminate()
        process.wait(30)


def java_classpath(folder: Path) -> str:
    """The reference and what it needs, compiled; empty without a JDK and Maven."""
    if not all(shutil.which(tool) for tool in ("java", "javac", "mvn")):
        return ""
    listed = folder / "classpath.txt"
    maven = ["mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), "dependency:build-classpath"]
    subprocess.run([*maven, f"-Dmdep.outputFile={listed}"], check=True)
    jars = listed.read_text().strip()
    classes = folder / "classes"
    subprocess.run(
        ["javac", "-d", str(classes), "-cp", jars, str(HOME / "RestAdapter.java")], check=True
    )
    return f"{classes}:{jars}"


def prepare(side: Side, appends: int) -> None:
    """Tables without snapshots, and one with many."""
    side.ask("POST", "/namespaces", {"namespace": ["ns"]})
    for n in range(TABLES):
        side.ask("POST", "/namespaces/ns/tables", {"name": f"t{n}", "schema": TABLE_SCHEMA})
    made = side.ask("POST", "/namespaces/ns/tables", {"name": "large", "schema": TABLE_SCHEMA})
    location, parent = made["metadata"]["location"], None
    for first in range(0, appends, 100):
        updates = []
        for n in range(first, min(first + 100, appends)):
            snapshot = {
                "snapshot-id": n + 1,
                "sequence-number": n + 1,
                "timestamp-ms": made["metadata"]["last-updated-ms"] + n + 1,
                "manifest-list": f"{location}/metadata/snap-{n}-{uuid.UUID(int=n)}.avro",
                "summary": {"operation": "append", "added-records": "1000", "total-records": "9"},
                "schema-id": 0,
            }
            if parent is not None:
                snapshot["parent-snapshot-id"] = parent
            parent = n + 1
            updates.append({"action": "add-snapshot", "snapshot": snapshot})
            updates.append(
                {
                    "action": "set-snapshot-ref",
                    "ref-name": "main",
                    "type": "branch",
                    "snapshot-id": parent,
                }
            )
        body = {"requirements": [], "updates": updates}
        side.ask("POST", "/namespaces/ns/tables/large", body)


def load(table: str) -> bytes:
    return request("GET", f"/namespaces/ns/tables/{table}")


def change(table: str, client: int, number: int) -> bytes:
    updates = [{"action": "set-properties", "updates": {f"client-{client}": str(number)}}]
    document = {"requirements": [], "updates": updates}
    return request("POST", f"/namespaces/ns/tables/{table}", document)


def cases(side: Side, seconds: float) -> dict[str, dict[str, Any]]:
    """One round of every case."""
    small = [load(f"t{n}") for n in range(TABLES)]
    large = load("large")
    port = side.port

    def loads(client: int, number: int) -> bytes:
        return small[(client + number) % TABLES]

    times_by_case = {
        "loadTable, 1 client": drive(port, 1, seconds, loads),
        "loadTable, 8 clients": drive(port, 8, seconds, loads),
        f"loadTable of {APPENDS} snapshots, 8 clients": drive(port, 8, seconds, lambda *_: large),
        "commits, 1 client": drive(port, 1, seconds, lambda c, n: change("t0", c, n)),
        "commits to one table, 8 clients": drive(port, 8, seconds, lambda c, n: change("t1", c, n)),
        "commits to 8 tables, 8 clients": drive(
            port, 8, seconds, lambda c, n: change(f"t{c + 2}", c, n)
        ),
    }
    return {name: times.summary() for name, times in times_by_case.items()}


def plan_body(per_partition: int) -> dict[str, Any]:
    """Six days and one name (see plan_atlas)."""
    name = metric((per_partition // 2 + 0.5) / per_partition)

    def compared(kind: str, column: str, value: Any) -> dict[str, Any]:
        return {"type": kind, "term": column, "value": value}

    days = {
        "type": "and",
        "left": compared("gt-eq", "ts", "2018-02-11T00:00:00+00:00"),
        "right": compared("lt", "ts", "2018-02-17T00:00:00+00:00"),
    }
    return {
        "filter": {"type": "and", "left": days, "right": compared("eq", "name", name)},
        "select": [SCHEMA.fields[0].name, SCHEMA.fields[8].name],
        "case-sensitive": True,
    }


def planning(side: Side, location: str, per_partition: int, repeat: int) -> dict[str, Any]:
    """Plans of the Atlas table through HTTP: the first, and the median of the next."""
    registered = {"name": "atlas", "metadata-location": location}
    side.ask("POST", "/namespaces/ns/register", registered)
    path, body = "/namespaces/ns/tables/atlas/plan", plan_body(per_partition)
    seconds, answer = [], {}
    for _ in range(repeat + 1):
        began = time.perf_counter()
        answer = side.ask("POST", path, body)
        seconds.append(time.perf_counter() - began)
        if answer["status"] != "completed":
            raise RuntimeError(f"{side.name}: the plan is {answer['status']}")
    return {
        "first_s": round(seconds[0], 3),
        "next_s": round(statistics.median(seconds[1:]), 3),
        "files_in_answer": len(answer.get("file-scan-tasks", [])),
        "further_tasks": len(answer.get("plan-tasks", [])),
    }


def largest(folder: Path, atlas_at: Path, repeat: int) -> dict[str, Any]:
    """Plans of the whole Atlas table with twins, by a server of its own."""
    atlas = build(atlas_at / "warehouse", FULL_FILES_PER_PARTITION)
    location, _ = make_twins(atlas.metadata_location)
    (folder / "largest").mkdir()
    with running("lakehouse", folder / "largest", "", warehouse=atlas_at / "warehouse") as side:
        side.ask("POST", "/namespaces", {"namespace": ["ns"]})
        before = side.memory_mib()
        planned = planning(side, location, FULL_FILES_PER_PARTITION, repeat)
        return planned | {
            "files": atlas.files,
            "memory_before_mib": before,
            "memory_mib": side.memory_mib(),
        }


def median_of(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Of each case the round with the median rate."""
    medians = {}
    for case in rounds[0]:
        ordered = sorted((measured[case] for measured in rounds), key=lambda row: row["per_s"])
        medians[case] = ordered[len(ordered) // 2] | {"rounds_per_s": [r["per_s"] for r in ordered]}
    return medians


def run(
    seconds: float, rounds: int, files: int, repeat: int, atlas_at: Path | None, workers: int
) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="rest-", dir=Path.cwd()))
    try:
        classpath = java_classpath(folder)
        sides = SIDES if classpath else SIDES[:1]
        measured: dict[str, list[dict[str, dict[str, Any]]]] = {name: [] for name in sides}
        memory: dict[str, float] = {}
        plans: dict[str, Any] = {}
        per_partition = max(files // (DAYS * 24 * BUCKETS), 2)
        with contextlib.ExitStack() as stack:
            servers = []
            for name in sides:
                (folder / name).mkdir()
                server = stack.enter_context(
                    running(name, folder / name, classpath, workers=workers)
                )
                prepare(server, APPENDS)
                drive(server.port, 8, seconds, lambda c, _n: load(f"t{c}"))  # warm
                servers.append(server)
            for _ in range(rounds):
                for server in servers:
                    measured[server.name].append(cases(server, seconds))
                    print(server.name, json.dumps(measured[server.name][-1]), flush=True)
            for server in servers:
                memory[server.name] = server.memory_mib()
            for server in servers:
                root = folder / server.name / "warehouse"
                atlas = build(root, per_partition)
                plans[server.name] = planning(
                    server, atlas.metadata_location, per_partition, repeat
                ) | {"files": atlas.files, "memory_mib": server.memory_mib()}
                print(server.name, json.dumps(plans[server.name]), flush=True)
        plans["lakehouse, whole table"] = largest(folder, atlas_at or folder / "atlas", repeat)
        print(json.dumps(plans["lakehouse, whole table"]), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    medians = {name: median_of(rounds_of) for name, rounds_of in measured.items()}
    rows = [
        {"case": case, **{name: medians[name][case] for name in sides}}
        for case in medians[sides[0]]
    ]
    for row in rows:
        if len(sides) > 1:
            ours, theirs = (row[name] for name in SIDES)
            row["times_the_rate"] = round(ours["per_s"] / max(theirs["per_s"], 0.1), 2)
            row["p99_to_it"] = round(ours["p99_ms"] / max(theirs.get("p99_ms", 0), 0.001), 3)
    return {"rows": rows, "memory_mib": memory, "planning": plans}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rest")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--atlas", type=Path, help="where the whole Atlas table is kept")
    parser.add_argument("--workers", type=int, default=1, help="processes of our server")
    options = parser.parse_args()
    result = {
        "what": "requests to a catalog over SQLite by clients on the same machine",
        "versions": {name: version_of(name) for name in ("uvicorn", "starlette", "orjson")}
        | {"python": platform.python_version(), "iceberg": "1.11.0"},
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "workers": options.workers,
        **run(
            options.seconds,
            options.rounds,
            options.files,
            options.repeat,
            options.atlas,
            options.workers,
        ),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    for row in result["rows"]:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
