"""What names, reasons and values say on the page of states is shown as it is, never as markup."""

from __future__ import annotations

import dataclasses
import re
from html import unescape

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.maintenance.advice.due_actions import Action, ActionKind
from lakehouse.orchestration.state.state_page import state_markdown, table_state

EVIL = (
    "`|</td><img src=x onerror=alert(1)>|\n\n# pwned [x](javascript:alert(1)) ![y](z) **b** \x1b[2J"
)
SCHEMA = pa.schema([("k", pa.string())])


@pytest.fixture
def page():
    lake = lh.load_catalog("memory://state-page/warehouse")
    table = lake.create_table("raw.a|b`c<script>", SCHEMA, partition_by=["k"])
    for _ in range(4):
        table.append(pa.table({"k": [EVIL]}, schema=SCHEMA))
    action = Action(kind=ActionKind.COMPACT, amount=3, reason=EVIL, due_ms=0)
    state = dataclasses.replace(table_state(table, since={}), actions=(action,))
    yield state_markdown([state], 0, {f"raw.{EVIL}": EVIL})
    lake.drop_table(table.name, purge=True)


def test_nothing_of_it_is_markup(page):
    shown = re.sub(r"!\[[^\]]*\]\(data:image/svg\+xml;base64,[^)]*\)", "", page)
    assert not set(shown) & set("<>[]\x1b")
    assert "!" not in shown
    assert "pwned" in shown
    headings = [line for line in shown.splitlines() if line.startswith("#")]
    assert [line.partition(" ")[0] for line in headings] == ["##", "###", "###"]
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {11, 6}


def test_it_reads_as_it_was(page):
    said = unescape(page)
    assert "a|b`c<script>" in said
    assert "# pwned [x](javascript:alert(1)) ![y](z) **b** \ufffd[2J" in said
