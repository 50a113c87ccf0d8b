"""Asks a model every question in every condition, keeps what was said, and grades it.

A conversation is kept as a file of JSON: `FOLDER/<condition>/<seed>/<question>.json`. Grading reads
only these files, so that it can be done again without the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp.client import Client

from benchmarks.agent_catalog.conditions import EVOLVED, Shown, conditions
from benchmarks.agent_catalog.evaluation import (
    HEADLINE,
    Tally,
    answered_part,
    mean,
    result_of,
    tables_chosen,
)
from benchmarks.agent_catalog.grading import Rows, Said, grade, recalled, sentences
from benchmarks.agent_catalog.lakes import today
from benchmarks.agent_catalog.model.chat_endpoint import ChatEndpoint
from benchmarks.agent_catalog.model.conversation import (
    ANSWERED,
    SYSTEM,
    Limits,
    Transcript,
    converse,
)
from benchmarks.agent_catalog.model.served_condition import ServedCondition
from benchmarks.agent_catalog.questions import Question
from lakehouse.agents.mcp_server import mcp_server
from lakehouse.errors import InvalidInputError


@dataclass(frozen=True)
class ModelRun:
    """What is asked, and where the answers are kept.

    Attributes:
        questions: that are asked.
        seeds: of the domain.
        names: of the conditions.
        folder: of the transcripts.
        scale: of the rows; stored answers are checked at 1.
    """

    questions: Sequence[Question]
    seeds: Sequence[int]
    names: Sequence[str]
    folder: Path
    scale: float = 1.0

    def file(self, name: str, seed: int, question: Question) -> Path:
        """Of one conversation."""
        return self.folder / name.replace(" ", "_") / str(seed) / f"{question.key}.json"


async def ask_all(run: ModelRun, endpoint: ChatEndpoint, limits: Limits, parallel: int = 4) -> None:
    """Ask what has no transcript yet, so that a run that ended early goes on.

    Raises:
        InvalidInputError: the endpoint cannot be used at all, or the folder holds another model's.
    """
    turns = anyio.CapacityLimiter(parallel)
    for seed in run.seeds:
        wanted = [
            (name, question, run.file(name, seed, question))
            for name in run.names
            for question in run.questions
        ]
        for _, _, file in wanted:
            _check_same(file, endpoint.model)
        shown = conditions(seed, run.scale, list(run.names))
        unusable: list[InvalidInputError] = []
        async with anyio.create_task_group() as group:
            for name, question, file in wanted:
                if not file.exists():
                    posed = _Turn(shown[name], question, file, endpoint, limits)
                    group.start_soon(_ask, posed, turns, group.cancel_scope, unusable)
        if unusable:
            raise unusable[0]


@dataclass(frozen=True, slots=True)
class _Turn:
    shown: Shown
    question: Question
    file: Path
    endpoint: ChatEndpoint
    limits: Limits


async def _ask(
    posed: _Turn,
    turns: anyio.CapacityLimiter,
    all_of_them: anyio.CancelScope,
    unusable: list[InvalidInputError],
) -> None:
    async with turns, Client(mcp_server(ServedCondition(posed.shown))) as client:
        began = anyio.current_time()
        day, text = today().isoformat(), posed.question.text
        try:
            done = await converse(posed.endpoint, client, text, day, posed.limits)
        except InvalidInputError as error:
            unusable.append(error)
            all_of_them.cancel()
            return
        seconds = anyio.current_time() - began
    document = {
        "model": posed.endpoint.model,
        "question": posed.question.key,
        "prompt": digest(SYSTEM),
        "limits": asdict(posed.limits),
        "seconds": round(seconds, 1),
        **asdict(done),
    }
    posed.file.parent.mkdir(parents=True, exist_ok=True)
    written = posed.file.with_suffix(".part")
    written.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    written.rename(posed.file)


def score(run: ModelRun) -> dict[str, Any]:
    """Grade the transcripts; nothing is asked.

    Raises:
        InvalidInputError: one is missing, or is none.
    """
    tallies = {name: Tally() for name in run.names}
    transcripts: dict[str, list[tuple[dict[str, Any], Transcript]]] = {
        name: [] for name in run.names
    }
    for seed in run.seeds:
        shown = conditions(seed, run.scale, ["C", *run.names])
        says, rows = sentences(shown["C"]), {}
        for name in run.names:
            condition = shown[name]
            state = rows.setdefault(id(condition.tables), Rows(condition.tables))
            for question in run.questions:
                document, transcript = read_transcript(run.file(name, seed, question))
                transcripts[name].append((document, transcript))
                known_sentences = says if name == "C shuffled" else sentences(condition) or says
                _grade(
                    tallies[name],
                    name,
                    question,
                    state,
                    transcript,
                    known_sentences,
                    seed,
                    run.scale,
                )
    parts = {
        name: {**answered_part(run.questions, tally), **_cost(transcripts[name], tally)}
        for name, tally in tallies.items()
    }
    models = {document["model"] for pairs in transcripts.values() for document, _ in pairs}
    if len(models) != 1:
        raise InvalidInputError(f"{run.folder} holds transcripts of {', '.join(sorted(models))}")
    return {
        "model": models.pop(),
        "prompt": digest(SYSTEM),
        **result_of(run.questions, run.seeds, run.scale, tallies, parts),
    }


def _grade(
    tally: Tally, name: str, question: Question, rows: Rows, transcript: Transcript,
    sentences: Said, seed: int, scale: float,
) -> None:  # fmt: skip
    wanted = question.after if name in EVOLVED else question.before
    expected = rows.expected(question, wanted, seed, stored=scale == 1.0)
    reading = transcript.reading()
    result = grade(question, wanted, expected, rows, reading)
    tally.graded[HEADLINE].setdefault(question.key, []).append(result)
    share = recalled(question, transcript.tool_text(), sentences)
    if share is not None:
        tally.recall[HEADLINE].append(share)
    if wanted.tables:
        tally.choice.append(tables_chosen(wanted, reading.tables))


def _cost(pairs: Sequence[tuple[dict[str, Any], Transcript]], tally: Tally) -> dict[str, Any]:
    """What the conversations took, and which facts the tools' answers held."""
    answers = [transcript for _, transcript in pairs]
    return {
        "facts_seen": mean(tally.recall[HEADLINE]),
        "turns": mean(answer.turns for answer in answers),
        "tokens": round(mean(answer.tokens for answer in answers)),
        "tokens_counted": all(answer.counted for answer in answers),
        "seconds": mean(document["seconds"] for document, _ in pairs),
        "malformed": sum(answer.malformed for answer in answers),
        "not_answered": sum(answer.ended != ANSWERED for answer in answers),
    }


def read_transcript(file: Path) -> tuple[dict[str, Any], Transcript]:
    """A conversation from its file. Raises InvalidInputError, which names the file."""
    try:
        document = json.loads(file.read_text("utf-8"))
        names = Transcript.__dataclass_fields__
        return document, Transcript(**{name: document[name] for name in names})
    except OSError as error:
        raise InvalidInputError(f"The transcript {file} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{file} is no transcript: {error!r}") from error


def _check_same(file: Path, model: str) -> None:
    if not file.exists():
        return
    document, _ = read_transcript(file)
    if document["model"] != model:
        raise InvalidInputError(
            f"{file} is a transcript of {document['model']}, not of {model}: take another folder"
        )


def digest(text: str) -> str:
    """Sixteen hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
