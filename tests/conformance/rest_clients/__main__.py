"""`make rest-clients`: clients of others on our server, operation by operation: works, or why not.

Each client runs in a process of its own (`clients_in_python.py`, `spark_client.py`), with the
packages that are installed, or that `.tools/` has. What each operation left behind is read by our
engine. `--write` puts the table into docs/rest_server.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import lakehouse as lh
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "rest_server.md"
OPERATIONS = ("create", "write", "read", "evolve", "delete", "concurrent commits")
BEGIN, END = "<!-- clients -->", "<!-- end of clients -->"
PYTHON = ROOT / ".tools" / "rest-clients" / "bin" / "python"
PYTHONS = dict.fromkeys(("pyiceberg-core", "chDB", "Spark with Iceberg"), PYTHON)
JAR = "iceberg-spark-runtime-4.1_2.13"
CLIENTS = {
    "pyiceberg": "clients_in_python",
    "pyiceberg-core": "clients_in_python",
    "DuckDB": "clients_in_python",
    "Daft": "clients_in_python",
    "Polars": "clients_in_python",
    "chDB": "clients_in_python",
    "Spark with Iceberg": "spark_client",
}


def main() -> int:
    """Run the clients; exit code 1 when one cannot be run at all."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.rest_clients")
    parser.add_argument(
        "--clients", default=",".join(client.partition(",")[0] for client in CLIENTS)
    )
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    options = parser.parse_args()
    wanted = [one for one in options.clients.split(",") if one]
    chosen = [name for name in CLIENTS if any(name.startswith(one) for one in wanted)]
    with tempfile.TemporaryDirectory() as folder:
        warehouse = f"file://{folder}/warehouse"  # not all of them take plain paths
        lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=warehouse)
        with HttpServer(rest_app(lake), "127.0.0.1", 0) as server:
            found = {name: run(name, server.url) for name in chosen}
    rows = [f"| client | {' | '.join(OPERATIONS)} |", f"|---{'|---' * len(OPERATIONS)}|"]
    for name, told in found.items():
        version = told.get("version", "")
        cells = [told.get(operation, "not tried") for operation in OPERATIONS]
        rows.append(f"| {name} {version} | {' | '.join(cells)} |".replace("  ", " "))
    table = "\n".join(rows)
    sys.stdout.write(f"{table}\n")
    if options.write:
        text = DOCS.read_text()
        before, _, rest = text.partition(BEGIN)
        DOCS.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")
    return int(any("error" in one for one in found.values()))


def run(name: str, url: str) -> dict[str, str]:
    """What a client did: its version, and of each operation `works` or why not."""
    python = PYTHONS.get(name, Path(sys.executable))
    if not python.exists():
        return {"error": f"{python} is missing", "create": "not installed"}
    script = Path(__file__).parent / f"{CLIENTS[name]}.py"
    done = subprocess.run(
        [str(python), str(script), name, url, *([jar()] if "Spark" in name else [])],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.stderr.write(done.stderr[-3000:])
        return {"error": "it did not run", "create": "did not run"}
    sys.stderr.write(f"{name}: {lines[-1]}\n")
    return dict(json.loads(lines[-1]))


def jar() -> str:
    """Iceberg's runtime for Spark, fetched by Maven as `make conformance-spark` does."""
    pom = Path(__file__).parents[1] / "spark" / "pom.xml"
    folder = ROOT / ".tools" / "iceberg-spark"
    maven = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    subprocess.run([*maven, f"-DoutputDirectory={folder}"], check=True)
    return str(next(folder.glob(f"{JAR}-*.jar")))


if __name__ == "__main__":
    sys.exit(main())
