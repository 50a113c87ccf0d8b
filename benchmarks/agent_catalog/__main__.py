"""`python -m benchmarks.agent_catalog [--questions FILE] [--json OUT]`: what a catalog is worth.

Every condition is served by the code of `lakehouse mcp`. The reader is a fixed program, no language
model: its accuracy is a lower bound of what a text is good for. With `--model NAME --endpoint URL`
a model at an OpenAI-compatible endpoint takes its place, with the tools of `lakehouse mcp`; what it
said is kept in `--transcripts FOLDER`, and `--rescore FOLDER` grades that again without it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table

from benchmarks.agent_catalog.conditions import CONDITIONS
from benchmarks.agent_catalog.domain.nordlicht_tables import SCHEMAS
from benchmarks.agent_catalog.evaluation import BUDGETS, evaluate
from benchmarks.agent_catalog.model.chat_endpoint import ChatEndpoint
from benchmarks.agent_catalog.model.conversation import Limits
from benchmarks.agent_catalog.model.model_run import ModelRun, ask_all, score
from benchmarks.agent_catalog.questions import Question, load_questions
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
    for name, scores in result["conditions"].items():
        reader, choice, refusals = scores["reader"], scores["table_choice"], scores["refusals"]
        low, high = reader["wilson_95"]
        most = str(BUDGETS[-1])
        table.add_row(
            name,
            f"{reader['right']}/{result['questions']} = {reader['accuracy']:.0%}",
            f"{low:.0%}-{high:.0%}",
            f"{choice['f1']:.2f}",
            f"{choice['precision']:.2f}",
            f"{choice['recall']:.2f}",
            " / ".join(f"{share:.0%}" for share in scores["fact_recall"].values()),
            f"{refusals['right']}/{refusals['wrong']}/{refusals['missed']}",
            str(scores["harmful"][most]["false_unmarked"]),
            str(scores["size"][most]["tokens"]),
        )
    console.print(table)
    show_compared(result, console)


def show_compared(result: dict[str, Any], console: Console) -> None:
    """Pairs of conditions, controls, and every failure."""
    for name, compared in result["compared"].items():
        only = f"{compared['only_first']} to {compared['only_second']}"
        console.print(f"{name}: alone right {only}, exact McNemar p = {compared['p']:.3g}")
    for name, control in result["controls"].items():
        held = {key: value for key, value in control.items() if key != "holds"}
        console.print(f"control: {name}: {'holds' if control['holds'] else 'FAILS'} {held}")
    console.print(f"runs of stems that questions share with the semantics: {result['overlap']}")
    for name in result["failures"]:
        for failure in result["failures"][name]:
            figures = f"{failure['value']} for {failure['expected']}"
            console.print(
                f"{name} {failure['id']} {failure['outcome']}: {figures} | "
                f"{failure['refusal'] or failure['sql']}",
                style="dim", markup=False, highlight=False,
            )  # fmt: skip


def show_model(result: dict[str, Any], console: Console) -> None:
    """A model's result for people."""
    table = Table(title=f"{result['model']}: {result['questions']} questions, {result['seeds']}")
    heads = ("condition", "right", "Wilson 95 %", "table F1", "P", "R", "facts seen",
             "refused right/wrong/missed", "unanswered", "turns", "tokens", "seconds")  # fmt: skip
    for head in heads:
        table.add_column(head, overflow="fold")
    for name, scores in result["conditions"].items():
        reader, choice, refusals = scores["reader"], scores["table_choice"], scores["refusals"]
        low, high = reader["wilson_95"]
        table.add_row(
            name,
            f"{reader['right']}/{result['questions']} = {reader['accuracy']:.0%}",
            f"{low:.0%}-{high:.0%}",
            f"{choice['f1']:.2f}",
            f"{choice['precision']:.2f}",
            f"{choice['recall']:.2f}",
            f"{scores['facts_seen']:.0%}",
            f"{refusals['right']}/{refusals['wrong']}/{refusals['missed']}",
            str(scores["not_answered"]),
            f"{scores['turns']:.1f}",
            f"{scores['tokens']:,}{'' if scores['tokens_counted'] else ' estimated'}",
            f"{scores['seconds']:.1f}",
        )
    console.print(table)
    show_compared(result, console)


def parsed() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_catalog", description=__doc__)
    parser.add_argument("--questions", type=Path, default=DEVELOPMENT, help="JSON, as domain/ has")
    parser.add_argument(
        "--json", type=Path, help=f"where the result goes; {RESULT.name} by default"
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="1 2 3, or 1 with a model")
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows; stored answers at 1")
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS), choices=CONDITIONS)
    model = parser.add_argument_group("a model in the reader's place")
    model.add_argument("--model", help="its name at the endpoint")
    model.add_argument("--endpoint", help="URL up to /v1")
    model.add_argument("--api-key-env", help="environment variable that holds the key")
    model.add_argument("--transcripts", type=Path, help="folder; what is in it is not asked again")
    model.add_argument("--rescore", type=Path, metavar="FOLDER", help="grade transcripts again")
    model.add_argument("--turns", type=int, default=12, help="replies to one question, at most")
    model.add_argument("--tokens", type=int, default=100_000, help="for one question, at most")
    model.add_argument("--seconds", type=float, default=300.0, help="for one question, at most")
    model.add_argument("--parallel", type=int, default=4, help="questions at a time")
    arguments = parser.parse_args()
    if bool(arguments.model) != bool(arguments.endpoint):
        parser.error("--model and --endpoint go together")
    if arguments.model and arguments.rescore:
        parser.error("--rescore asks no model")
    if arguments.model and not arguments.transcripts:
        parser.error("--transcripts says where the conversations are kept")
    return arguments


def model_result(arguments: argparse.Namespace, questions: list[Question]) -> dict[str, Any]:
    """Ask a model, or take what it said; and grade it. Raises InvalidInputError."""
    run = ModelRun(
        questions,
        arguments.seeds or [1],
        arguments.conditions,
        arguments.rescore or arguments.transcripts,
        arguments.scale,
    )
    if arguments.model:
        key = os.environ.get(arguments.api_key_env) if arguments.api_key_env else None
        if arguments.api_key_env and not key:
            raise InvalidInputError(f"The environment has no {arguments.api_key_env}")
        endpoint = ChatEndpoint(arguments.endpoint, arguments.model, key)
        limits = Limits(arguments.turns, arguments.tokens, arguments.seconds)
        anyio.run(ask_all, run, endpoint, limits, arguments.parallel)
    return score(run)


def main() -> int:
    arguments = parsed()
    start = time.perf_counter()
    asks_model = bool(arguments.model or arguments.rescore)
    try:
        questions = load_questions(arguments.questions, set(SCHEMAS), owners_statements())
        result = (
            model_result(arguments, questions)
            if asks_model
            else evaluate(
                questions, arguments.seeds or [1, 2, 3], arguments.conditions, scale=arguments.scale
            )
        )
    except InvalidInputError as error:
        print(error, file=sys.stderr)
        return 2
    result = {
        "benchmark": "agent_catalog",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "questions_file": arguments.questions.name,
        **result,
        "seconds": round(time.perf_counter() - start, 1),
    }
    console = Console(width=170)
    (show_model if asks_model else show)(result, console)
    default = RESULT if arguments.questions == DEVELOPMENT and not asks_model else None
    out = arguments.json or default
    if out is not None:
        out.write_text(json.dumps(result, indent=1, ensure_ascii=False, default=str) + "\n")
        console.print(f"{result['seconds']} s; written to {out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
