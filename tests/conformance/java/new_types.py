"""Types and lineage of version 3: tables that both write in turn, each reading what both wrote."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    GeographyType,
    GeometryType,
    ListType,
    LongType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
)

from lakehouse.expressions.functions.bounding_boxes import bbox_intersects
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.types.variant_values import decode_variant, encode_variant
from lakehouse.storage.location import local_path
from tests.conformance.java.both_engines import BothEngines
from tests.conformance.java.json_rows import Row
from tests.conformance.java.judge import Judge
from tests.unit.data.test_variants import value
from tests.wkb import geometry

STRUCT = StructType(
    NestedField(7, "n", TimestampNanoType(), required=False),
    NestedField(8, "l", ListType(9, VariantType(), element_required=False), required=False),
)
SCHEMA = Schema(
    NestedField(1, "rid", LongType(), required=True),
    NestedField(2, "v", VariantType(), required=False),
    NestedField(3, "g", GeometryType(), required=False),
    NestedField(4, "h", GeographyType("OGC:CRS84", "karney"), required=False),
    NestedField(5, "t", TimestamptzNanoType(), required=False),
    NestedField(6, "s", STRUCT, required=False),
)


class NewTypes:
    """A table with variants, geometries and nanoseconds, and a model of its rows.

    Args:
        judge: Java.
        folder: empty.
        seed: of the values and of who writes when.
        compared: counts what was compared.
    """

    def __init__(self, judge: Judge, folder: Path, seed: int, compared: Counter[str]) -> None:
        self._random = Random(seed)
        self._compared = compared
        self._rows: dict[int, Row] = {}
        self._both = BothEngines(judge, folder, self._random.choice(("hadoop", "jdbc")))
        properties = {
            "format-version": "3",
            "write.parquet.shred-variants": self._random.choice(("true", "false")),
        }
        self._both.create(SCHEMA, [], properties, by_java=self._random.random() < 0.5)

    def run(self, steps: int) -> list[str]:
        """Make changes; after each tell what either reads otherwise than the model."""
        said: list[str] = []
        done: list[str] = []
        for _ in range(steps):
            done.append(self._step())
            wanted = [_comparable(self._rows[rid]) for rid in sorted(self._rows)]
            for who, rows in (("Java", self._both.java_rows()), ("we", self._both.our_rows())):
                found = [_comparable(row) for row in sorted(rows, key=lambda row: row["1"])]
                if found != wanted:
                    said.append(f"{who} read after {done}: {_first_difference(found, wanted)}")
                self._compared[f"rows by {who}"] += len(found)
            ours, theirs = self._both.our_lineage(), self._both.java_lineage("1")
            if ours != theirs:
                said.append(f"lineage after {done}: {ours}, Java {theirs}")
            self._compared["lineages"] += len(theirs)
        files = self._both.java("places")
        schemas = (str(pq.read_schema(local_path(file["path"]))) for file in files)
        self._compared["files shredded"] += sum("typed_value" in text for text in schemas)
        self._compared["files"] += len(files)
        return said

    def bounds_differ(self) -> list[str]:
        """Where one file of the same rows has other bounds than the one that Java wrote.

        Of geometries all of them are compared, of variants those of fields that both shredded: Java
        and we may choose others.
        """
        rows = self._new_rows(self._random.choice((1, 2, 30)))
        pair: list[tuple[list[bytes | None], dict[str, Any]]] = []
        for write in (self._both.append, lambda rows: self._both.java("append", rows=rows)):
            before = {file["file_path"] for file in self._both.table().inspect.files().to_pylist()}
            write(rows)
            (file,) = (
                file
                for file in self._both.table().inspect.files().to_pylist()
                if file["file_path"] not in before
            )
            columns = {
                name: [
                    dict(file[side]).get(self._both.table().schema().find_field(name).field_id)
                    for side in ("lower_bounds", "upper_bounds")
                ]
                for name in ("v", "g")
            }
            sides = [{} if raw is None else _fields(raw) for raw in columns["v"]]
            pair.append(
                (columns["g"], {path: [side.get(path) for side in sides] for path in sides[0]})
            )
        (geometries, ours), (by_java, theirs) = pair
        self._compared["bounds of geometries"] += geometries != [None, None]
        self._compared["bounds of variants by us"] += len(ours)
        self._compared["bounds of variants by Java"] += len(theirs)
        self._compared["bounds of variants by both"] += len(ours.keys() & theirs.keys())
        return [f"geometries: {geometries}, Java {by_java}"] * (geometries != by_java) + [
            f"{path} of variants: {ours[path]}, Java {theirs[path]}"
            for path in sorted(ours.keys() & theirs.keys())
            if repr(ours[path]) != repr(theirs[path])
        ]

    def filters_differ(self) -> list[str]:
        """Filters on what is in variants and geometries that find others than the model has."""
        corners = self._random.choice(("0, -90, 1, 90", "1e290, -90, 1e300, 9e300", "5, 0, 90, 90"))
        column = pa.array([row["3"] and bytes.fromhex(row["3"]) for row in self._rows.values()])
        numbers = [pa.scalar(float(corner)) for corner in corners.split(",")]
        meeting = bbox_intersects(column.cast(pa.binary()), *numbers).to_pylist()
        boxed = [rid for rid, meets in zip(self._rows, meeting, strict=True) if meets]
        said = self._differs(f"bbox_intersects(g, {corners})", boxed, "geometries")
        ids = [rid for rid, row in self._rows.items() if isinstance(_inside(row), dict)]
        shared = [rid for rid in ids if "more" in _inside(self._rows[rid])]
        for rid in self._random.sample(shared, min(3, len(shared))):
            for where, wanted in (
                (
                    f"variant_get(v, '$.id', 'bigint') <= {rid}",
                    [one for one in shared if one <= rid],
                ),
                (f"variant_get(v, '$.name', 'string') = 'n{rid}'", [rid]),
            ):
                said += self._differs(where, wanted, "variants")
        return said

    def _differs(self, where: str, wanted: list[int], what: str) -> list[str]:
        scan = self._both.table().scan(where=where, select=["rid"])
        skipped = scan.plan().report.data_files.skipped_by_metrics
        self._compared["filters"] += 1
        self._compared[f"files skipped by bounds of {what}"] += skipped
        found = sorted(scan.to_arrow()["rid"].to_pylist())
        return [] if found == sorted(wanted) else [f"{where} finds {found} instead of {wanted}"]

    def _step(self) -> str:
        ids = sorted(self._random.sample(sorted(self._rows), min(2, len(self._rows))))
        by_java = self._random.random() < 0.5
        what = self._random.choice(["append", "append", *["delete", "compact"] * bool(ids)])
        if what == "append":
            rows = self._new_rows(self._random.choice((1, 5, 20)))
            if by_java:
                self._both.java("append", rows=rows)
            else:
                self._both.append(rows)
        elif what == "delete":
            if by_java:
                self._both.java("merge-on-read", rids=ids)
            else:
                self._both.table().delete(where=f"rid IN ({', '.join(map(str, ids))})")
            for rid in ids:
                del self._rows[rid]
        elif by_java:
            self._both.java("compact")
        else:
            self._both.table().compact()
        return f"{what} by {'Java' if by_java else 'us'}"

    def _new_rows(self, count: int) -> list[Row]:
        first = max(self._rows, default=-1) + 1000
        rows = [
            {
                "1": rid,
                "2": self._variant(rid),
                "3": self._geometry(),
                "4": self._geometry(),
                "5": self._maybe(self._random.randrange(-(10**18), 10**18)),
                "6": {
                    "7": self._maybe(self._random.randrange(-(10**18), 10**18)),
                    "8": self._maybe([self._variant(rid), None]),
                },
            }
            for rid in range(first, first + count)
        ]
        self._rows |= {row["1"]: row for row in rows}
        return rows

    def _variant(self, rid: int) -> Any:
        """Mostly objects that share fields, as those do that are shredded."""
        found = value(self._random)
        if self._random.random() < 0.7:
            found = {"id": rid, "name": f"n{rid}", "more": {"deep": found}, "at": [rid, "x"]}
        metadata, encoded = encode_variant(found)
        return self._maybe({"metadata": metadata.hex(), "value": encoded.hex()})

    def _geometry(self) -> str | None:
        return self._maybe(geometry(self._random)[0].hex())

    def _maybe(self, found: Any) -> Any:
        return None if self._random.random() < 0.2 else found


def _fields(bound: bytes) -> dict[str, Any]:
    """A bound of variants: metadata and value of an object by path (spec: Bounds for Variant)."""
    width = (bound[0] >> 6) + 1
    count, at = int.from_bytes(bound[1 : 1 + width], "little"), 1 + width
    last = at + width * count
    end = last + width + int.from_bytes(bound[last : last + width], "little")
    return decode_variant(bound[:end], bound[end:])  # type: ignore[no-any-return]


def _inside(row: Row) -> Any:
    found = row["2"]
    return found and decode_variant(*(bytes.fromhex(part) for part in found.values()))


def _comparable(found: Any) -> Any:
    """A row whose variants are their values, since names may be in another order."""
    if isinstance(found, dict):
        if found.keys() == {"metadata", "value"}:
            return repr(_sorted(decode_variant(*(bytes.fromhex(part) for part in found.values()))))
        return {name: _comparable(one) for name, one in found.items()}
    return [_comparable(one) for one in found] if isinstance(found, list) else found


def _sorted(found: Any) -> Any:
    if isinstance(found, dict):
        return [(name, _sorted(found[name])) for name in sorted(found)]
    return [_sorted(one) for one in found] if isinstance(found, list) else found


def _first_difference(found: list[Any], wanted: list[Any]) -> str:
    if len(found) != len(wanted):
        return f"{len(found)} rows for {len(wanted)}"
    row, right = next(pair for pair in zip(found, wanted, strict=True) if pair[0] != pair[1])
    return f"{row} instead of {right}"
