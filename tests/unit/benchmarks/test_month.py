"""A few days of `benchmarks.month`: worlds that answer alike, a budget that holds, a writer."""

from __future__ import annotations

import copy

import pytest

from benchmarks.month import BUDGET, WORLDS, world
from benchmarks.month_report import plot, report


@pytest.mark.slow
def test_a_feed_is_tuned_beside_its_writer_and_all_worlds_answer_alike(monkeypatch, capsys):
    monkeypatch.setenv("LAKEHOUSE_REWRITE_BUDGET", str(BUDGET))
    result = {"budget": BUDGET, **{name: world(name, 6000, 2) for name in WORLDS}}
    report(result)
    shown = capsys.readouterr().out
    assert "kept no partitions; sorted by user_id" in shown
    assert len(result["tuned"]["days"]) == 2
    assert not result["untuned"]["steps"]
    assert result["last_day_tuned_to"]["untuned"]["bytes"] < 1
    (first, _) = result["tuned"]["days"]
    assert 0 < first["tuned_bytes"] <= BUDGET

    for field, value in (("answers_sha256", "other"), ("tuned_bytes", BUDGET + 1)):
        wrong = copy.deepcopy(result)
        wrong["tuned"]["days"][1][field] = value
        with pytest.raises(AssertionError, match=r"day 2|nights of \[2\]"):
            report(wrong)


def test_a_plot_has_each_series_by_its_letter_the_first_above():
    lines = plot("KiB", {"tuned": [1, 10, 10], "untuned": [1, 10, 100]}).splitlines()
    assert lines[0] == "KiB by day (t tuned, u untuned)"
    assert lines[1].split("|") == [f"{100:>10} ", "    u"]
    assert lines[-1].split("|") == [f"{1:>10} ", "t    "]
    assert sum("t" in line for line in lines[1:]) == 2
