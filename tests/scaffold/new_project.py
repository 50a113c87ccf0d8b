"""The project: `definitions.py` of the tutorial, a source, an SQL model, a plain asset."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
USERS = '''
"""Clicks of each user."""

from lakehouse.orchestration import SqlModel

USERS = SqlModel(
    name="marts.users",
    sql="SELECT user_id, count(*) AS clicks, sum(price) AS paid FROM raw.clicks GROUP BY user_id",
)
'''
SPENDERS = '''
"""A plain asset of Dagster."""

import dagster as dg
import polars as pl


@dg.asset(
    key_prefix="marts",
    ins={"users": dg.AssetIn(["marts", "users"])},
    automation_condition=dg.AutomationCondition.eager(),
)
def spenders(users: pl.DataFrame) -> pl.DataFrame:
    """Who paid more than the others on average."""
    return users.filter(pl.col("paid") >= pl.col("paid").mean())
'''


def write_project(folder: Path) -> dict[str, str]:
    """The files of a new project, but for its source; returns the environment it runs in."""
    files = {
        **_named_blocks("tutorial.md"),
        **_named_blocks("dagster.md"),
        "assets/users.py": USERS,
        "assets/spenders.py": SPENDERS,
    }
    for name in (
        "definitions.py",
        "assets/__init__.py",
        ".dagster/dagster.yaml",
        "assets/users.py",
        "assets/spenders.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(files[name].lstrip())
    (folder / "landing").mkdir()
    return {
        "DAGSTER_HOME": str(folder / ".dagster"),
        "LAKEHOUSE_CATALOG": str(folder / "warehouse"),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }


def _named_blocks(page: str) -> dict[str, str]:
    """Blocks of a page whose first line is a comment with a file's name."""
    text = (DOCS / page).read_text()
    blocks = re.findall(r"^```(?:python|yaml)\n(# (\S+)\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    return {name: block for block, name in blocks}
