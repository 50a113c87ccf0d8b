"""Ways to break or forge a file of a table, all drawn from one generator of chance."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.spec.manifests.columnar_manifest import open_columnar

NUMBERS = [-1, 0, 1, 2, 7, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63), 2**64, 10**40]
FLOATS = [1.5, -0.0, 1e400, float("nan")]
KEPT_BYTES = 64


def texts(victim: Path) -> list[str]:
    """Names, paths and types that a hostile writer would try."""
    return [
        *("", "x", "main", "struct", "decimal(99,2)", "bucket[0]", "truncate[-1]", "PARQUET"),
        *("../../x", "/dev/zero", "/etc/passwd", "s3://nowhere/x", "http://127.0.0.1:1/x", "\x00"),
        *(f"{victim}/thesis.txt", f"file:{victim}/data.parquet", f"{victim}", f"{victim}/pipe"),
        "a" * 100_000,
    ]


def raw(rng: random.Random, data: bytes, _victim: Path) -> bytes:
    """Changed, cut, repeated or inserted bytes."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out) or 1)
        match rng.choice(["flip", "byte", "cut", "insert", "repeat", "zeros"]):
            case "flip" if out:
                out[at % len(out)] ^= 1 << rng.randrange(8)
            case "byte" if out:
                out[at % len(out)] = rng.choice([0, 1, 127, 128, 255])
            case "cut":
                del out[at:]
            case "insert":
                out[at:at] = rng.randbytes(rng.randint(1, 8))
            case "repeat":
                out[at:at] = out[at : at + KEPT_BYTES] * rng.choice([1, 100])
            case _:
                out[at : at + 8] = bytes(8)
    return bytes(out)


def as_json(rng: random.Random, data: bytes, victim: Path) -> bytes:
    """Other values anywhere in a document."""
    document = json.loads(data)
    for _ in range(rng.randint(1, 3)):
        _change(rng, document, victim)
    return json.dumps(document).encode(errors="surrogatepass")


def as_avro(rng: random.Random, data: bytes, victim: Path) -> bytes:
    """Other well-encoded values in the records, without checksum; records missing or repeated."""
    reader = fastavro.reader(io.BytesIO(data))
    schema, records = reader.writer_schema, list(reader)
    metadata = {
        key: value
        for key, value in reader.metadata.items()
        if not key.startswith("avro.") and key != "lakehouse.checksum"
    }
    for _ in range(rng.randint(1, 3)):
        if not records or rng.random() < 0.1:
            records = records * rng.choice([0, 2, 50])
        else:
            _change(rng, rng.choice(records), victim)
    out = io.BytesIO()
    try:
        fastavro.writer(out, schema, records, codec="deflate", metadata=metadata)
    except Exception:  # noqa: BLE001 - a value that this schema cannot hold
        return raw(rng, data, victim)
    return out.getvalue()


def as_columnar(rng: random.Random, data: bytes, victim: Path) -> bytes:
    """A perfect Parquet file with other values, with the old metadata."""
    columnar = open_columnar(pa.BufferReader(data))
    table = columnar.read()
    place = rng.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    order = list(range(table.num_rows))
    rng.shuffle(order)
    forged = table.set_column(place, name, column.take(order))
    sink = pa.BufferOutputStream()
    pq.write_table(forged, sink, compression="zstd")
    return bytes(sink.getvalue()) if rng.random() < 0.5 else raw(rng, data, victim)


def _change(rng: random.Random, document: Any, victim: Path) -> None:
    """Put another value somewhere into a document, in place."""
    while True:
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        if not keys:
            return
        key = rng.choice(keys)
        value = document[key]
        if isinstance(value, (dict, list)) and value and rng.random() < 0.8:
            document = value
            continue
        match rng.random():
            case chance if chance < 0.1 and isinstance(document, dict):
                del document[key]
            case chance if chance < 0.2 and isinstance(document, list):
                document.append(value)
            case _:
                document[key] = _other(rng, value, victim)
        return


def _other(rng: random.Random, value: Any, victim: Path) -> Any:
    same: dict[type, Callable[[], Any]] = {
        int: lambda: rng.choice([*NUMBERS, value + 1, value - 1]),
        float: lambda: rng.choice(FLOATS),
        str: lambda: rng.choice(texts(victim)),
        bytes: lambda: rng.choice([b"", b"\xff" * 9, value[::-1], value + b"\x00"]),
        bool: lambda: not value,
    }
    if type(value) in same and rng.random() < 0.8:
        return same[type(value)]()
    return rng.choice([None, [], {}, True, rng.choice(NUMBERS), rng.choice(texts(victim)), [None]])
