"""Draws the rooms of docs/ARCHITECTURE.md from the code: no drift.

`python docs/draw_architecture.py --write` puts them into the page; a test compares.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import sys
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
PACKAGE = "lakehouse"
CORE = "table", "row_changes", "transaction", "data", "scan", "manifests", "catalog"
BEGIN = "<!-- rooms: drawn by docs/draw_architecture.py -->"
END = "<!-- end of rooms -->"


def layers() -> list[list[str]]:
    """The rooms of the package from top to bottom, as `make check` enforces them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    lines = next(
        contract["layers"] for contract in contracts["contracts"] if contract["type"] == "layers"
    )
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
            f"`{path.name}`"
            for path in sorted(folder.iterdir() if folder.is_dir() else ())
            if path.is_dir() and any(path.glob("*.py"))
        )
        shown = f"`{PACKAGE}/{room}" + ("/`" if folder.is_dir() else ".py`")
        lines.append(f"| {shown} | {summary(room)} | {inside} |")
    return "\n".join(lines)


def rooms_picture() -> str:
    """The rooms that a read or a commit goes through as a Mermaid graph: an arrow is an import."""
    graph = grimp.build_graph(PACKAGE)
    lines = [
        f"  {above} --> {below}"
        for above, below in itertools.permutations(CORE, 2)
        if graph.direct_import_exists(
            importer=f"{PACKAGE}.{above}", imported=f"{PACKAGE}.{below}", as_packages=True
        )
    ]
    return "\n".join(["```mermaid", "graph TD", *lines, "```"])


def main(arguments: list[str]) -> int:
    """Write the rooms into the page, or say whether they are there."""
    page = PAGE.read_text()
    before, _, behind = page.partition(BEGIN)
    text = f"{rooms_picture()}\n\n{rooms_table()}"
    wanted = f"{before}{BEGIN}\n\n{text}\n\n{END}{behind.partition(END)[2]}"
    if "--write" in arguments:
        PAGE.write_text(wanted)
    elif wanted != page:
        sys.stdout.write("drawn otherwise: run python docs/draw_architecture.py --write\n")
        sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), wanted.splitlines(True)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
