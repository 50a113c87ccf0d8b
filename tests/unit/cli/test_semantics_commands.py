"""`lakehouse semantics ...` and `describe --edit`."""

from __future__ import annotations

import datetime as dt
import json

import click
import pyarrow as pa
import pytest

import lakehouse as lh
from tests.unit.cli.conftest import Command

ORDERS = pa.schema(
    [
        ("order_id", pa.int64()),
        ("customer_id", pa.int64()),
        ("status", pa.string()),
        ("cents", pa.int64()),
        ("ordered", pa.date32()),
    ]
)
DOCUMENT = """
table: shop.orders
author: Sales
statements:
- {kind: description, text: Orders of the web shop.}
- kind: grain
  key: [order_id]
  evidence: {check: unique, columns: [order_id]}
- kind: codes
  column: status
  values: {N: new, S: shipped}
  text: Where the order is.
  evidence: {check: values, column: status, allowed: [N, S]}
- kind: unit
  column: cents
  unit: EUR
  factor: 0.01
  text: Gross, in cents.
  evidence: {check: sum_equal, column: cents, to: shop.totals.euros, to_factor: 100}
- kind: join
  from: [customer_id]
  to: [shop.customers.id]
  cardinality: many_to_one
  evidence: {check: references, column: customer_id, to: shop.customers.id}
- {kind: metric, name: turnover, expression: sum(cents) / 100, text: Gross turnover in euros.}
- {kind: owner, owner: Sales}
"""


@pytest.fixture
def shop(tmp_path):
    lake = lh.load_catalog(str(tmp_path / "warehouse"))
    orders = lake.create_table("shop.orders", ORDERS)
    orders.append(rows(range(60)))
    customers = pa.table(
        {"id": pa.array(range(20), pa.int64()), "name": [f"c{n}" for n in range(20)]}
    )
    lake.create_table("shop.customers", customers.schema).append(customers)
    totals = pa.table({"status": ["N", "S"], "euros": pa.array([300.0, EUROS - 300.0])})
    lake.create_table("shop.totals", totals.schema).append(totals)
    (tmp_path / "shop.yaml").write_text(DOCUMENT)
    return lake, Command(str(tmp_path / "warehouse")), tmp_path


def rows(numbers, status="NS"):
    return pa.Table.from_pylist(
        [
            {
                "order_id": number,
                "customer_id": number % 20,
                "status": status[number % len(status)],
                "cents": 500 if number == 59 else 900 + number % 30,
                "ordered": dt.date(2025, 1, 1) + dt.timedelta(days=number % 30),
            }
            for number in numbers
        ],
        schema=ORDERS,
    )


EUROS = sum(rows(range(60))["cents"].to_pylist()) / 100


def test_import_check_and_the_exit_code(shop):
    lake, run, folder = shop
    planned = run("semantics", "import", folder / "shop.yaml", "--dry-run", "--json").json
    assert len(planned["added"]) == 7
    assert not lake.table_exists("semantics.statements")
    done = run("semantics", "import", folder / "shop.yaml", "--by", "Ann", "--json").json
    assert done["contradicted"] == []
    table = lake.load_table("shop.orders")
    assert table.schema().find_field("cents").doc == "Gross, in cents."
    assert table.properties["comment"].startswith("Orders of the web shop.")
    checked = run("semantics", "check", "--json")
    assert checked.code == 0
    assert {one["state"] for one in checked.json} == {"verified"}
    table.append(rows([60], status="X"))
    failed = run("semantics", "check", "shop.orders", "--json")
    assert failed.code == 1
    states = {one["id"]: one for one in failed.json}
    assert states["shop.orders.status/codes"]["state"] == "contradicted"
    assert "X (1 rows)" in states["shop.orders.status/codes"]["reason"]
    assert lake.load_table("shop.orders").schema().find_field("status").doc is None
    shown = run("semantics", "check").out
    assert "contradicted" in shown
    assert "other values occur: X" in shown
    assert "contradicted" in run("describe", "shop.orders").out


def test_metadata_alone_reads_no_data(shop):
    _, run, folder = shop
    run("semantics", "import", folder / "shop.yaml")
    assert run("semantics", "check", "--metadata-only").code == 0


def test_what_is_exported_is_imported_alike(shop):
    _, run, folder = shop
    run("semantics", "import", folder / "shop.yaml", "--by", "Ann")
    run("semantics", "export", "--out", folder / "again.yaml")
    again = run("semantics", "import", folder / "again.yaml", "--json").json
    assert (again["added"], again["changed"], again["removed"]) == ([], [], [])
    run("semantics", "export", "--form", "osi", "--out", folder / "osi.json")
    from_osi = run("semantics", "import", folder / "osi.json", "--json").json
    assert (from_osi["added"], from_osi["changed"], from_osi["removed"]) == ([], [], [])


def test_what_dbt_takes_is_read_back_and_what_it_does_not_take_is_told(shop):
    """dbt itself is asked by `make conformance-dbt`."""
    _, run, folder = shop
    run("semantics", "import", folder / "shop.yaml", "--by", "Ann")
    out = folder / "dbt.json"
    assert "needs a name" in run("semantics", "export", "--form", "dbt", "--out", out).err
    options = ("--form", "dbt", "--database", "wh", "--out", out, "--json")
    left_out = run("semantics", "export", *options).json["left_out"]
    (model,) = json.loads(out.read_text())["semantic_model"]
    datasets = {one["source"]: one for one in model["datasets"]}
    roles = {}
    for dataset in datasets.values():
        key = dataset.get("primary_key", [])
        assert key in ([], [dataset["name"]])
        references = {r["to"] for r in model["relationships"] if r["from"] == dataset["name"]}
        for field in dataset.get("fields", ()):
            entity = field["name"] in {*key, *references}
            assert roles.setdefault(field["name"], entity) == entity, "one name, one role"
    assert datasets.keys() == {"wh.shop.orders", "wh.shop.customers"}
    assert [one.partition(":")[0] for one in left_out] == [
        "relationship shop_orders_customer_id_shop_customers",
        "columns of shop_customers that are no references",
        "metric turnover",
    ]
    again = run("semantics", "import", out, "--json").json
    assert (again["added"], again["changed"], again["removed"]) == ([], [], [])


def test_the_editor_changes_one_table(shop, monkeypatch):
    _, run, folder = shop
    run("semantics", "import", folder / "shop.yaml")
    monkeypatch.setattr(click, "edit", lambda text, extension: text.replace("web shop", "shop"))
    shown = run("describe", "shop.orders", "--edit", "--json").json
    assert [one["text"] for one in shown if one["kind"] == "description"] == ["Orders of the shop."]
    monkeypatch.setattr(
        click, "edit", lambda text, extension: "table: shop.orders\nstatements: []\n"
    )
    assert run("describe", "shop.orders", "--edit", "--json").json == []
    monkeypatch.setattr(
        click, "edit", lambda text, extension: DOCUMENT.replace("shop.orders", "shop.nothing")
    )
    assert "shop.nothing" in run("describe", "shop.orders", "--edit").err


def test_proposals_come_with_evidence_that_holds(shop):
    _, run, folder = shop
    reports = folder / "scans.jsonl"
    report = {
        "table": "shop.orders",
        "predicate": "status = 'N'",
        "projection": ["order_id", "status"],
    }
    reports.write_text("\n".join([json.dumps(report)] * 12))
    found = run("semantics", "suggest", "--reports", reports, "--json").json
    said = {(one["kind"], one.get("column"), one["table"]): one for one in found}
    assert said["grain", None, "shop.orders"]["key"] == ["order_id"]
    assert set(said["codes", "status", "shop.orders"]["values"]) == {"N", "S"}
    joins = [one["to"] for one in found if one["kind"] == "join" and one["table"] == "shop.orders"]
    assert ["shop.customers.id"] in joins
    assert said["warning", "cents", "shop.orders"]["evidence"]["to_factor"] == 100
    texts = " ".join(one["text"] for one in found)
    assert "None of 12 scans read customer_id, cents, ordered." in texts
    assert "12 of 12 scans filter by" in texts
    (folder / "proposed.yaml").write_text(run("semantics", "suggest").out)
    imported = run("semantics", "import", folder / "proposed.yaml", "--json").json
    assert len(imported["added"]) >= 5
    assert imported["contradicted"] == []


def test_dbt_and_foreign_osi_files_are_understood(shop):
    _, run, folder = shop
    (folder / "schema.yml").write_text(
        """
version: 2
models:
- name: orders
  description: Orders.
  meta: {owner: Sales}
  columns:
  - {name: order_id, data_tests: [unique, not_null]}
  - name: status
    description: Where it is.
    data_tests:
    - accepted_values: {arguments: {values: [N, S]}}
  - name: customer_id
    data_tests:
    - relationships: {arguments: {to: ref('customers'), field: id}}
sources:
- name: shop
  freshness: {error_after: {count: 2, period: day}}
  tables:
  - {name: totals, description: Sums., loaded_at_field: euros}
"""
    )
    imported = run("semantics", "import", folder / "schema.yml", "--json").json
    assert len(imported["added"]) == 9
    assert imported["contradicted"] == []
    (folder / "foreign.yaml").write_text(
        """
version: 0.1.1
semantic_model:
- name: shop
  datasets:
  - name: orders
    source: '"warehouse"."shop"."orders"'
    primary_key: [orders]
    fields:
    - {name: orders, expression: {dialects: [{dialect: ANSI_SQL, expression: order_id}]}}
    - {name: customers, expression: {dialects: [{dialect: ANSI_SQL, expression: customer_id}]}}
    - name: both
      expression: {dialects: [{dialect: ANSI_SQL, expression: "order_id || '|' || status"}]}
      description: Computed, no column.
    - name: order_state
      expression: {dialects: [{dialect: ANSI_SQL, expression: status}]}
      description: Where it is.
      ai_context: {synonyms: [state]}
  - {name: customers, source: shop.customers}
  relationships:
  - {name: c, from: orders, to: customers, from_columns: [customers], to_columns: [id]}
  metrics:
  - name: turnover
    expression: {dialects: [{dialect: ANSI_SQL, expression: SUM(orders.cents) / 100}]}
"""
    )
    foreign = run("semantics", "import", folder / "foreign.yaml", "--json").json
    assert foreign["contradicted"] == []
    kinds = sorted(one["kind"] for one in run("semantics", "check", "shop.orders", "--json").json)
    assert kinds == ["description", "grain", "join", "metric", "synonyms"]
    keyed = (folder / "foreign.yaml").read_text().replace("key: [orders]", "key: [both]")
    (folder / "foreign.yaml").write_text(keyed)
    run("semantics", "import", folder / "foreign.yaml", "--json")
    (grain,) = [
        one for one in run("semantics", "check", "shop.orders", "--json").json
        if one["kind"] == "grain"
    ]  # fmt: skip
    assert (grain["key"], grain["state"]) == (["order_id", "status"], "verified")


def test_errors_name_the_file_and_the_statement(shop):
    _, run, folder = shop
    (folder / "bad.yaml").write_text(DOCUMENT.replace("column: cents\n", "column: pence\n"))
    failed = run("semantics", "import", folder / "bad.yaml")
    assert failed.code == 1
    assert "no column pence" in failed.err
