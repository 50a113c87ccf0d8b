"""docs/python.md runs as it stands, and says what it prints; messages name what there is."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.+?)```", (DOCS / "python.md").read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "python.md", None, 0)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert not said, "".join(said)
    assert len(test.examples) > 30
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
    assert ("update_schema", "rename_column") in advised
    assert [pair for pair in sorted(advised) if not hasattr(there[pair[0]], pair[1])] == []
