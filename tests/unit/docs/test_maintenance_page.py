"""docs/maintenance.md names every property of the policies with its default, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from lakehouse.maintenance.maintenance_policy import PREFIX
from lakehouse.spec.table_properties import all_properties

PAGE = Path(__file__).resolve().parents[3] / "docs" / "maintenance.md"
WORDS = {
    "none": (),
    "off": "off",
    "all day": frozenset(range(24)),
    "1 day": 86_400_000,
    "3 days": 3 * 86_400_000,
    "1 hour": 3_600_000,
    "5 minutes": 300_000,
    "1 GiB": 1 << 30,
    "true": True,
}


def documented():
    section = PAGE.read_text().partition("## Policies")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", section, re.MULTILINE)
    return {
        name: default.strip()
        for names, default in rows
        for name in re.findall(r"`([a-z-]+)`", names)
    }


def test_every_property_is_there_with_its_default():
    known = {
        one.name.removeprefix(PREFIX): one.default
        for one in all_properties()
        if one.name.startswith(PREFIX)
    }
    found = documented()
    assert found.keys() == known.keys()
    for name, text in found.items():
        value = WORDS[text] if text in WORDS else float(text)
        assert value == known[name], name
