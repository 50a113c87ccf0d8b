"""`make conformance-openapi SPEC=FILE`: Schemathesis asks our server what the specification allows.

SPEC is `rest-catalog-open-api.yaml` of Iceberg, which is not in this repository. The server is run
here, over SQLite, once for everybody and once for principals; requests are generated from a seed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from tests.conformance.openapi.filled_catalog import fill
from tests.conformance.openapi.fitted_spec import fitted
from tests.conformance.openapi.judged_report import judge, read_report
from tests.server.guarded import guarded, rules_file

ROOT = Path(__file__).parents[3]
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
)
_SECONDS = 1800
_CONFIG = "[output.truncation]\nenabled = false\n"


def main() -> int:
    """Ask; exit code 1 when something fails that is not expected to, 2 without the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.openapi")
    parser.add_argument("spec", nargs="?", type=Path, help="rest-catalog-open-api.yaml")
    parser.add_argument("--examples", type=int, default=50, help="of each operation, fuzzed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="operations with this pattern in their path")
    parser.add_argument("--reports", type=Path, help="a folder for what was asked and answered")
    options = parser.parse_args()
    if options.spec is None or not options.spec.is_file():
        say("SPEC=FILE has to be Iceberg's rest-catalog-open-api.yaml")
        return 2
    logging.disable(logging.CRITICAL)  # what the server refuses is for the checks to judge
    lines: list[str] = []
    for is_guarded in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            kept = Path(folder) if options.reports is None else options.reports.resolve()
            file = kept / ("guarded.ndjson" if is_guarded else "open.ndjson")
            run(options, Path(folder), file, is_guarded=is_guarded)
            found = list(judge(read_report(file)))
        who = "with principals" if is_guarded else "where nobody is asked"
        say("\n".join([f"{who}, {time.monotonic() - started:.0f} s", *found]))
        lines += found
    return 1 if any(line.startswith("UNEXPECTED") for line in lines) else 0


def run(options: argparse.Namespace, folder: Path, report: Path, *, is_guarded: bool) -> None:
    """One run over a catalog of its own."""
    catalog = fill(folder)
    fixed = folder / "fitted.json"
    fixed.write_text(json.dumps(fitted(options.spec, catalog), default=str))
    (folder / "schemathesis.toml").write_text(_CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(fixed)]
    command += ["--phases", "examples,coverage,fuzzing", "--checks", ",".join(CHECKS)]
    command += ["--seed", str(options.seed), "--max-examples", str(options.examples)]
    command += ["--continue-on-failure", "--no-shrink", "--generation-database", "none"]
    command += ["--suppress-health-check", "all", "--warnings", "off", "--no-color"]
    command += ["--report-ndjson-path", str(report)]
    if options.only is not None:
        command += ["--include-path-regex", options.only]
    with ExitStack() as stack:
        if is_guarded:
            server = stack.enter_context(guarded(catalog.lake, rules_file(folder)))
            url = server.url
            command += ["--header", f"Authorization: Bearer {server.token('root')}"]
        else:
            url = stack.enter_context(HttpServer(rest_app(catalog.lake), "127.0.0.1", 0)).url
        done = subprocess.run(
            [*command, "--url", url],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "SCHEMATHESIS_HOOKS": "tests.conformance.openapi.hooks",
                "NO_PROXY": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"Schemathesis did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def say(text: str) -> None:
    """Lines, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
