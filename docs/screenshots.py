"""Pictures of the pages: `dagster dev` and `lakehouse serve` on the demo's tables, in Chromium.

`make screenshots` writes them to .lakehouse/screenshots, `make screenshots SCREENSHOTS=--write`
those that the README shows to docs/images. The exit code is 1 when a page is not what it should
be: an error in the browser's console or of its scripts, an answer of GraphQL with errors, a request
that failed, or a text that does not appear.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Error, Page, Response, expect, sync_playwright

from tests.scaffold.dev_server import DevServer

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".lakehouse"
PATIENCE_MS = 20_000
# what moves has come to rest
SETTLED_MS = 1_000
# pictures do not tell where they were taken
ELSEWHERE = """([from, to]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const one = texts.currentNode;
    if (one.data.includes(from)) one.data = one.data.replaceAll(from, to);
  }
}"""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass(frozen=True)
class Picture:
    """A page, and what is there once it is loaded.

    Attributes:
        name: of the file.
        path: of the page.
        texts: that appear.
        steps: before `texts` are looked for: `wait TEXT`, `click TEXT`, `last TEXT` (a click at the
            last of several), `press KEY`.
        size: of the window.
        part: of it that is kept: left, top, width, height; nothing: all of it.
        shown: whether the README shows it.
    """

    name: str
    path: str
    texts: tuple[str, ...]
    steps: tuple[str, ...] = ()
    size: tuple[int, int] = (1440, 1000)
    part: tuple[int, int, int, int] | None = None
    shown: bool = False


DAGSTER = (
    Picture("catalog", "/assets", ("marts / carrier_day",), size=(1440, 1100)),
    Picture(
        "asset-graph",
        "/asset-groups",
        ("carrier_day", "wiki_edits"),
        steps=("wait marts", "press Alt+KeyE"),
        size=(1900, 1300),
        part=(545, 200, 1310, 910),
        shown=True,
    ),
    Picture("asset", "/assets/clean/flights", ("Minutes in the air", "Owners")),
    Picture(
        "materialization",
        "/assets/raw/flights?view=events",
        ("lakehouse/quarantined", "lakehouse/read_with", "2013-11-30"),
        steps=("click 2013-12-01",),
        shown=True,
    ),
    Picture(
        "checks",
        "/assets/clean/flights?view=checks",
        ("Failed",),
        steps=("click plausible", "click Execution history"),
        size=(1440, 640),
        shown=True,
    ),
    Picture(
        "plots",
        "/assets/raw/flights_landing",
        ("lakehouse/files",),
        steps=("click Plots",),
        shown=True,
    ),
    Picture(
        "state",
        "/assets/lakehouse/state",
        ("Lakehouse at", "marts.carrier_day"),
        steps=("click [Show Markdown]",),
        size=(1600, 1000),
        shown=True,
    ),
    Picture("runs", "/runs", ("ingest_flights",)),
    Picture("automation", "/automation", ("landed_flights", "small_files")),
)
SERVER = (
    Picture("server", "/", ("flights_quarantine",), size=(1100, 700)),
    Picture("server-search", "/?q=delay", ("departure_delay_avg_minutes",), size=(1100, 700)),
    Picture("server-table", "/tables/raw/flights", ("landing_line",), size=(1100, 1200)),
    Picture("server-snapshots", "/tables/raw/flights/snapshots", ("none: rewritten",)),
    Picture("server-schema", "/tables/raw/flights/schema", ("feed was added: string",)),
    Picture("server-sample", "/tables/raw/flights_quarantine/sample", ("blank line",)),
    Picture("server-lineage", "/tables/clean/flights/lineage", ("marts.carrier_day",)),
)


def main() -> int:
    """Take all pictures; the exit code says whether the pages are well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/images")
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--dagster", default="", metavar="URL", help="a webserver that runs")
    arguments = parser.parse_args()
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.stderr.write(f"Chromium is not on the PATH: looked for {', '.join(BROWSERS)}\n")
        return 2
    if not (HOME / "warehouse" / "raw").is_dir():
        sys.stderr.write("There are no tables of the demo: run `make demo` first\n")
        return 2
    folder = HOME / "screenshots"
    folder.mkdir(exist_ok=True)
    wanted = set(filter(None, arguments.only.split(",")))
    problems: list[str] = []
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        for servers, pictures in ((dagster(arguments.dagster), DAGSTER), (catalog(), SERVER)):
            chosen = [picture for picture in pictures if not wanted or picture.name in wanted]
            if not chosen:
                continue
            with servers as url:
                for picture in chosen:
                    problems += taken(browser, url, picture, folder)
        browser.close()
    if arguments.write and not problems:
        for picture in (*DAGSTER, *SERVER):
            if picture.shown and (not wanted or picture.name in wanted):
                shutil.copy(folder / f"{picture.name}.png", ROOT / "docs" / "images")
    sys.stdout.write("\n".join([*problems, f"{len(problems)} problems, pictures in {folder}", ""]))
    return 1 if problems else 0


@contextmanager
def dagster(running: str) -> Iterator[str]:
    """The address of `dagster dev`: of one that runs, else of one for as long as the block."""
    if running:
        yield running
        return
    environment = os.environ | {"DAGSTER_HOME": str(HOME / "dagster")}
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml"]
    with DevServer(command, ROOT, environment, "lakehouse") as server:
        yield server.url


@contextmanager
def catalog() -> Iterator[str]:
    """The address of `lakehouse serve` on the demo's tables."""
    command = [sys.executable, "-c", "from lakehouse.cli import app; app()"]
    options = ["--catalog", str(HOME / "warehouse"), "serve", "--port", "0"]
    server = subprocess.Popen(  # noqa: S603 - this project's own
        [*command, *options], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        line = server.stdout.readline() if server.stdout else ""
        yield re.findall(r"http://[\w.]+:\d+", line)[0]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def taken(browser: Browser, url: str, picture: Picture, folder: Path) -> list[str]:
    """Visit a page, keep its picture, and say what is wrong with it."""
    width, height = picture.size
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(PATIENCE_MS)
    problems = watched(page)
    page.goto(url + picture.path)
    try:
        for step in picture.steps:
            take(page, *step.split(" ", 1))
        for text in reversed(picture.texts):
            element = page.get_by_text(text).first
            expect(element).to_be_visible()
            element.scroll_into_view_if_needed()
        page.wait_for_load_state("networkidle")
    except (Error, AssertionError) as error:
        problems.append(" ".join(str(error).split())[:300])
    page.wait_for_timeout(SETTLED_MS)
    page.evaluate(ELSEWHERE, [str(ROOT), "/home/you/lakehouse"])
    sides = ("x", "y", "width", "height")
    clip = dict(zip(sides, picture.part, strict=True)) if picture.part else None
    page.screenshot(path=str(folder / f"{picture.name}.png"), clip=clip)
    page.close()
    return [f"{picture.name} ({picture.path}): {problem}" for problem in problems]


def take(page: Page, what: str, name: str) -> None:
    """One step of a `Picture`."""
    elements = page.get_by_text(name, exact=True)
    if what == "press":
        page.keyboard.press(name)
    elif what == "wait":
        expect(elements.first).to_be_visible()
        page.wait_for_load_state("networkidle")
    else:
        (elements.first if what == "click" else elements.last).click()


def watched(page: Page) -> list[str]:
    """The list that is filled with what goes wrong in a page."""
    problems: list[str] = []

    def answered(response: Response) -> None:
        if response.status >= 400:
            problems.append(f"{response.status} for {response.url}")
        elif response.url.endswith("/graphql"):
            body = response.json()
            if body.get("errors") or "PythonError" in json.dumps(body):
                problems.append(f"GraphQL: {json.dumps(body)[:500]}")

    page.on("response", answered)
    page.on("pageerror", lambda error: problems.append(f"script: {error}"))
    page.on(
        "console",
        lambda message: (
            problems.append(f"console: {message.text}") if message.type == "error" else None
        ),
    )
    return problems


if __name__ == "__main__":
    sys.exit(main())
