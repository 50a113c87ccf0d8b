"""`lakehouse forget`: a census of bytes, place by place, and places that are left on purpose.

Files are searched as bytes, and once more as what they decode to by libraries that are not ours:
pyarrow, fastavro, gzip, zstandard. The value is looked for in the forms in which our writers can
put it down: as text (Parquet pages, plain and of a dictionary, statistics, Avro), with the escapes
of JSON once and twice, and of CSV (records in quarantine, the log of Delta), as the folder of a
partition and a URL of that (Delta), cut to the length of a bound, in
UTF-16 and as base64 (bytes of a record). No writer writes UTF-16: landing files that are so are
kept as UTF-8.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse.delta_log.delta_log import DeltaLog, follow
from lakehouse.ingestion.reading.formats.record_chunks import REJECTS_SCHEMA
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.orphan_removal import OrphanOptions
from lakehouse.manifests import manifest_writer
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.lineage import forget as forgetting
from lakehouse.orchestration.lineage.forget import Forgetting, forgotten
from lakehouse.table import Table
from tests.orchestration.test_forget import RAW as BASE
from tests.orchestration.test_why import stored

VALUE, OTHER = 'zoë "z" person@example.com', "bob@example.com"
RAW = pa.schema([pa.field("person", pa.string()), *list(BASE)[1:]])
WHERE = f"person = '{VALUE}'"


def in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


BOUND = VALUE[:15]
FORMS = {
    "text": [VALUE],
    "JSON": [in_json(VALUE)],
    "ASCII JSON": [json.dumps(VALUE)[1:-1]],
    "JSON in JSON": [in_json(in_json(VALUE)), in_json(in_json(in_json(VALUE)))],
    "CSV": [VALUE.replace('"', '""')],
    "folder": [quote_plus(VALUE)],
    "URL of a folder": [quote(quote_plus(VALUE), safe="+")],
    "bound": [BOUND, in_json(BOUND), in_json(in_json(BOUND))],
    "base64": [base64.b64encode(VALUE.encode()).decode()],
    "UTF-16": [],
}
NEEDLES = {form: [text.encode() for text in texts] for form, texts in FORMS.items()}
NEEDLES["UTF-16"] = [VALUE.encode("utf-16-le"), VALUE.encode("utf-16-be")]
PLACES: dict[str, Callable[[str], bool]] = {
    "dictionary page": lambda file: "/p/data/" in file and "/p/data/plain" not in file,
    "plain page": lambda file: "/plain/data/" in file,
    "quarantine": lambda file: "/p_quarantine/data/" in file,
    "derived table": lambda file: "/clean/p/data/" in file,
    "renamed column": lambda file: "/clean/who/data/" in file,
    "remembered deletes": lambda file: "_deletes/data/" in file,
    "manifest": lambda file: file.endswith(".avro") and "/snap-" not in file,
    "manifest list": lambda file: "/snap-" in file,
    "columnar manifest": lambda file: file.endswith(".columnar.parquet"),
    "log of Delta": lambda file: "/_delta_log/" in file and file.endswith(".json"),
    "checkpoint of Delta": lambda file: file.endswith(".checkpoint.parquet"),
    "trash": lambda file: "trash" in file,
    "path of a partition": lambda file: "person=" in file,
}


def decoded(data: bytes) -> list[bytes]:
    """What bytes of a file hold: themselves, and what they decode to."""
    found = [data]
    if data[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(data))
        groups = range(file.num_row_groups)
        columns = [
            file.metadata.row_group(group).column(at)
            for group in groups
            for at in range(file.metadata.num_columns)
        ]
        ends = [(o.statistics.min, o.statistics.max) for o in columns if o.is_stats_set]
        found.append(repr_of([file.read().to_pylist(), ends]))
    elif data[:3] == b"Obj":
        found.append(repr_of(list(fastavro.reader(io.BytesIO(data)))))
    elif data[:2] == b"\x1f\x8b":
        found.append(gzip.decompress(data))
    return found


def repr_of(value: object) -> bytes:
    """Texts and bytes of a tree, one after the other."""
    if isinstance(value, dict):
        return b"\n".join(repr_of(one) for one in (*value.keys(), *value.values()))
    if isinstance(value, (list, tuple)):
        return b"\n".join(map(repr_of, value))
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


def census(folder: Path) -> dict[str, set[str]]:
    """Files with the value, and the forms in which they have it."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = str(path.relative_to(folder))
            contents = [name.encode(), *decoded(path.read_bytes())]
            forms = {
                form
                for form, texts in NEEDLES.items()
                if any(text in one for text in texts for one in contents)
            }
            if forms:
                found[f"/{name}"] = forms
    return found


def places(found: dict[str, set[str]]) -> set[str]:
    return {place for place, is_there in PLACES.items() if any(map(is_there, found))}


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Lakehouse, dict[str, DerivedTable], Path]:
    """A person in every place where our writers put values."""
    monkeypatch.setattr(manifest_writer, "COLUMNAR_MIN_ENTRIES", 1)
    folder = tmp_path / "warehouse"
    lake = lh.load_catalog(folder.as_uri())

    def rows(*who: str | None, rest: str | None = None, file: str = "a.jsonl") -> pa.Table:
        lines = [
            {"person": one, "rest": rest, "landing_file": file, "landing_line": n}
            for n, one in enumerate(who, 1)
        ]
        return pa.Table.from_pylist(lines, RAW)

    properties = {"write.delta-log": "true", "write.delete.mode": "merge-on-read"}
    table = lake.create_table("raw.p", RAW, partition_by=["person"], properties=properties)
    table.append(rows(VALUE, OTHER, VALUE))
    table.append(rows(None, rest=json.dumps({"person": VALUE}), file="b.jsonl"))
    table.append(rows(None, rest=json.dumps({"sent": FORMS["base64"][0]}), file="c.jsonl"))
    table.append(rows(OTHER, VALUE, file="d.jsonl"))
    table.delete("landing_file = 'd.jsonl' AND landing_line = 2")
    table.refresh().compute_statistics()
    follow(table.catalog, table.refresh().version)
    DeltaLog(table.storage, table.location).checkpoint()
    plain = {
        "write.parquet.dict-size-bytes": "1",
        "write.parquet.compression-codec": "uncompressed",
    }
    lake.create_table("raw.plain", RAW, properties=plain).append(rows(VALUE, OTHER))
    records = [
        json.dumps({"person": VALUE}),
        json.dumps({"person": VALUE}, ensure_ascii=False),
        f'7,"{VALUE.replace(chr(34), chr(34) * 2)}"',
        json.dumps({"body": json.dumps({"person": VALUE}, ensure_ascii=False)}, ensure_ascii=False),
        '{"person": "somebody else"}',
    ]
    rejects = [
        {"landing_file": "e.jsonl", "landing_line": n, "reason": "type conflict", "record": one}
        for n, one in enumerate(records, 1)
    ]
    quarantine = lake.create_table("raw.p_quarantine", REJECTS_SCHEMA)
    quarantine.append(pa.Table.from_pylist(rejects, REJECTS_SCHEMA))
    changed = lake.create_table(
        "raw.c", pa.schema([pa.field("person", pa.string()), pa.field("lsn", pa.int64())])
    )
    told = pa.table({"person": [VALUE, OTHER, VALUE], "lsn": [1, 1, 2], "op": ["c", "c", "d"]})
    changed.apply_changes(told, ["person"], ["lsn"], "op = 'd'")
    derived = stored(
        lake,
        SqlModel(name="clean.p", sql="SELECT person, landing_line FROM raw.p", engine="datafusion"),
        SqlModel(name="clean.who", sql="SELECT person AS who FROM raw.p", engine="datafusion"),
        SqlModel(name="marts.n", sql="SELECT count(*) AS n FROM clean.p", engine="datafusion"),
        SqlModel(
            name="marts.last", sql="SELECT max(who) AS who_last FROM clean.who", engine="datafusion"
        ),
    )
    left = folder / "raw/plain/data/left-by-a-writer.parquet"
    pq.write_table(lake.load_table("raw.plain").scan().to_arrow(), left)
    now = lake.environment.now_ms()
    lake.load_table("raw.plain").remove_orphan_files(
        OrphanOptions(older_than_ms=now + 1, force=True)
    )
    return lake, derived, folder


TABLES = ["raw.p", "raw.plain", "raw.c"]


def applied(lake: Lakehouse, derived: dict[str, DerivedTable]) -> Forgetting:
    return forgotten(lake, derived, WHERE, TABLES, apply=True)


def test_every_place_is_clean(world: Any) -> None:
    lake, derived, folder = world
    before = census(folder)
    assert places(before) == set(PLACES)
    forms = set().union(*before.values())
    assert forms == set(FORMS) - {"UTF-16"}
    done = applied(lake, derived)
    # an aggregate follows when it is computed again: until then its file is named
    last = {file for file in census(folder) if "/marts/last/" in file}
    assert census(folder).keys() == last
    assert {file.removeprefix(folder.as_uri()) for file in done.left} >= {
        file for file in last if file.endswith(".parquet")
    }
    assert set(done.follow) == {"marts.n", "marts.last"}
    assert done.unreachable == {}
    assert all("/marts/last/" in file for file in done.left)
    # whoever holds the lines still is named
    assert done.landing == {"a.jsonl": 2, "b.jsonl": 1, "c.jsonl": 1, "e.jsonl": 4}
    assert "backups" in dict(done.facts())["not looked at"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        "delete",
        "compact",
        "rewrite_manifests",
        "expire_snapshots",
        "remove_orphan_files",
        "cut_log",
    ],
)
def test_a_step_that_is_left_out_is_seen(
    step: str, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the census, and by the search that the answer of `forget` reports."""
    lake, derived, folder = world
    where = forgetting if step == "cut_log" else Table
    monkeypatch.setattr(where, step, lambda *_, **__: None)
    done = applied(lake, derived)
    found = {file for file in census(folder) if "/marts/last/" not in file}
    assert found
    told = {file.removeprefix(folder.as_uri()) for file in (*done.left, *done.unreachable)}
    assert found <= told


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["p_quarantine", "c_deletes", "who"])
def test_a_table_that_is_forgotten_is_seen(
    beside: str, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, derived, folder = world
    real = forgetting._names

    def names(*args: Any) -> Any:
        found, follow = real(*args)
        return [one for one in found if not one[0].endswith(beside)], follow

    monkeypatch.setattr(forgetting, "_names", names)
    applied(lake, derived)
    assert [file for file in census(folder) if beside in file]
