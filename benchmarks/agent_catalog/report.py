"""`python -m benchmarks.agent_catalog.report`: the kept result as tables and a plot of the docs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks" / "results" / "agent_catalog.json"
PAGE = ROOT / "docs" / "agents_measured.md"
PICTURE = ROOT / "docs" / "images" / "agent_catalog.png"
BEGIN = "<!-- written by benchmarks/agent_catalog/report.py -->"
END = "<!-- end of what it wrote -->"


def page_with(page: str, result: dict[str, Any]) -> str:
    """The page with the result between its markers."""
    before, _, behind = page.partition(BEGIN)
    _, _, after = behind.partition(END)
    return f"{before}{BEGIN}\n\n{tables(result)}\n\n{END}{after}"


def tables(result: dict[str, Any]) -> str:
    """The result in Markdown."""
    parts = [_reader(result), _facts(result), _harm(result), _compared(result), _failures(result)]
    return "\n\n".join("\n".join(part) for part in parts)


def _reader(result: dict[str, Any]) -> Iterator[str]:
    kinds = sorted(result["kinds"])
    yield f"{result['questions']} questions at seeds {result['seeds']}, budget 4,000 tokens:"
    yield ""
    yield (
        "| condition | reader right | Wilson 95 % | at 500 / 1,500 | table choice F1 (P, R) | "
        "refused rightly / wrongly / not |"
    )
    yield "|---|---|---|---|---|---|"
    for name, scores in result["conditions"].items():
        reader, choice, refused = scores["reader"], scores["table_choice"], scores["refusals"]
        low, high = reader["wilson_95"]
        budgets = reader["by_budget"]
        yield (
            f"| {name} | {reader['right']} = {reader['accuracy']:.0%} | {low:.0%} to {high:.0%} | "
            f"{budgets['500']:.0%} / {budgets['1500']:.0%} | {choice['f1']:.2f} "
            f"({choice['precision']:.2f}, {choice['recall']:.2f}) | "
            f"{refused['right']} / {refused['wrong']} / {refused['missed']} |"
        )
    yield ""
    yield "Right by kind of question:"
    yield ""
    yield f"| condition | {' | '.join(kinds)} |"
    yield "|---" * (len(kinds) + 1) + "|"
    for name, scores in result["conditions"].items():
        by_kind = scores["reader"]["by_kind"]
        yield f"| {name} | {' | '.join(by_kind[kind] for kind in kinds)} |"


def _facts(result: dict[str, Any]) -> Iterator[str]:
    yield "Required facts that are in the answer, and what the answer costs:"
    yield ""
    yield (
        "| condition | at 500 | at 1,500 | at 4,000 | mean bytes, tokens at 1,500 | "
        "all that could be shown: tokens |"
    )
    yield "|---|---|---|---|---|---|"
    for name, scores in result["conditions"].items():
        facts, size = scores["fact_recall"], scores["size"]["1500"]
        yield (
            f"| {name} | {facts['500']:.0%} | {facts['1500']:.0%} | {facts['4000']:.0%} | "
            f"{size['bytes']:,}, {size['tokens']:,} | {scores['whole_text']['tokens']:,} |"
        )


def _harm(result: dict[str, Any]) -> Iterator[str]:
    answers = result["questions"] * len(result["seeds"])
    yield f"False statements in {answers} answers of 4,000 tokens after the evolution:"
    yield ""
    yield "| condition | without a mark | marked | replaced or stale tables without a word of it |"
    yield "|---|---|---|---|"
    for name, scores in result["conditions"].items():
        harm = scores["harmful"]["4000"]
        yield (
            f"| {name} | {harm['false_unmarked']} | {harm['false_marked']} | "
            f"{harm['replaced_tables_unmarked']} |"
        )


def _compared(result: dict[str, Any]) -> Iterator[str]:
    yield "| pair | only the first is right | only the second | exact McNemar p |"
    yield "|---|---|---|---|"
    for name, compared in result["compared"].items():
        only = f"{compared['only_first']} | {compared['only_second']}"
        yield f"| {name} | {only} | {compared['p']:.3g} |"
    yield ""
    for name, control in result["controls"].items():
        held = ", ".join(f"{key} {value}" for key, value in control.items() if key != "holds")
        yield f"- Control: {name}: {'holds' if control['holds'] else '**fails**'} ({held})."
    shared = ", ".join(f"{share:.1%} of {name}" for name, share in result["overlap"].items())
    yield "- Runs of words that the questions share with the semantics:"
    yield f"  {shared}."
    yield f"- Digest of the frozen reader and semantics: `{result['frozen']}`."


def _failures(result: dict[str, Any]) -> Iterator[str]:
    yield "Every failure at the first seed that has it (SQL is in the result file):"
    yield ""
    yield "| condition | questions |"
    yield "|---|---|"
    for name, failures in result["failures"].items():
        listed = ", ".join(f"{failure['id']} {failure['outcome']}" for failure in failures)
        yield f"| {name} | {listed} |"


def draw(result: dict[str, Any], picture: Path) -> None:
    """Accuracy with intervals, and facts by budget."""
    from matplotlib import pyplot  # noqa: ICN001, PLC0415 - needed here alone, and slow to import

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    names = list(result["conditions"])
    shares = [result["conditions"][name]["reader"]["accuracy"] for name in names]
    bounds = [result["conditions"][name]["reader"]["wilson_95"] for name in names]
    below = [share - low for share, (low, _) in zip(shares, bounds, strict=True)]
    above = [high - share for share, (_, high) in zip(shares, bounds, strict=True)]
    left.bar(names, shares, yerr=[below, above], color="#1d4ed8", ecolor="#c2410c", capsize=4)
    left.set(title="reader right, Wilson 95 %", ylim=(0, 1))
    left.tick_params(axis="x", labelrotation=25)
    for name in names:
        recall = result["conditions"][name]["fact_recall"]
        right.plot(list(recall), list(recall.values()), marker="o", label=name)
    right.set(title="required facts in the answer, by tokens", ylim=(0, 1.02))
    right.legend(fontsize=8)
    figure.savefig(picture, dpi=110)


def main() -> None:
    result = json.loads(RESULT.read_text("utf-8"))
    PAGE.write_text(page_with(PAGE.read_text("utf-8"), result), "utf-8")
    draw(result, PICTURE)
    print(f"{PAGE}, {PICTURE}")


if __name__ == "__main__":
    main()
