"""Draws the rooms and two journeys of docs/ARCHITECTURE.md from the code: no drift.

`python docs/draw_architecture.py --write` puts them into the page; a test compares.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import re
import sys
import tempfile
import textwrap
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

import grimp
import pyarrow as pa

import lakehouse as lh

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
PACKAGE = "lakehouse"
BEGIN = "<!-- {}: drawn by docs/draw_architecture.py -->"
END = "<!-- end of {} -->"


def layers() -> list[list[str]]:
    """The rooms of the package from top to bottom, as `make check` enforces them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    lines = next(one["layers"] for one in contracts["contracts"] if one["type"] == "layers")
    rooms = [[name.strip().rpartition(".")[2] for name in line.split("|")] for line in lines]
    return [line for line in rooms if line[0] not in {"examples", "assets", "jobs", "sensors"}]


def summary(module: str) -> str:
    """The first paragraph of the docstring of a module of the package, in one line."""
    file = ROOT / PACKAGE / module.replace(".", "/")
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    doc = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(doc.split("\n\n")[0].split())


def rooms_table() -> str:
    """Each room with what is in it: folders of the room, and its first sentence."""
    lines = ["| room | what it is for | inside |", "|---|---|---|"]
    for room in itertools.chain.from_iterable(layers()):
        folder = ROOT / PACKAGE / room
        inside = " ".join(
            f"`{one.name}`"
            for one in sorted(folder.iterdir() if folder.is_dir() else ())
            if one.is_dir() and any(one.glob("*.py"))
        )
        shown = f"`{PACKAGE}/{room}" + ("/`" if folder.is_dir() else ".py`")
        lines.append(f"| {shown} | {summary(room)} | {inside} |")
    return "\n".join(lines)


def rooms_picture() -> str:
    """The rooms as a Mermaid graph: an arrow is an import that no longer way already stands for."""
    graph = grimp.build_graph(PACKAGE)
    names = list(itertools.chain.from_iterable(layers()))
    direct = {
        (a, b)
        for a, b in itertools.permutations(names, 2)
        if graph.direct_import_exists(
            importer=f"{PACKAGE}.{a}", imported=f"{PACKAGE}.{b}", as_packages=True
        )
    }
    below = {name: {b for a, b in direct if a == name} for name in names}

    def reach(name: str) -> set[str]:
        return below[name].union(*(reach(one) for one in below[name]))

    needed = [
        (a, b)
        for a, b in sorted(direct, key=lambda pair: (names.index(pair[0]), names.index(pair[1])))
        if not any(b in reach(other) for other in below[a] - {b})
    ]
    return "\n".join(["```mermaid", "graph TD", *(f"  {a} --> {b}" for a, b in needed), "```"])


def followed(journey: Callable[[], object]) -> dict[str, int]:
    """The files that `journey` enters, in order, each with how many it was entered through."""
    entered: dict[str, int] = {}

    def watch(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file not in entered and _is_ours(frame.f_code):
            callers = {one.f_code.co_filename for one in _callers(frame)}
            entered[file] = sum(one in entered for one in callers - {file})

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        journey()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered


def drawn(entered: dict[str, int]) -> Iterator[str]:
    """A line for each file: where it is in the house, and what it is for."""
    for file, depth in entered.items():
        where = Path(file).relative_to(ROOT / PACKAGE).with_suffix("").as_posix()
        name = "  " * min(depth, 3) + where.removesuffix("/__init__")
        yield shorten(f"{name:<49}", summary(where.replace("/", ".")))


def shorten(name: str, text: str) -> str:
    """Both in one line of at most 100 columns; of the text, what stands before its details."""
    brief = re.split(r"[.:;] | \(|, so that|\.$", text)[0]
    return f"{name} " + textwrap.shorten(brief, 99 - len(name), placeholder=" ...")


def journeys() -> str:
    """A filter to its files, and a frame to its commit."""
    with tempfile.TemporaryDirectory() as folder:
        lake = lh.load_catalog(f"file://{folder}/warehouse")
        frame = pa.table({"day": pa.array([1, 2, 2], pa.date32()), "user_id": [7, 7, 8]})
        events = lake.create_table("raw.events", frame.schema, partition_by=["day"])
        events.append(frame)
        lake.load_table("raw.events").scan(where="user_id = 7").plan()
        plan = followed(lambda: events.scan(where="day = DATE '1970-01-03'").plan())
        commit = followed(lambda: events.append(frame))
    parts = [
        ("A filter to its files: `events.scan(where=\"day = DATE '1970-01-03'\").plan()`", plan),
        ("A frame to its commit: `events.append(frame)`", commit),
    ]
    return "\n\n".join(
        "\n".join([f"**{title}**", "", "```", *drawn(steps), "```"]) for title, steps in parts
    )


def _callers(frame: FrameType) -> Iterator[FrameType]:
    caller = frame.f_back
    while caller is not None:
        yield caller
        caller = caller.f_back


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(f"{ROOT / PACKAGE}/") and code.co_name != "<module>"


def main(arguments: list[str]) -> int:
    """Write the drawings into the page, or say whether they are there."""
    page = PAGE.read_text()
    wanted = page
    for name, text in {
        "rooms": f"{rooms_picture()}\n\n{rooms_table()}",
        "journeys": journeys(),
    }.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = wanted.partition(begin)
        wanted = f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"
    if "--write" in arguments:
        PAGE.write_text(wanted)
    elif wanted != page:
        sys.stdout.write("drawn otherwise: run python docs/draw_architecture.py --write\n")
        sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), wanted.splitlines(True)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
