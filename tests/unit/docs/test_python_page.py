"""Pages with Python run as they stand, and say what it prints; messages name what there is."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize(("page", "examples"), [("python.md", 30), ("coming_from.md", 10)])
def test_the_page_runs_from_top_to_bottom(page, examples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.+?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, None, 0)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert not said, "".join(said)
    assert len(test.examples) > examples
    assert all(block.lstrip().startswith(">>>") for block in blocks)


def test_messages_advise_changes_that_there_are():
    verb = re.compile(r"(update_(?:schema|partition_spec|sort_order))\(\)\.(\w+)\(")
    there = {
        "update_schema": UpdateSchema,
        "update_partition_spec": UpdatePartitionSpec,
        "update_sort_order": UpdateSortOrder,
    }
    advised = {
        pair
        for file in (ROOT / "lakehouse").rglob("*.py")
        for pair in verb.findall(file.read_text())
    }
    assert ("update_schema", "drop_column") in advised
    assert [pair for pair in sorted(advised) if not hasattr(there[pair[0]], pair[1])] == []
