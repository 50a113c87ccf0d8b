"""Writes the tables of properties.md from the list that the code goes by.

python docs/list_properties.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lakehouse.spec.table_properties import (
    HONOURED_ELSEWHERE,
    KEPT_FOR_OTHERS,
    LONG_MAX,
    REFUSED,
    all_properties,
)

PAGE = Path(__file__).with_name("properties.md")


def tables() -> Mapping[str, str]:
    """Markdown of each table, by the name in the comments around it."""
    honoured = [(one.name, _shown(one.default), one.meaning) for one in all_properties()]
    honoured += [(name, "", meaning) for name, meaning in HONOURED_ELSEWHERE.items()]
    return {
        "honoured": _table(("property", "default", ""), honoured),
        "refused": _table(("property", ""), REFUSED.items()),
        "kept": _table(("property", "what happens instead"), KEPT_FOR_OTHERS.items()),
    }


def page(text: str) -> str:
    """The page with its tables as they are now."""
    for name, table in tables().items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n\n{table}\n{end}{rest.partition(end)[2]}"
    return text


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head)]
    lines += [(_named(name), *rest) for name, *rest in sorted(rows)]
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
