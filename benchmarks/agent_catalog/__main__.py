"""`python -m benchmarks.agent_catalog [--questions FILE] [--json OUT]`: what a catalog is worth.

Every condition is served by the code of `lakehouse mcp`. The reader is a fixed program, no language
model: its accuracy is a lower bound of what a text is good for.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.agent_catalog.conditions import CONDITIONS
from benchmarks.agent_catalog.domain.nordlicht_tables import SCHEMAS
from benchmarks.agent_catalog.evaluation import BUDGETS, evaluate
from benchmarks.agent_catalog.questions import load_questions
from lakehouse.errors import InvalidInputError

FOLDER = Path(__file__).parent
DEVELOPMENT = FOLDER / "domain" / "dev_questions.json"
RESULT = FOLDER.parent / "results" / "agent_catalog.json"


def owners_statements() -> set[str]:
    """Ids of the owners' notes."""
    return set(
        re.findall(r"\*\*(S\d{3})\*\*", (FOLDER / "domain" / "owners_notes.txt").read_text("utf-8"))
    )


def show(result: dict[str, Any], console: Console) -> None:
    """The result for people."""
    table = Table(title=f"{result['questions']} questions, seeds {result['seeds']}")
    heads = ("condition", "reader", "Wilson 95 %", "table F1", "P", "R", "facts 500/1500/4000",
             "refused right/wrong/missed", "false unmarked", "tokens")  # fmt: skip
    for head in heads:
        table.add_column(head, overflow="fold")
    for name, one in result["conditions"].items():
        reader, choice, refusals = one["reader"], one["table_choice"], one["refusals"]
        low, high = reader["wilson_95"]
        most = str(BUDGETS[-1])
        table.add_row(
            name,
            f"{reader['right']}/{result['questions']} = {reader['accuracy']:.0%}",
            f"{low:.0%}-{high:.0%}",
            f"{choice['f1']:.2f}",
            f"{choice['precision']:.2f}",
            f"{choice['recall']:.2f}",
            " / ".join(f"{share:.0%}" for share in one["fact_recall"].values()),
            f"{refusals['right']}/{refusals['wrong']}/{refusals['missed']}",
            str(one["harmful"][most]["false_unmarked"]),
            str(one["size"][most]["tokens"]),
        )
    console.print(table)
    for name, one in result["compared"].items():
        only = f"{one['only_first']} to {one['only_second']}"
        console.print(f"{name}: alone right {only}, exact McNemar p = {one['p']:.3g}")
    for name, one in result["controls"].items():
        held = {key: value for key, value in one.items() if key != "holds"}
        console.print(f"control: {name}: {'holds' if one['holds'] else 'FAILS'} {held}")
    console.print(f"runs of stems that questions share with the semantics: {result['overlap']}")
    for name in result["failures"]:
        for one in result["failures"][name]:
            figures = f"{one['value']} for {one['expected']}"
            console.print(
                f"{name} {one['id']} {one['outcome']}: {figures} | {one['refusal'] or one['sql']}",
                style="dim", markup=False, highlight=False,
            )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_catalog", description=__doc__)
    parser.add_argument("--questions", type=Path, default=DEVELOPMENT, help="JSON, as domain/ has")
    parser.add_argument(
        "--json", type=Path, help=f"where the result goes; {RESULT.name} by default"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows; stored answers at 1")
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS), choices=CONDITIONS)
    arguments = parser.parse_args()
    start = time.perf_counter()
    try:
        questions = load_questions(arguments.questions, set(SCHEMAS), owners_statements())
        result = evaluate(questions, arguments.seeds, arguments.conditions, scale=arguments.scale)
    except InvalidInputError as error:
        parser.exit(2, f"{error}\n")
    result = {
        "benchmark": "agent_catalog",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "questions_file": arguments.questions.name,
        **result,
        "seconds": round(time.perf_counter() - start, 1),
    }
    console = Console(width=170)
    show(result, console)
    out = arguments.json or (RESULT if arguments.questions == DEVELOPMENT else None)
    if out is not None:
        out.write_text(json.dumps(result, indent=1, ensure_ascii=False, default=str) + "\n")
        console.print(f"{result['seconds']} s; written to {out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
