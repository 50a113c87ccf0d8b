"""What lies in a package of assets is found, and becomes a pipeline."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import dagster as dg
import pytest

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.source import EventTime, Source
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.lakehouse_io_manager import LakehouseIOManager
from lakehouse.orchestration.automation.run_requests import COMPACT_JOB, TABLES_TAG
from lakehouse.orchestration.code_location import build_definitions
from lakehouse.orchestration.discovery import discover
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark

CLICKS = Source(
    name="clicks",
    event_time=EventTime("at"),
    first_day=date(2026, 6, 1),
    last_day=date(2026, 6, 30),
    bucket="user",
)
ORDERS = replace(CLICKS, name="orders", first_day=date(2026, 5, 1), last_day=date(2026, 6, 10))


def table(name, *inputs, **more):
    return DerivedTable(
        name=name, inputs=inputs, transform=lambda frames: frames[inputs[0]], **more
    )


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package of a name of its own; its modules are forgotten afterwards."""
    name = f"found_{tmp_path.name}"
    root = tmp_path / name
    root.mkdir()
    (root / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield root
    for module in [one for one in sys.modules if one.partition(".")[0] == name]:
        del sys.modules[module]


def test_sources_tables_and_plain_assets_are_found_wherever_they_lie(package: Path) -> None:
    (package / "shop").mkdir()
    (package / "shop" / "__init__.py").write_text("")
    (package / "shop" / "feed.py").write_text(
        "from datetime import date\n"
        "from lakehouse.ingestion.source import EventTime, Source\n"
        "SHOP = Source(name='shop', event_time=EventTime('at'), first_day=date(2026, 6, 1), "
        "bucket='user')\n"
    )
    (package / "shop" / "marts.py").write_text(
        f"from {package.name}.shop.feed import SHOP\n"
        "from lakehouse.orchestration.assets.derived_table import DerivedTable\n"
        "TABLES = (DerivedTable(name='marts.shop', inputs=(SHOP.table,), transform=lambda f: "
        "f[SHOP.table]),)\n"
        "_PRIVATE = DerivedTable(name='marts.no', inputs=(SHOP.table,), transform=lambda f: "
        "f[SHOP.table])\n"
    )
    (package / "plain.py").write_text(
        "import dagster as dg\n@dg.asset\ndef report(): pass\n"
        "daily = dg.ScheduleDefinition('daily', cron_schedule='@daily', target=[report])\n"
    )
    found = discover(importlib.import_module(package.name))
    assert [one.name for one in found.sources] == ["shop"]
    assert [one.name for one in found.derived] == ["marts.shop"]
    pipeline = found.pipeline("/landing")
    defs = dg.Definitions.merge(
        build_definitions(
            pipeline, LakehouseResource(catalog="file:///w", landing="/landing"), LakehouseSpark()
        ),
        found.others(),
    )  # fmt: skip
    dg.Definitions.validate_loadable(defs)
    keys = {key.to_user_string() for key in defs.resolve_all_asset_keys()}
    assert keys == {
        "landing/shop", "raw/shop", "raw/shop_landing", "raw/shop_quarantine", "marts/shop",
        "report", "lakehouse/state",
    }  # fmt: skip
    assert "daily" in {one.name for one in defs.get_repository_def().schedule_defs}


def test_tables_of_plain_assets_are_maintained(package: Path, tmp_path: Path) -> None:
    (package / "plain.py").write_text(
        "import dagster as dg\n"
        "import pyarrow as pa\n"
        "@dg.asset(key_prefix='marts', metadata={'write_mode': 'append'})\n"
        "def users() -> pa.Table: return pa.table({'id': [1]})\n"
        "@dg.asset(metadata={'table': 'marts.elsewhere'})\n"
        "def named() -> pa.Table: return pa.table({'id': [1]})\n"
        "@dg.asset(io_manager_key='files')\n"
        "def kept_in_files() -> int: return 1\n"
        "@dg.asset\n"
        "def notified() -> None: pass\n"
        "given = dg.AssetSpec('given')\n"
    )
    found = discover(importlib.import_module(package.name))
    pipeline = found.pipeline("")
    assert sorted(pipeline.maintained()) == [
        "lakehouse.publications",
        "lakehouse.tuning",
        "marts.elsewhere",
        "marts.users",
        "semantics.forgotten",
        "semantics.statements",
        "semantics.verifications",
    ]
    lakehouse = LakehouseResource(catalog=f"file://{tmp_path}/warehouse")
    defs = dg.Definitions.merge(
        build_definitions(pipeline, lakehouse, LakehouseSpark()),
        found.others(),
        dg.Definitions(resources={"files": dg.mem_io_manager}),
    )
    users = defs.resolve_assets_def(["marts", "users"])
    resources = {"io_manager": LakehouseIOManager(lakehouse=lakehouse, spark=LakehouseSpark())}
    assert all(dg.materialize([users], resources=resources).success for _ in range(6))
    table = lakehouse.lake().load_table("marts.users")
    assert len(table.scan().plan().files) == 6
    job = defs.resolve_job_def(COMPACT_JOB)
    assert job.execute_in_process(tags={TABLES_TAG: "marts.users"}).success
    assert len(table.refresh().scan().plan().files) == 1
    assert table.scan().count() == 6


def test_a_table_of_two_sources_has_the_days_of_both_and_belongs_to_no_source_alone() -> None:
    both = table("marts.both", "raw.clicks", "clean.orders", day_column="event_ts")
    clean = table("clean.orders", "raw.orders", day_column="event_ts")
    users = table("marts.users", "marts.both")
    pipeline = Pipeline((CLICKS, ORDERS), (both, users, clean), "/landing")
    assert [one.name for one in pipeline.in_order()] == [
        "clean.orders",
        "marts.both",
        "marts.users",
    ]
    assert pipeline.sources_of(users) == (CLICKS, ORDERS)
    assert [one.name for one in pipeline.derived_from(ORDERS)] == ["clean.orders"]
    days = pipeline.partitions(both).get_partition_keys()
    assert (days[0], days[-1]) == ("2026-05-01", "2026-06-30")
    assert pipeline.partitions(users) is None
    dg.Definitions.validate_loadable(
        build_definitions(
            pipeline, LakehouseResource(catalog="file:///w", landing="/landing"), LakehouseSpark()
        )
    )  # fmt: skip


def test_contradictions_are_errors_that_name_the_tables() -> None:
    with pytest.raises(InvalidInputError, match=r"read each other: a\.x, a\.y"):
        Pipeline((), (table("a.x", "a.y"), table("a.y", "a.x")), "/landing").assets()
    with pytest.raises(InvalidInputError, match=r"the same table: a\.x"):
        Pipeline((), (table("a.x", "b.y"), table("a.x", "b.z")), "/landing").assets()
    with pytest.raises(InvalidInputError, match=r"a\.x is daily, and none of its inputs"):
        Pipeline((), (table("a.x", "other.table", day_column="at"),), "/landing").assets()
