"""`make scaffold`: the built wheel in an environment and a folder of its own, under `dagster dev`.

Good, drifted, broken and late files land, a run is killed, and every line is found again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.scaffold.dev_server import DevServer, wait
from tests.scaffold.landed_lines import Landed, count, land_drifted_broken_and_late, land_good
from tests.scaffold.new_project import write_project

CHECKOUT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "SSL_CERT_FILE")
PATIENCE_SECONDS = 600.0
LINES = """SELECT (SELECT count(*) FROM raw.clicks) AS rows,
  (SELECT count(*) FROM raw.clicks WHERE {campaign}) AS campaigns,
  (SELECT count(*) FROM raw.clicks_quarantine WHERE landing_line IS NOT NULL) AS rejected,
  (SELECT sum(duplicates) FROM raw.clicks_landing) AS duplicates,
  (SELECT sum(lines) FROM raw.clicks_landing) AS lines"""


@dataclass(frozen=True)
class Project:
    """An installed project.

    Attributes:
        folder: of the project.
        programs: of its environment.
        environment: variables; nothing of the checkout.
    """

    folder: Path
    programs: Path
    environment: Mapping[str, str]

    def run(self, program: str, *arguments: str) -> str:
        """What a program of the environment prints. Raises RuntimeError."""
        return output(
            [str(self.programs / program), *arguments], self.folder, dict(self.environment)
        )

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Rows, by the installed command."""
        rows: list[dict[str, Any]] = json.loads(self.run("lakehouse", "sql", query, "--json"))
        return rows

    def found(self, expected: Landed) -> str | None:
        """What differs from what is expected of the tables; nothing when all is there."""
        campaign = "campaign IS NOT NULL" if expected.campaigns else "false"
        (lines,) = self.sql(LINES.format(campaign=campaign))
        names = ("rows", "campaigns", "rejected", "duplicates", "lines")
        said = {name: getattr(expected, name) for name in names}
        if {name: int(lines[name] or 0) for name in names} != said:
            return f"the tables have {lines}, the files {said}"
        ids = self.sql("SELECT count(DISTINCT id) AS n, sum(id) AS s FROM raw.clicks")[0]
        if ids != {"n": expected.rows, "s": sum(number for _, number in expected.ids)}:
            return f"rows are others than the files have: {ids}"
        users = {one["user_id"]: one["paid"] for one in self.sql("SELECT * FROM marts.users")}
        if users != expected.paid:
            return f"marts.users has {users}, the files {dict(expected.paid)}"
        average = expected.paid.total() / len(expected.paid)
        most = {name for name, paid in expected.paid.items() if paid >= average}
        spenders = {one["user_id"]: one["paid"] for one in self.sql("SELECT * FROM marts.spenders")}
        if spenders != {name: expected.paid[name] for name in most}:
            return f"marts.spenders has {spenders}, the users who paid most are {sorted(most)}"
        return None


def main() -> int:
    """Build, install, run; the exit code."""
    with tempfile.TemporaryDirectory(prefix="scaffold-") as temporary:
        try:
            carried_out(Path(temporary).resolve())
        except (RuntimeError, TimeoutError, LookupError) as error:
            say(f"FAILED: {error}")
            return 1
    say("every line was found")
    return 0


def carried_out(root: Path) -> None:
    """The whole story. Raises RuntimeError, TimeoutError, LookupError."""
    project = installed(root)
    landing = project.folder / "landing" / "clicks"
    land_good(landing)
    said = project.run("lakehouse", "new-source", "clicks", "landing/clicks")
    say(f"new-source: {said.splitlines()[0]}")
    where = project.run("python", "-c", "import lakehouse; print(lakehouse.__file__)")
    if not where.startswith(str(root)):
        raise RuntimeError(f"the project imports {where.strip()}")
    command = [str(project.programs / "dagster"), "dev", "-m", "definitions"]
    with DevServer(command, project.folder, project.environment) as server:
        try:
            events_land(project, server, landing)
        except TimeoutError:
            say(server.log.read_text()[-6000:])
            raise


def events_land(project: Project, server: DevServer, landing: Path) -> None:
    """What happens while `dagster dev` runs."""
    say(f"dagster dev is ready; sensors: {server.sensors()}")
    # Dagster's own, which is switched off until somebody wants it
    server.switch_on("default_automation_condition_sensor")
    caught_up(project, server, count(landing))
    seen = {one["runId"] for one in server.runs()}
    before = project.sql("SELECT count(*) AS n FROM raw.clicks")
    data = project.folder / "warehouse" / "raw" / "clicks" / "data"
    files = set(data.rglob("*.parquet"))
    land_drifted_broken_and_late(landing)
    wait(
        "a data file of a run",
        PATIENCE_SECONDS,
        lambda: set(data.rglob("*.parquet")) - files or None,
        0.01,
    )
    (killed,) = [
        one for one in server.runs() if one["runId"] not in seen and one["status"] == "STARTED"
    ]
    os.kill(server.process_of(killed["runId"]), signal.SIGKILL)
    say(f"killed {killed['jobName']} while it wrote")
    if project.sql("SELECT count(*) AS n FROM raw.clicks") != before:
        raise RuntimeError("what the killed run wrote is visible")
    caught_up(project, server, count(landing))
    status = {one["runId"]: one["status"] for one in server.runs()}
    if status[killed["runId"]] != "FAILURE":
        raise RuntimeError(f"the killed run is {status[killed['runId']]}")


def caught_up(project: Project, server: DevServer, expected: Landed) -> None:
    """Wait until every table is what the files say. Raises TimeoutError with what differs."""
    began, differs = time.monotonic(), "nothing was looked at"

    def look() -> bool | None:
        nonlocal differs
        try:
            differs = project.found(expected) or ""
        except RuntimeError as error:  # a table that is not there yet
            differs = str(error)[-500:]
        return True if not differs else None

    try:
        wait("every line", PATIENCE_SECONDS, look, 5)
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {differs}") from None
    ended = [one["status"] for one in server.runs()]
    say(
        f"{expected.lines:,} lines = {expected.rows:,} rows + {expected.rejected:,} quarantined + "
        f"{expected.duplicates:,} duplicates, after {time.monotonic() - began:.0f} s; runs: "
        f"{', '.join(f'{ended.count(one)} {one.lower()}' for one in sorted(set(ended)))}"
    )


def installed(
    root: Path,
    write: Callable[[Path], dict[str, str]] = write_project,
    extras: str = "dagster,spark",
    *others: str,
) -> Project:
    """The wheel in an environment of its own, with the versions of `uv.lock`, and a project.

    Args:
        root: an empty folder.
        write: writes the project's files, and returns the variables that it needs.
        extras: of the package.
        others: packages beside it.
    """
    began, uv = time.monotonic(), shutil.which("uv") or str(CHECKOUT / ".tools" / "bin" / "uv")
    programs = root / "venv" / "bin"
    frozen = ["export", "--frozen", "--no-hashes", "--no-emit-project", "-q"]
    here = dict(os.environ)
    (root / "versions.txt").write_text(output([uv, *frozen], CHECKOUT, here))
    output([uv, "build", "-q", "--wheel", "--out-dir", str(root)], CHECKOUT, here)
    (wheel,) = root.glob("*.whl")
    output([uv, "venv", "-q", "--python", sys.executable, str(root / "venv")], root, here)
    places = ["--python", str(programs / "python"), "--constraint", str(root / "versions.txt")]
    packages = [f"{wheel}[{extras}]", "dagster-webserver", "dagster-dg-cli", *others]
    output([uv, "pip", "install", "-q", *places, *packages], root, here)
    folder = root / "project"
    folder.mkdir()
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= write(folder)
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    say(f"{wheel.name} is installed after {time.monotonic() - began:.0f} s")
    return Project(folder, programs, environment)


def output(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """What a program prints. Raises RuntimeError with what it says when it fails."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]}: {(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def say(line: str) -> None:
    """One line of output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
