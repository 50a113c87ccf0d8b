"""Files that land, and what their lines are, told by plain Python from the files alone."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

FIRST = datetime(2026, 6, 1, tzinfo=UTC)
DAYS, GOOD = 3, 30_000
TYPES = {"id": int, "at": str, "user_id": str}


@dataclass
class Landed:
    """What must be found of some files.

    Attributes:
        lines: of all files.
        rejected: lines that can be no row.
        duplicates: lines that repeat an event of their day.
        ids: of the rows.
        campaigns: rows that have the field that came later.
        paid: what each user paid.
    """

    lines: int = 0
    rejected: int = 0
    duplicates: int = 0
    ids: set[tuple[str, int]] = field(default_factory=set)
    campaigns: int = 0
    paid: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.ids)


def count(folder: Path) -> Landed:
    """Look at every line of every file of a folder, in the order in which the files landed."""
    found = Landed()
    for path in sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime):
        for line in lines_of(path):
            found.lines += 1
            record = event(line)
            if record is None:
                found.rejected += 1
                continue
            key = (record["at"][:10], record["id"])
            if key in found.ids:
                found.duplicates += 1
                continue
            found.ids.add(key)
            found.campaigns += record.get("campaign") is not None
            # a price that is no number is kept in `rest`
            found.paid[record["user_id"]] += 0 if record["price"] == "free" else record["price"]
    return found


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file; of one that is cut off those that are left, and the torn one."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = zlib.decompressobj(wbits=31).decompress(data)
    yield from data.splitlines()


def event(line: bytes) -> dict[str, object] | None:
    """The event of a line, if it is one."""
    try:
        record = json.loads(line)
        when = datetime.fromisoformat(record["at"]).replace(tzinfo=UTC)
    except (ValueError, TypeError, KeyError):
        return None
    fits = all(type(record.get(name)) is kind for name, kind in TYPES.items())
    return record if fits and FIRST <= when < datetime.now(UTC) + timedelta(days=1) else None


def click(number: int, **fields: object) -> str:
    """A good line, unless `fields` spoil it."""
    at = FIRST + timedelta(days=number % DAYS, hours=number % 24, minutes=number % 60)
    return json.dumps(
        {
            "id": number,
            "at": at.isoformat()[:19],
            "user_id": f"u{number % 7}",
            "price": number % 400 / 4,
            **fields,
        }
    )


def land_good(folder: Path) -> None:
    """What the source is proposed from."""
    _land(folder, "good.jsonl.gz", gzip.compress(_text(map(click, range(GOOD)))))


def land_drifted_broken_and_late(folder: Path) -> None:
    """One file of each kind, one after the other."""
    begun = GOOD
    drifted = [
        click(begun + n, campaign=f"c{n % 3}", **({"price": "free"} if n % 1000 == 0 else {}))
        for n in range(GOOD)
    ]
    _land(folder, "drifted.jsonl.gz", gzip.compress(_text(drifted)))
    broken = [
        "not JSON at all",
        "",
        "[1, 2]",
        click(1, id="one"),
        click(1, at="yesterday"),
        click(1, at="1999-12-31T23:59:59"),
        click(3 * GOOD),
        '{"id": 300, "at": "2026-06-0',
    ]
    _land(folder, "broken.jsonl", "\n".join(broken).encode())
    whole = gzip.compress(_text(map(click, range(3 * GOOD + 1, 4 * GOOD))))
    _land(folder, "cut.jsonl.gz", whole[: len(whole) // 2])
    # days that were there before; a third of the events landed with the first file
    late = [click(n) for n in (*range(0, 3_000, 3), *range(5 * GOOD, 5 * GOOD + 2_000))]
    _land(folder, "late.jsonl", _text(late))
    _land(folder, "empty.jsonl", b"")


def _text(lines: object) -> bytes:
    return ("\n".join(lines) + "\n").encode()  # type: ignore[call-overload]


def _land(folder: Path, name: str, data: bytes) -> None:
    """Under a name that is passed over, then under its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f".{name}").write_bytes(data)
    (folder / f".{name}").rename(folder / name)
