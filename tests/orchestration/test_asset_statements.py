"""What Dagster's assets say becomes statements, and what they promise is checked."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.cli import app

FILE = '''
from datetime import timedelta

import dagster as dg

from beside import DESCRIPTION

COLUMNS = dg.TableSchema(
    columns=[
        dg.TableColumn("id", "int", description="Of the order.",
                       constraints=dg.TableColumnConstraints(nullable=False, unique=True)),
        dg.TableColumn("state", "string", constraints=dg.TableColumnConstraints(nullable=False)),
        dg.TableColumn("note", "string",
                       constraints=dg.TableColumnConstraints(other=["free text"])),
    ],
    constraints=dg.TableConstraints(other=["One row per order."]),
)

@dg.asset(key_prefix="shop", description=DESCRIPTION, owners=["team:sales", "ann@example.com"],
          metadata={"dagster/column_schema": COLUMNS},
          freshness_policy=dg.FreshnessPolicy.time_window(timedelta(hours=36)))
def orders():
    """Not this."""

lines = dg.AssetSpec("anything", description="Lines.",
                     metadata={"dagster/table_name": "warehouse.shop.lines"})
report = dg.AssetSpec(["a", "report"], description="No table.")
defs = dg.Definitions(assets=[orders, lines, report])
'''


@pytest.fixture
def shop(tmp_path):
    lake = lh.load_catalog(str(tmp_path / "warehouse"))
    rows = pa.table({"id": [1, 2], "state": ["open", None], "note": ["a", "b"]})
    lake.create_table("shop.orders", rows.schema).append(rows)
    lake.create_table("shop.lines", rows.schema).append(rows)
    (tmp_path / "defs.py").write_text(FILE)
    (tmp_path / "beside.py").write_text('DESCRIPTION = "Orders of the shop."\n')
    return lake, tmp_path


def run(folder, *words, code=0):
    options = ["--catalog", str(folder / "warehouse"), "--json"]
    done = CliRunner().invoke(app, [*map(str, words), *options])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_assets_become_statements_with_evidence(shop):
    lake, folder = shop
    found = run(folder, "semantics", "import", folder / "defs.py", "--by", "Ann")
    assert len(found["added"]) == 10
    (broken,) = found["contradicted"]  # Dagster shows that it is never null; it is
    checked = run(folder, "semantics", "check", code=1)
    said = {(one["kind"], one.get("column"), one["table"]): one for one in checked}
    assert said["description", None, "shop.orders"]["text"] == "Orders of the shop."
    assert said["description", None, "shop.lines"]["text"] == "Lines."
    assert said["owner", None, "shop.orders"]["owner"] == "team:sales, ann@example.com"
    assert said["freshness", None, "shop.orders"]["sla"] == "36h"
    assert said["grain", None, "shop.orders"]["state"] == "verified"
    assert said["warning", "id", "shop.orders"]["state"] == "verified"
    assert said["warning", "state", "shop.orders"]["id"] == broken
    assert said["warning", "note", "shop.orders"]["text"] == "free text"
    assert (
        lake.load_table("shop.orders").schema().find_field("id").doc == "Of the order. Never null."
    )
    again = run(folder, "semantics", "import", folder / "defs.py", "--by", "Ann")
    assert (again["added"], again["changed"], again["removed"]) == ([], [], [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\n", "has no Dagster assets"),
        ("import nothing_of_this_name\n", "ModuleNotFoundError"),
        (FILE.replace('TableColumn("note"', 'TableColumn("remark"'), "no column remark"),
    ],
)
def test_what_cannot_be_read_is_told(shop, text, told):
    _, folder = shop
    (folder / "defs.py").write_text(text)
    done = CliRunner().invoke(
        app, ["semantics", "import", str(folder / "defs.py"), "--catalog", f"{folder}/warehouse"]
    )
    assert done.exit_code == 1
    assert told in " ".join(done.output.split())
