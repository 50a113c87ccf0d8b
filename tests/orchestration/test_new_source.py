"""A source proposed for sample files: the definition is found, and ingests as the proposal said."""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lakehouse.cli import app
from lakehouse.ingestion.proposal.sampled_records import SampledRecords, find_sample
from lakehouse.ingestion.proposal.source_proposal import Wishes, _bucket, _laid_out, propose_source
from lakehouse.orchestration import Column, EventTime, Source
from lakehouse.orchestration.discovery import discover
from lakehouse.storage.storage_by_scheme import storage_for
from tests.orchestration.conftest import Pipe
from tests.orchestration.test_rescue import read

CHECKOUT = Path(__file__).resolve().parents[2]
CLICKS = [
    {"id": n, "ts": f"2024-06-{1 + n % 3:02}T{n % 24:02}:00:00", "user_id": f"u{n % 7}",
     "price": n / 2, "big": 2**40 + n, "tags": ["a"], "empty": None}
    for n in range(60)
]  # fmt: skip


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`lakehouse new-source` in a checkout of its own."""
    (tmp_path / "checkout" / "assets").mkdir(parents=True)
    (tmp_path / "checkout" / "definitions.py").write_text("")
    monkeypatch.chdir(tmp_path / "checkout")

    def run(*arguments: object):
        return CliRunner().invoke(app, ["new-source", *map(str, arguments)], env={"COLUMNS": "200"})

    return run


def lines(records: list[dict]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in records)


def defined(path: Path) -> Source:
    """The source that a written module holds."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, path.stem.upper())


def test_the_definition_is_written_and_found(command, tmp_path: Path) -> None:
    sample = tmp_path / "sample.jsonl.gz"
    sample.write_bytes(gzip.compress(lines(CLICKS)))
    done = command("clicks", sample)
    assert done.exit_code == 0, done.output
    source = defined(tmp_path / "checkout" / "assets" / "clicks.py")
    assert source.event_time == EventTime("ts", "UTC", "iso")
    assert (source.natural_key, source.partition_by) == (("id",), ("day(event_ts)",))
    assert str(source.first_day) == "2024-06-01"
    assert source.columns == tuple(
        Column(*one)
        for one in [
            ("id", "long"), ("ts", "string"), ("user_id", "string"), ("price", "double"),
            ("big", "long"), ("tags", "json"),
        ]
    )  # fmt: skip
    assert "carry no offset" in done.output
    assert "no value in 'empty'" in done.output
    again = command("clicks", sample)
    assert again.exit_code == 1
    assert "exists already" in again.output
    assert command("clicks", "../sample.jsonl.gz", "--dry-run").exit_code == 0


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1_717_228_800 + n for n in range(30)], EventTime("at", "UTC", "s")),
        ([1_717_228_800_000 + n for n in range(30)], EventTime("at", "UTC", "ms")),
        ([1_717_228_800_000_000 + n for n in range(30)], EventTime("at", "UTC", "us")),
        ([f"2024-06-01 10:00:{n:02}+02:00" for n in range(30)], EventTime("at", "UTC", "iso")),
        (
            [(1_717_228_800 + n) * 1000 ** (n % 3) for n in range(30)],
            EventTime("at", "UTC", "epoch"),
        ),
    ],
)
@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet"])
def test_units_of_time_in_every_format(values, wanted, form, command, tmp_path: Path) -> None:
    records = [{"n": n, "at": value, "who": f"w{n % 3}"} for n, value in enumerate(values)]
    sample = tmp_path / f"sample.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(records), sample)
    elif form == "csv":
        rows = [",".join(map(str, one.values())) for one in records]
        sample.write_text("\n".join(["n,at,who", *rows]) + "\n")
    else:
        sample.write_bytes(json.dumps(records).encode() if form == "json" else lines(records))
    done = command("events", sample, "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert EventTime(**found["event_time"]) == wanted
    assert (found["rows"], found["days"], found["rejected"]) == (30, ["2024-06-01"], {})
    assert not list((tmp_path / "checkout" / "assets").iterdir())


@pytest.mark.spark
def test_what_it_says_of_a_sample_is_what_ingestion_does(command, spark, tmp_path: Path) -> None:
    """Good lines, broken ones, repeated ones, a file that is none: beside the ingestion itself."""
    folder = tmp_path / "sample"
    folder.mkdir()
    bad = [
        {**CLICKS[0], "id": 100, "ts": "yesterday"},
        {**CLICKS[0], "id": 101, "price": "dear"},
        {**CLICKS[0], "id": 102, "ts": None},
        {**CLICKS[0], "id": 103, "ts": "1969-01-01T00:00:00"},
    ]
    (folder / "1.jsonl").write_bytes(lines(CLICKS) + lines(bad) + b"no json\n\n")
    (folder / "2.jsonl.gz").write_bytes(gzip.compress(lines(CLICKS[:5])))
    (folder / "3.zip").write_bytes(b"PK\x03\x04 and so on")
    done = command("events", folder, "--json", "--zone", "Europe/Berlin")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    pipe = Pipe(tmp_path, spark, defined(tmp_path / "checkout" / "assets" / "events.py"))
    for file in folder.iterdir():
        (pipe.folder / file.name).write_bytes(file.read_bytes())
    days = pipe.index().days
    assert [str(day) for day in days] == said["days"]
    counts = pipe.ingest(days).counts
    assert len(pipe.rows()) == said["rows"] - said["duplicates"] == 61
    assert pipe.rows("id", "price", "rest")[-1] == (101, None, '{"price":"dear"}')
    assert said["rescued"] == {"price": 1}
    assert counts.duplicates == said["duplicates"] == 5
    reasons = [reason for _, line, reason in pipe.quarantine() if line is not None]
    assert said["rejected"] == {one: reasons.count(one) for one in sorted(set(reasons))}
    assert set(said["problems"]) == {"3.zip"}
    by_duck = duckdb.sql(
        f"SELECT count(DISTINCT id) FROM read_json('{folder}/1.jsonl', ignore_errors=true, "
        "columns={'id': 'BIGINT', 'price': 'DOUBLE'}) WHERE id < 100"
    ).fetchone()
    assert by_duck == (60,)


NUMBERS = [n / 100 for n in range(200)]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        # the second version of a feed begins late, and is a small part of the sample
        ([f"{n / 100:.2f}" for n in range(2_900)] + [1.234] * 100, "decimal(12,3)"),
        ([*range(3_000), "7"], "decimal(12,0)"),
        ([*NUMBERS[:9], "00501"] * 10, "json"),
        ([*NUMBERS[:9], "-"] * 10, "json"),
        (NUMBERS * 10 + ["-"], "double"),
        ([2**60 + n for n in range(40)] + NUMBERS[:60], "decimal(23,2)"),
        ([True, False, 1] * 20, "json"),
        ([1e-7, "5"] * 20, "decimal(12,7)"),
        ([1e-30, "5"] * 20, "json"),
        (["1" * 39, 1] * 20, "json"),
        ([{"a": 1}, "b"] * 20, "json"),
        (["a", "b", {"a": 1}] * 20, "json"),
    ],
)
def test_the_type_takes_the_whole_sample(values, wanted, command, tmp_path: Path) -> None:
    sample = tmp_path / "sample.jsonl"
    records = [{"n": n, "at": "2024-06-01T10:00:00Z", "x": one} for n, one in enumerate(values)]
    sample.write_bytes(lines(records))
    found = json.loads(command("events", sample, "--dry-run", "--json").stdout)
    assert found["columns"]["x"] == wanted
    assert found["rescued"] == ({"x": 1} if wanted == "double" else {})
    assert found["rejected"] == {}


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["1", "2", "unknown"] * 10, "string"),
        (["1", "2", "n/a"] * 10, "long"),
        (["1.50", "2.00"] * 10, "decimal(12,2)"),
        (["1.5", "2.25"] * 10, "double"),
        (["1.50", "2e3"] * 10, "double"),
        (["1", "2", "2.5"] * 10, "double"),
        (["1", "2", "007"] * 10, "string"),
        (["9007199254740993", "2.5"] * 10, "string"),
        (["true", "false", "unknown"] * 10, "string"),
        (["1,50", "2"] * 10, "double"),
        (["1,50", "2.5"] * 10, "string"),
        (["1,500", "2"] * 10, "string"),
    ],
)
def test_text_of_a_mixture_in_csv_stays_text(values, wanted, command, tmp_path: Path) -> None:
    sample = tmp_path / "sample.csv"
    rows = [f"{n};2024-06-01 10:00:00Z;{one}" for n, one in enumerate(values)]
    sample.write_text("\n".join(["n;at;x", *rows]) + "\n")
    found = json.loads(command("events", sample, "--dry-run", "--json").stdout)
    assert (found["columns"]["x"], found["rejected"]) == (wanted, {})


def test_a_messy_feed_is_counted_to_the_line_and_told_in_proportion(
    command, tmp_path: Path
) -> None:
    """Devices with reset clocks, keys that change their case, no JSON, a rare field with times."""
    feed = tmp_path / "feed"
    feed.mkdir()
    records = []
    for n in range(1_000):
        at = 1_717_228_800_000 + n if n % 50 else n if n % 100 else 946_684_800_000 + n
        device = "deviceId" if n < 600 else "DeviceID"
        one = {"added_at": "2024-06-01T10:00:00Z"} if n % 40 == 0 else {}
        records.append({**one, device: f"d{n % 7}", "epoch": at, "t": n / 4, f"f{n % 3}": n})
    records[7]["t"] = float("nan")
    (feed / "a.ndjson").write_bytes(lines(records).replace(b"NaN", b"nan"))
    (feed / "wide.ndjson").write_bytes(
        lines([{"epoch": 1_717_228_800_000, **{f"c{n}": 1 for n in range(1_001)}}])
    )
    done = command("devices", feed, "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["event_time"] == {"column": "epoch", "zone": "UTC", "unit": "ms"}
    assert found["records"] == 1_001 == found["rows"] + sum(found["rejected"].values())
    assert found["rejected"] == {"malformed JSON": 1, "event time out of range": 10}
    assert (found["rescued"], found["aliases"]) == ({}, {"deviceId": ["DeviceID"]})
    notes = " ".join(found["notes"])
    assert "10 events of 2000-01-01 to 2000-01-01 lie long before all others" in notes
    assert "no record has different values, so they are one column, 'deviceId'" in notes
    assert "wide.ndjson: 1,002 fields" in notes
    assert "WARNING: 1% of the lines would be quarantined (11 of 1,001)" in notes
    shown = command("devices", feed, "--dry-run").output
    told = [line for line in shown.splitlines() if line.startswith("a.ndjson")]
    assert [line.split()[2:4] for line in told] == [
        ["event", "time"], ["malformed", "JSON"],
    ]  # fmt: skip


def test_fields_that_are_one_become_one_column(command, tmp_path: Path) -> None:
    """Renamed ones by name or by values; twins and odd names get a column that can be addressed."""
    feed = tmp_path / "feed"
    feed.mkdir()

    def record(n: int, **fields: object) -> dict:
        return {"id": n, "ts": f"2026-0{1 + n // 100}-02T00:00:00Z", **fields}

    early = [record(n, custId=f"c{n % 40}", kunde=f"k{n % 30}", t=n, size=1) for n in range(100)]
    late = [
        record(n, customer_id=f"c{n % 40}", client=f"k{n % 30}", t=n, weight=1)
        for n in range(100, 200)
    ]
    late[0] |= {"customer_id": None}
    for one in (*early, *late):
        one |= {"T": one["id"] + 1, "a.b": one["id"], "landing_line": 7, "a_b": "x"}
    (feed / "1.jsonl").write_bytes(lines(early))
    (feed / "2.jsonl").write_bytes(lines(late))
    done = command("clicks", feed, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["rows"], found["rescued"]) == (200, {})
    source = defined(tmp_path / "checkout" / "assets" / "clicks.py")
    assert {one.name: one.aliases for one in source.columns if one.aliases} == {
        "customer_id": ("custId",), "client": ("kunde",), "T_2": ("T",), "a_b_2": ("a.b",),
        "landing_line_2": ("landing_line",),
    }  # fmt: skip
    # of size and weight only their number says that they may be one
    assert {"size", "weight", "t", "a_b"} <= found["columns"].keys()


def payments(rows: int, form: str = "%d.%m.%Y %H:%M") -> list[str]:
    """Lines of a CSV in the manner of a German bank."""
    moments = [datetime(2024, 6, 1, tzinfo=UTC) + timedelta(hours=13 * n) for n in range(rows)]
    return ["id;gebucht;empf\u00e4nger;betrag;valuta"] + [
        f"{n};{one.strftime(form)};M\u00fcller {n % 3};{n * 1_000 + n},{n % 100:02};"
        f"{one.strftime(form.partition(' ')[0])}"
        for n, one in enumerate(moments)
    ]


@pytest.mark.parametrize(
    ("encoding", "told"),
    [("latin-1", "cp1252"), ("cp1252", "cp1252"), ("utf-8", None), ("utf-16", "utf-16"),
     ("utf-16-be", "utf-16-be"), ("utf-32-le", "utf-32-le")],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_a_feed_of_another_country_is_read(
    encoding: str, told: str | None, packed: bool, command, tmp_path: Path
) -> None:
    """Beside what the same rows say that DuckDB reads with the options that are proposed."""
    folder = tmp_path / "feed"
    folder.mkdir()
    lines_ = payments(60)
    for part in range(2):
        data = "\n".join([lines_[0], *lines_[1 + part :: 2], ""]).encode(encoding)
        name = f"{part}.csv{'.gz' if packed else ''}"
        (folder / name).write_bytes(gzip.compress(data) if packed else data)
    done = command("payments", folder, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["read"] == {
        **({"encoding": told} if told else {}), "delimiter": ";", "decimal_separator": ",",
        "date_format": "dd.MM.yyyy", "timestamp_format": "dd.MM.yyyy HH:mm",
    }  # fmt: skip
    assert found["event_time"] == {
        "column": "gebucht", "zone": "UTC", "unit": "iso", "format": "dd.MM.yyyy HH:mm",
    }  # fmt: skip
    assert found["columns"] == {
        "id": "long", "gebucht": "timestamp", "empf\u00e4nger": "string", "betrag": "decimal(12,2)",
        "valuta": "date",
    }  # fmt: skip
    assert (found["rows"], found["rejected"], found["rescued"]) == (60, {}, {})
    # what is written is what was shown
    source = defined(tmp_path / "checkout" / "assets" / "payments.py")
    assert source.read.used == found["read"]
    assert (source.event_time.format, source.rescue) == ("dd.MM.yyyy HH:mm", "rest")


def test_files_with_a_mark_are_utf8_beside_files_that_are_not(command, tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    folder.mkdir()
    for name, encoding in (("a.csv", "cp1252"), ("b.csv", "utf-8-sig")):
        (folder / name).write_bytes("\n".join(payments(60)).encode(encoding))
    found = json.loads(command("payments", folder, "--dry-run", "--json").stdout)
    assert found["read"]["encoding"] == "cp1252"
    assert found["columns"].keys() == {"id", "gebucht", "empf\u00e4nger", "betrag", "valuta"}
    assert (found["rows"], found["duplicates"], found["rejected"]) == (120, 60, {})


def test_few_values_that_are_no_time_do_not_hide_the_format(command, tmp_path: Path) -> None:
    """`########` and 31 February are kept, or quarantined; the others are times."""
    *some, last = payments(60)
    odd = ["98;########;x;1,50;01.06.2024", "99;01.06.2024 10:00;x;1,50;31.02.2024"]
    sample = tmp_path / "a.csv"
    sample.write_text("\n".join([*some, last, *odd]))
    found = json.loads(command("payments", sample, "--dry-run", "--json").stdout)
    assert found["event_time"]["format"] == "dd.MM.yyyy HH:mm"
    assert found["columns"]["valuta"] == "date"
    assert found["rejected"] == {"event time malformed": 1}
    assert found["rescued"] == {"valuta": 1}
    assert "valuta: date leaves values such as '31.02.2024' to the rest" in " ".join(found["notes"])
    assert "########" not in " ".join(found["notes"])
    # a twentieth is the most, and a time in another format is no stranger
    for few in ([odd[1]] * 4, ["99;01.06.2024 10:00;x;1,50;02/01/2024"]):
        sample.write_text("\n".join([*some, last, *few]))
        found = json.loads(command("payments", sample, "--dry-run", "--json").stdout)
        assert found["columns"]["valuta"] == "string"


def test_event_times_of_two_spellings_are_one_field(command, tmp_path: Path) -> None:
    sample = tmp_path / "sample.jsonl"
    moments = [1_717_228_800_000, "2024-06-01T10:00:00+02:00", "2024-06-01T08:00:00Z"] * 20
    sample.write_bytes(lines([{"n": n, "ts": one} for n, one in enumerate(moments)]))
    found = json.loads(command("events", sample, "--dry-run", "--json").stdout)
    assert found["event_time"] == {"column": "ts", "zone": "UTC", "unit": "ms"}
    assert (found["rows"], found["columns"]["ts"], found["rescued"]) == (60, "json", {})


def test_json_takes_times_and_decimals_of_parquet(command, tmp_path: Path) -> None:
    """Files of one feed whose types differ; the note says json takes all of it."""
    folder = tmp_path / "feed"
    folder.mkdir()
    moment = datetime(2024, 6, 1, 10, tzinfo=UTC)
    naive = pa.array([moment.replace(tzinfo=None)] * 5, pa.timestamp("ns"))
    amounts = pa.array([Decimal("1.50")] * 5)
    for name, ts, x in (("a", naive, amounts), ("b", pa.array([moment] * 5), pa.array(["?"] * 5))):
        table = pa.table({"n": range(5), "ts": ts, "x": x, "who": [name] * 5})
        pq.write_table(table, folder / f"{name}.parquet")
    found = json.loads(command("events", folder, "--dry-run", "--json").stdout)
    assert (found["columns"]["ts"], found["columns"]["x"]) == ("json", "json")
    assert (found["rows"], found["rescued"], found["rejected"]) == (10, {}, {})


@pytest.mark.parametrize("point", [",", "."])
@pytest.mark.parametrize("group", ["", ".", ",", "'", "\u2019", " ", "\u00a0", "\u202f"])
def test_numbers_are_read_as_their_country_spells_them(
    point: str, group: str, command, tmp_path: Path
) -> None:
    """With and without signs; whole numbers and codes beside them. The judge: what was spelled."""
    if point == group:
        return
    chance = random.Random(f"{point}{group}")
    amounts = [Decimal(chance.randrange(-(10**7), 10**7)) / 100 for _ in range(60)]
    signs = [chance.choice((-1, 1)) * chance.randrange(1, 500) for _ in range(60)]
    names = ["id", "at", "amount", "signed", "step", "phone"]
    rows = [
        [str(n), f"2024-06-01T{n % 24:02}:00:00Z",
         *(f"{amount:{sign},.2f}".replace(",", "G").replace(".", point).replace("G", group)
           for sign in "-+"), f"{step:+}", f"+49{n}"]
        for n, (amount, step) in enumerate(zip(amounts, signs, strict=True))
    ]  # fmt: skip
    sample = tmp_path / "payments.csv"
    sample.write_text("\n".join("|".join(row) for row in [names, *rows]))
    done = command("payments", sample, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    types = [found["columns"][name] for name in names[2:]]
    assert (types, found["rescued"]) == ([*["decimal(12,2)"] * 2, "long", "string"], {})
    source = defined(tmp_path / "checkout" / "assets" / "payments.py")
    read_rows, _ = read(sample.read_bytes(), source, "payments.csv")
    wanted = [(amount, amount, step) for amount, step in zip(amounts, signs, strict=True)]
    assert [(row["amount"], row["signed"], row["step"]) for row in read_rows] == wanted


@pytest.mark.parametrize("odd", ["12.50 EUR", "$12.50", "12.50-", "(12.50)", "7%"])
def test_numbers_with_more_than_a_number_are_text_and_told(
    odd: str, command, tmp_path: Path
) -> None:
    sample = tmp_path / "a.jsonl"
    some = [
        {"at": f"2024-06-01T{n % 24:02}:00:00Z", "x": odd if n % 3 else "1.5"} for n in range(9)
    ]
    sample.write_bytes(lines(some))
    found = json.loads(command("events", sample, "--dry-run", "--json").stdout)
    assert found["columns"]["x"] == "string"
    assert f"x has numbers with more than a number says ({odd!r})" in " ".join(found["notes"])


SPELLED = {
    "plain": lambda one: f"{one:,.2f}",
    "dollars": lambda one: f"${one:,.2f}" if one >= 0 else f"-${-one:,.2f}",
    "brackets": lambda one: f"$ {one:,.2f}" if one >= 0 else f"($ {-one:,.2f})",
    "behind": lambda one: f"{one:,.2f}" if one >= 0 else f"{-one:,.2f}-",
    "euros": lambda one: f"{one:,.2f} EUR",
    "percent": lambda one: f"{one:,.2f}%",
    "none": lambda one: f"{one:,.2f}" if one >= 0 else ("N/A", "-", "#N/A")[int(one) % 3],
}


@pytest.mark.parametrize("spelled", SPELLED)
def test_money_is_exact_however_a_sheet_shows_it(spelled: str, command, tmp_path: Path) -> None:
    """Units, brackets, the sign behind, words for no value. The judge: what was spelled."""
    chance = random.Random(spelled)
    amounts = [Decimal(chance.randrange(-(10**8), 10**8)) / 100 for _ in range(60)]
    sample = tmp_path / "payments.csv"
    rows = [f'2024-06-01T10:00:00Z,"{SPELLED[spelled](one)}",a-b' for one in amounts]
    sample.write_text("\n".join(["at,amount,text", *rows]))
    found = json.loads(command("payments", sample, "--json").stdout)
    assert (found["columns"]["amount"], found["rescued"]) == ("decimal(12,2)", {})
    source = defined(tmp_path / "checkout" / "assets" / "payments.py")
    read_rows, _ = read(sample.read_bytes(), source, "payments.csv")
    wanted = [None if spelled == "none" and one < 0 else one for one in amounts]
    assert [(row["amount"], row["text"]) for row in read_rows] == [(one, "a-b") for one in wanted]


def test_two_currencies_of_a_sample_stay_text(command, tmp_path: Path) -> None:
    sample = tmp_path / "payments.csv"
    rows = [f"2024-06-01T10:00:00Z,${n}.50,{n}.20 EUR,{n}%" for n in range(30)]
    sample.write_text("\n".join(["at,dollars,euros,share", *rows]))
    found = json.loads(command("payments", sample, "--dry-run", "--json").stdout)
    assert found["read"] == {"units": ["%"]}
    assert [*found["columns"].values()][1:] == ["string", "string", "long"]
    assert "numbers have the units $, EUR" in " ".join(found["notes"])


def test_totals_say_nothing_of_types_and_are_accounted_for(command, tmp_path: Path) -> None:
    """A line of a sheet that has no time is no event, whatever stands under the other names."""
    rows = [f"2024-06-01T10:00:00Z,{n},{n % 7}.50,," for n in range(100)]
    total = ["Total,,347.50,,", ",Summe,1.1.1,,", ",,,,"]
    sample = tmp_path / "payments.csv"
    sample.write_text("\n".join(["at,no,amount,,", *rows, ",Total,347.50,,", *total[1:]]))
    found = json.loads(command("payments", sample, "--dry-run", "--json").stdout)
    assert found["columns"] == {"at": "string", "no": "long", "amount": "decimal(12,2)"}
    assert (found["records"], found["rows"], found["rejected"]) == (
        103, 100, {"event time missing": 3},
    )  # fmt: skip
    assert "3 records have no at, such as ',Total,347.50,,'" in " ".join(found["notes"])


@pytest.mark.parametrize(
    "header", ["id;at;name;amount", "sep=;\nid;at;name;amount", ";at;name;amount"]
)
@pytest.mark.parametrize("before", [0, 1, 6])
@pytest.mark.parametrize("padded", ["", ";;;"])
def test_lines_before_the_header_are_no_records(
    header: str, before: int, padded: str, command, tmp_path: Path
) -> None:
    """A preamble, padded by a spreadsheet or not; Excel's line; names that are left out."""
    if before and header[:1] in "s;":
        return
    some = [f'{n};2024-06-01T{n % 24:02}:00:00Z;"a;{n}\nb";{n / 4}' for n in range(30)]
    preamble = [f"Konto {n}{padded}" for n in range(before)]
    sample = tmp_path / "a.csv"
    sample.write_text("\n".join([*preamble, header, *some]))
    found = json.loads(command("events", sample, "--json").stdout)
    assert (found["rows"], found["records"], found["read"].get("skip", 0)) == (30, 30, before)
    source = defined(tmp_path / "checkout" / "assets" / "events.py")
    rows, reasons = read(sample.read_bytes(), source, "a.csv")
    first = 1 + before + header.count("\n") + 2
    assert (reasons, [one["landing_line"] for one in rows]) == (
        {},
        list(range(first, first + 60, 2)),
    )
    assert [one["name"] for one in rows] == [f"a;{n}\nb" for n in range(30)]


@pytest.mark.parametrize(
    "spelled",
    ["2024-06-01T{:02}:00:00Z", "2024-06-01 {:02}:05", "17172288{:02}", "31.05.2024 {:02}:00:00"],
)
@pytest.mark.parametrize("delimiter", [",", ";", "|"])
@pytest.mark.parametrize("told", [(), ("--option", "header=false")])
def test_a_first_line_with_an_event_time_is_an_event(
    spelled: str, delimiter: str, told: tuple[str, ...], command, tmp_path: Path
) -> None:
    """Beside the same files with a header: the same rows and types; an empty column has a place."""
    names = ["column1", "column2", "column3", "column4"]
    texts = ["a", *(f'"a{n}\nb"' for n in range(1, 30))]
    events = [[str(n), "", spelled.format(n % 24), texts[n // 3]] for n in range(90)]
    found = []
    for folder, header in (("with", [names]), ("without", [])):
        (tmp_path / folder).mkdir()
        for place in range(3):
            some = [delimiter.join(one) for one in [*header, *events[place::3]]]
            (tmp_path / folder / f"{place}.csv").write_text("\n".join([*some, ""]))
        wishes = () if header else told
        found.append(json.loads(command(folder, tmp_path / folder, *wishes, "--json").stdout))
    named, unnamed = found
    assert unnamed["read"] == named["read"] | {"header": False}
    assert unnamed["columns"] == {**named["columns"], "column2": "string"}
    assert [*unnamed["columns"]] == names
    for what in ("rows", "days", "records", "event_time", "duplicates"):
        assert unnamed[what] == named[what], what
    assert unnamed["rows"] == 90
    assert any("so it is an event" in note for note in unnamed["notes"]) == (not told)
    rows = []
    for folder in ("with", "without"):
        source = defined(tmp_path / "checkout" / "assets" / f"{folder}.py")
        data = (tmp_path / folder / "0.csv").read_bytes()
        read_rows, reasons = read(data, source, "0.csv")
        assert reasons == {}
        rows.append([{name: one.get(name) for name in names} for one in read_rows])
    assert rows[0] == rows[1]


def test_numbers_and_days_that_are_names_stay_a_header(command, tmp_path: Path) -> None:
    sample = tmp_path / "a.csv"
    sample.write_text("ts,2023,2024-06-01\n" + "2024-06-01T10:00:00Z,2023,5\n" * 9)
    found = json.loads(command("events", sample, "--json").stdout)
    assert (found["rows"], found["read"]) == (9, {})


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_records_that_are_equal_but_for_nan_are_one_event(
    form: str, command, tmp_path: Path
) -> None:
    """What it says of the sample is what ingestion does."""
    records = [
        {"ts": "2024-06-01T10:00:00Z", "n": n % 5, "x": [math.nan, 0.5, -math.inf][n % 3]}
        for n in range(40)
    ]
    sample = tmp_path / f"a.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(records), sample)
    else:
        sample.write_bytes(lines(records))
    found = json.loads(command("events", sample, "--json").stdout)
    assert (found["rows"], found["duplicates"]) == (40, 25)
    source = defined(tmp_path / "checkout" / "assets" / "events.py")
    pipe = Pipe(tmp_path, None, replace(source, engine="python"))
    shutil.copy(sample, pipe.folder)
    counts = pipe.ingest(pipe.index().days).counts
    assert (counts.rows, counts.duplicates) == (15, 25)
    assert Counter(str(x) for _, x in pipe.rows("n", "x")) == {"nan": 5, "0.5": 5, "-inf": 5}


@pytest.mark.parametrize("ids", [[f"KD-{n:04}" for n in range(40)], list(range(1000, 1040))])
def test_what_a_bucket_splits_by_is_told_by_values(ids: list, command, tmp_path: Path) -> None:
    """Names in a language that nobody taught it; prices, dates and texts are no ids."""
    rows = [
        {"lfd": n, "zeit": f"2024-06-{1 + n % 3:02}T10:00:00Z", "preis": n * 7 % 1_311,
         "tag": f"2024-0{1 + n % 9}-01", "stadt": f"Ort {n % 90}", "kunde_nr": ids[n % 40]}
        for n in range(400)
    ]  # fmt: skip
    sample = tmp_path / "a.jsonl"
    sample.write_bytes(lines(rows))
    source = propose_source("a", find_sample(str(sample), {}, 400), Wishes(), date(2026, 1, 1))
    found, columns = SampledRecords(), source.source.columns
    for _, chunk in find_sample(str(sample), {}, 400).chunks(source.source, date.max, {}):
        found.add(chunk)
    assert _bucket(found, columns, (), "zeit") == "kunde_nr"


def test_a_decimal_comma_that_not_all_values_have_is_told(command, tmp_path: Path) -> None:
    sample = tmp_path / "a.csv"
    sample.write_text("\n".join([*payments(60), "99;01.06.2024 10:00;x;storno;01.06.2024"]))
    found = json.loads(command("payments", sample, "--dry-run", "--json").stdout)
    assert (found["columns"]["betrag"], found["rescued"]) == ("string", {})
    assert "most values of betrag have a decimal comma" in " ".join(found["notes"])
    option = ("--option", "decimal_separator=,")
    found = json.loads(command("payments", sample, "--dry-run", "--json", *option).stdout)
    assert (found["columns"]["betrag"], found["rescued"]) == ("decimal(12,2)", {"betrag": 1})


@pytest.mark.parametrize(
    ("form", "days", "wanted"),
    [
        ("%d/%m/%Y", 28, "dd/MM/yyyy"),
        ("%m/%d/%Y", 28, "MM/dd/yyyy"),
        ("%d/%m/%Y", 12, None),
        ("%d-%b-%Y", 3, "dd-MMM-yyyy"),
        ("%Y/%m/%d", 3, "yyyy/MM/dd"),
        ("%-m/%-d/%Y", 28, "M/d/yyyy"),
    ],
)
@pytest.mark.parametrize("form_of_file", ["csv", "jsonl"])
def test_a_date_format_is_proposed_where_one_alone_fits(
    form: str, days: int, wanted: str | None, form_of_file: str, command, tmp_path: Path
) -> None:
    records = [
        {"id": n, "at": "2024-06-01T10:00:00Z", "day": date(2024, 1 + n % 12, n).strftime(form)}
        for n in range(1, days + 1)
    ]
    sample = tmp_path / f"a.{form_of_file}"
    rows = ["id,at,day", *(",".join(map(str, one.values())) for one in records)]
    sample.write_bytes(lines(records) if form_of_file == "jsonl" else "\n".join(rows).encode())
    found = json.loads(command("days", sample, "--dry-run", "--json").stdout)
    assert found["columns"]["day"] == ("date" if wanted else "string")
    assert found["read"].get("date_format") == wanted
    told = "day: dates may be dd/MM/yyyy or MM/dd/yyyy, the sample does not tell"
    assert (told in " ".join(found["notes"])) == (wanted is None)
    if wanted is None:
        option = ("--option", "date_format=MM/dd/yyyy")
        found = json.loads(command("days", sample, "--dry-run", "--json", *option).stdout)
        assert (found["columns"]["day"], found["rejected"]) == ("date", {})


def test_one_problem_of_many_files_is_told_once(command, tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    folder.mkdir()
    for n in range(21):
        (folder / f"{n:02}.csv").write_bytes(b",,\n1,2,3\n")
    done = command("payments", folder, "--dry-run")
    assert done.output.count("it names no column") == 1
    assert "00.csv, 01.csv, 02.csv and 18 more: malformed CSV header" in done.output
    # files of several encodings cannot be read by one source
    (folder / "a.csv").write_bytes("id,ts,w\n1,2024-06-01T10:00:00Z,\u00e9\n".encode())
    (folder / "b.csv").write_bytes(b"id,ts,w\n1,2024-06-01T10:00:00Z,\xe9\n")
    assert "1 files are no UTF-8, the first is b.csv" in command("p", folder, "--dry-run").output
    assert "it is NAME=VALUE" in command("p", folder, "--option", "sep=;", "--dry-run").output
    assert "klingon" in command("p", folder, "--option", "encoding=klingon").output


def test_what_cannot_be_proposed_is_told(command, tmp_path: Path) -> None:
    sample = tmp_path / "sample.jsonl"
    for content, wanted in [
        (b'{"a": 1}\n', "no field tells when an event happened: a"),
        (b"\n\n", "there is no record"),
        (b'{"day": "03.04.2024"}\n', "day ('03.04.2024') may be dd.MM.yyyy or MM.dd.yyyy"),
        (b'{"day": "3.Apr.2024"}\n{"day": "2024-4-3"}', "spelled otherwise: day"),
        (lines(CLICKS), "no record has the field 'who'"),
    ]:
        sample.write_bytes(content)
        wish = ["--bucket", "who"] if b"user" in content else []
        done = command("clicks", sample, "--dry-run", *wish)
        assert done.exit_code == 1
        assert wanted in done.output
    assert "no file and no folder" in command("clicks", tmp_path / "nowhere", "--dry-run").output
    assert "the name must match" in command("My Clicks", sample, "--dry-run").output


def test_wishes_come_first(command, tmp_path: Path) -> None:
    sample = tmp_path / "sample.jsonl"
    sample.write_bytes(lines([{**one, "seen": 1_717_228_800 + one["id"]} for one in CLICKS]))
    wishes = ["--event-time", "seen", "--key", "user_id", "--key", "seen", "--bucket", "id"]
    found = json.loads(command("clicks", sample, "--dry-run", "--json", *wishes).stdout)
    assert found["event_time"] == {"column": "seen", "zone": "UTC", "unit": "s"}
    assert found["natural_key"] == ["user_id", "seen"]
    assert found["partition_by"] == ["day(event_ts)", "bucket(2, id)"]


MIB = 1 << 20


@pytest.mark.parametrize(
    ("day_bytes", "days", "terms", "closed"),
    [
        (MIB, 1, ["day(event_ts)"], "30d: month(event_ts)"),
        (255 * MIB, 400, ["day(event_ts)"], "30d: month(event_ts)"),
        (600 * MIB, 2, ["day(event_ts)", "bucket(4, who)"], "30d: month(event_ts)"),
        (2 * MIB, 29, ["day(event_ts)"], "30d: month(event_ts)"),
        (MIB, 29, ["month(event_ts)"], "30d: year(event_ts)"),
        (MIB // 20, 365, ["year(event_ts)"], ""),
    ],
)
def test_partitions_are_as_large_as_the_volume_fills_them(day_bytes, days, terms, closed):
    """By bytes a day; less than four weeks of them make no period longer than a day."""
    bare = Source(name="x", event_time=EventTime("t"), first_day=date(2026, 1, 1))
    span = [date(2026, 1, 1) + timedelta(days=n) for n in range(days)]
    found = _laid_out(bare, day_bytes, span, "who", None)
    assert (list(found.partition_terms), found.closed_periods) == (terms, closed)


def test_a_definition_dropped_into_a_package_is_found(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / f"dropped_{tmp_path.name}"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "sample.jsonl").write_bytes(lines(CLICKS))
    done = command("clicks", tmp_path / "sample.jsonl", "--to", package / "anything.py")
    assert done.exit_code == 0, done.output
    monkeypatch.syspath_prepend(tmp_path)
    found = discover(importlib.import_module(package.name))
    assert [one.name for one in found.sources] == ["clicks"]


def test_samples_on_an_object_store(command, s3_properties: dict[str, str]) -> None:
    storage = storage_for("s3://lake/landing", s3_properties)
    for name in ("1.jsonl", "deep/2.jsonl"):
        storage.write(f"s3://lake/landing/clicks/{name}", lines(CLICKS))
    options = [part for pair in s3_properties.items() for part in ("--property", "=".join(pair))]
    for sample, rows in (("clicks", 120), ("clicks/1.jsonl", 60)):
        done = command("clicks", f"s3://lake/landing/{sample}", "--dry-run", "--json", *options)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["rows"] == rows
    gone = command("clicks", "s3://lake/landing/nothing", "--dry-run", *options)
    assert "no file and no folder" in gone.output


def test_in_this_project_its_jobs_sensor_and_schedule_have_names(tmp_path: Path) -> None:
    """Run on a copy of this project: `dg` finds all of them, and each by grep."""
    for folder in ("assets", "jobs", "sensors"):
        shutil.copytree(CHECKOUT / folder, tmp_path / folder)
    shutil.copy(CHECKOUT / "definitions.py", tmp_path)
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.jsonl").write_bytes(lines(CLICKS))
    run = partial(
        subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "DAGSTER_HOME": str(tmp_path)},
    )  # fmt: skip
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    lakehouse = str(Path(sys.executable).with_name("lakehouse"))
    done = run([lakehouse, "new-source", "clicks", str(tmp_path / "events")])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its jobs, sensor and schedule" in " ".join(done.stdout.split())
    shown = run(
        [
            sys.executable, "-c",
            "import definitions; r = definitions.defs.get_repository_def();"
            "from assets.pipeline import MAINTAINED;"
            "print(*sorted(j.name for j in r.get_all_jobs()), *(s.name for s in r.sensor_defs),"
            "*(s.name for s in r.schedule_defs), 'raw.clicks' in MAINTAINED)",
        ]
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    names = {"index_clicks", "ingest_clicks", "landed_clicks", "nightly_clicks", "True"}
    assert names <= set(shown.stdout.split())
