"""`python -m benchmarks` knows every benchmark and reads its results; --quick keeps nothing."""

from __future__ import annotations

import importlib
import io
import json
from pathlib import Path

from rich.console import Console

every = importlib.import_module("benchmarks.__main__")


def shown(names, folder):
    text = io.StringIO()
    Console(width=160, file=text).print(every.show(names, folder))
    return text.getvalue()


def test_every_benchmark_is_run_and_read():
    runnable = {
        path.stem
        for path in every.FOLDER.glob("*.py")
        if "__main__" in path.read_text() and path.stem != "__main__"
    }
    assert runnable == set(every.QUICK) == set(every.RATIOS)
    assert every.existing() == list(every.QUICK)


def test_kept_results_are_readable():
    names = every.existing()
    text = shown(names, every.RESULTS)
    for name in names:
        assert name in text


def test_ratios_say_how_many_times_better_ours_is(tmp_path):
    row = {
        "case": "all rows",
        "contender": "spark.read.parquet",
        "ours_to_it": 0.5,
        "ours_to_it_processor": 2.0,
    }
    (tmp_path / "spark_read.json").write_text(
        json.dumps({"rows": [row, {**row, "contender": "lakehouse"}]})
    )
    lines = [line for line in shown(["spark_read", "commit"], tmp_path).splitlines() if "│" in line]
    assert [line.split("│")[-2].strip() for line in lines[:2]] == ["2.00", "0.50"]
    assert "not run yet" in lines[2]


def test_a_quick_run_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(every, "RESULTS", tmp_path)
    (tmp_path / "commit.json").write_text("kept")

    def overwrite(command, **_):
        name = command[2].removeprefix("benchmarks.")
        assert command[3:] == list(every.QUICK[name])
        (tmp_path / f"{name}.json").write_text("quick")
        return type("Done", (), {"returncode": 0 if name == "commit" else 3})

    monkeypatch.setattr(every.subprocess, "run", overwrite)
    assert every.run_quick(["commit", "plan_cost"]) == ["plan_cost"]
    assert [(path.name, path.read_text()) for path in Path(tmp_path).iterdir()] == [
        ("commit.json", "kept")
    ]
