"""Who is told of what, held against runs of a real instance."""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg
import pytest

from lakehouse.errors import InvalidInputError
from lakehouse.orchestration import by_command, failure_alerts

DAYS = dg.DailyPartitionsDefinition("2026-06-01")


@dg.asset(partitions_def=DAYS)
def broken() -> None:
    raise InvalidInputError("raw.events: 3 lines\nhave no time", table="raw.events")


@dg.asset
def declared() -> None:
    raise dg.Failure(description="the audit failed", allow_retries=False)


@dg.asset
def fine() -> int:
    return 1


def told_of(asset: dg.AssetsDefinition, url: str = "", **kwargs: object) -> list[str]:
    """The texts that one evaluation of the sensor sends after a run of the asset."""
    texts: list[str] = []
    sensor = failure_alerts(texts.append, url=url)
    job = dg.define_asset_job("job", dg.AssetSelection.assets(*asset.keys))
    defs = dg.Definitions(assets=[asset], jobs=[job], sensors=[sensor])
    with dg.instance_for_test() as instance:
        made = defs.resolve_job_def("job").execute_in_process(
            instance=instance, raise_on_error=False, **kwargs
        )
        if not made.success:
            event = next(one for one in made.all_events if one.is_run_failure)
            context = dg.build_run_status_sensor_context(
                sensor_name=sensor.name,
                dagster_instance=instance,
                dagster_run=made.dagster_run,
                dagster_event=event,
            ).for_run_failure()
            sensor(context)
    return texts


def test_the_text_says_what_failed_why_and_where_to_look() -> None:
    (text,) = told_of(broken, "http://ui:3000/", partition_key="2026-06-02")
    first, *why, last = text.splitlines()
    assert first == "job failed for 2026-06-02."
    assert [line.partition(": ")[0] for line in why] == ["broken"] * len(why)
    assert why[0] == "broken: InvalidInputError: raw.events: 3 lines"
    assert "http://ui:3000/runs/" in last


def test_a_failure_that_says_why_is_told_as_it_says() -> None:
    (text,) = told_of(declared)
    assert "declared: " in text
    assert "the audit failed" in text
    assert "in the UI" in text


def test_nobody_is_told_of_what_went_well_or_is_tried_again() -> None:
    assert told_of(fine) == []
    assert told_of(declared, tags={"dagster/will_retry": "true"}) == []


def test_a_command_gets_the_text_as_its_input(tmp_path: Path) -> None:
    path = tmp_path / "said.txt"
    write = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    by_command(f'{sys.executable} -c "{write}" "{path}"')("two\nlines")
    assert path.read_text() == "two\nlines"


def test_a_command_that_fails_says_so() -> None:
    with pytest.raises(Exception, match="exit status 3"):
        by_command(f'{sys.executable} -c "raise SystemExit(3)"')("x")
