"""What the tables mean: statements are kept, and one becomes untrue when late files arrive."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from lakehouse.curation.checkup import Checked, check_statements
from lakehouse.curation.standard_fields import (
    keep_statements,
    standard_fields,
    write_standard_fields,
)
from lakehouse.curation.survey import survey
from lakehouse.lake import Lakehouse
from lakehouse.semantics.binding import bind
from lakehouse.semantics.statement_yaml import parse_statements
from lakehouse.semantics.states import State


def keep(lake: Lakehouse, file: Path, console: Console) -> None:
    """Keep the statements of a file, unless there are statements already, and show their states."""
    seen = survey(lake)
    if seen.statements:
        checked = check_statements(lake)
    else:
        names = {one.name: one for one in seen.names.values()}
        drafts = parse_statements(file.read_text("utf-8"), str(file))
        checked = list(
            keep_statements(lake, [bind(one, names, seen.now_ms) for one in drafts], "demo").checked
        )
    show(checked, console)


def look_again(lake: Lakehouse, console: Console) -> None:
    """Check all statements; what has become untrue leaves the tables' own fields."""
    checked = check_statements(lake)
    write_standard_fields(lake, standard_fields(checked))
    show(checked, console)


def show(checked: list[Checked], console: Console) -> None:
    """How many statements are in which state, and which of them are contradicted by what."""
    counts = Counter(str(one.standing.state) for one in checked)
    said = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    console.print(f"{len(checked)} statements about the tables: {said}", soft_wrap=True)
    found = [one for one in checked if one.standing.state is State.CONTRADICTED]
    if not found:
        return
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for header in ("contradicted", "it says", "but"):
        grid.add_column(header, overflow="fold", style="red" if header == "but" else "")
    for one in found:
        grid.add_row(one.draft.table, one.draft.text, one.standing.reason)
    console.print(grid)
