"""Writes the tables of properties.md from the list that the code goes by.

python docs/list_properties.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from lakehouse.spark.catalog.lake_answers import PROCEDURES
from lakehouse.spec.table_properties import (
    HONOURED_ELSEWHERE,
    KEPT_FOR_OTHERS,
    LONG_MAX,
    REFUSED,
    all_properties,
)

ICEBERG = (
    *("rollback_to_snapshot", "rollback_to_timestamp", "set_current_snapshot"),
    *("cherrypick_snapshot", "publish_changes", "fast_forward", "expire_snapshots"),
    *("remove_orphan_files", "rewrite_data_files", "rewrite_manifests"),
    *("rewrite_position_delete_files", "snapshot", "migrate", "add_files", "register_table"),
    *("ancestors_of", "create_changelog_view", "compute_table_stats", "compute_partition_stats"),
    "rewrite_table_path",
)
"""The procedures of Iceberg's documentation."""
PAGE = Path(__file__).with_name("properties.md")


def tables() -> Mapping[str, str]:
    """Markdown of each table, by the name in the comments around it."""
    honoured = [
        (setting.name, _shown(setting.default), setting.meaning) for setting in all_properties()
    ]
    honoured += [(name, "", meaning) for name, meaning in HONOURED_ELSEWHERE.items()]
    honoured = [(*row, _tried(row[0])) for row in honoured]
    return {
        "honoured": _table(("property", "default", "", "tried in"), honoured),
        "refused": _table(("property", ""), REFUSED.items()),
        "kept": _table(("property", "what happens instead"), KEPT_FOR_OTHERS.items()),
        "procedures": _table(("procedure", "arguments", "refused"), map(_procedure, ICEBERG)),
    }


def page(text: str) -> str:
    """The page with its tables as they are now."""
    for name, table in tables().items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, behind = text.partition(start)
        text = f"{before}{start}\n\n{table}\n{end}{behind.partition(end)[2]}"
    return text


def _tried(name: str) -> str:
    """The test that names a property: the one of the page, as long as it does."""
    row = re.search(
        rf"^\| {re.escape(_named(name))} \|.*\| (\S+) \|$", PAGE.read_text(), re.MULTILINE
    )
    named = [row[1]] if row and name in _tests().get(row[1], "") else []
    tests = [*named, *(path for path, text in _tests().items() if name in text)]
    return tests[0] if tests else ""


@cache
def _tests() -> Mapping[str, str]:
    """Text of each file of tests, but for that of this list, by its path below `tests`."""
    folder = PAGE.parents[1] / "tests"
    paths = sorted(path for path in folder.rglob("*.py") if path.name != "test_properties.py")
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def _procedure(name: str) -> tuple[str, str, str]:
    procedure = PROCEDURES[name]
    if name == "migrate":
        return name, "refused: a table of `spark_catalog` cannot become one of another catalog", ""
    taken = ", ".join(f"`{argument}`" for argument in (*procedure.required, *procedure.optional))
    return name, taken, ", ".join(f"`{argument}`" for argument in procedure.refused)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head)]
    lines += [(_named(name), *cells) for name, *cells in sorted(rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _named(name: str) -> str:
    return f"`{name}<...>`" if name.endswith((".", "-")) else f"`{name}`"


def _shown(default: object) -> str:
    if default is None or isinstance(default, frozenset):
        return ""
    if default == LONG_MAX:
        return "for ever"
    return str(default).lower() if isinstance(default, bool) else str(default)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
