"""Makes the corpus in tests/conformance/golden/: small tables as Java writes them.

    python -m tests.conformance.java.golden [table ...]

Each table is an archive of its folder, whose location is `memory://golden/db/<table>`, and
`expected.json`: the metadata file, the rows of the head and of every snapshot, and row lineage. The
expected rows are what the program wrote, and Java has read the same.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg.types import DecimalType, FixedType, PrimitiveType, UUIDType

from tests.conformance.java.java_table import JavaTable
from tests.conformance.java.json_rows import sorted_maps
from tests.conformance.java.judge import Judge, JudgeError, build
from tests.conformance.java.random_rows import primitives, value

FOLDER = Path(__file__).parent.parent / "golden"
ROOT = "memory://golden"
SMALL_GROUPS = {
    "write.parquet.row-group-size-bytes": "300",
    "write.parquet.row-group-check-min-record-count": "2",
    "write.parquet.row-group-check-max-record-count": "2",
}
NESTED = {
    "s": {
        "type": "struct",
        "fields": [
            {"id": 201, "name": "x", "required": False, "type": "int"},
            {
                "id": 202,
                "name": "y",
                "required": False,
                "type": {
                    "type": "struct",
                    "fields": [{"id": 203, "name": "u", "required": False, "type": "uuid"}],
                },
            },
        ],
    },
    "l": {"type": "list", "element-id": 204, "element-required": False, "element": "double"},
    "m": {
        "type": "map",
        "key-id": 205,
        "key": "string",
        "value-id": 206,
        "value-required": False,
        "value": {
            "type": "list",
            "element-id": 207,
            "element-required": True,
            "element": "decimal(20, 7)",
        },
    },
}
MAKERS: dict[str, Callable[[Judge, str], JavaTable]] = {}


def maker(function: Callable[[Judge, str], JavaTable]) -> Callable[[Judge, str], JavaTable]:
    """A table of the corpus, by the name of the function."""
    MAKERS[function.__name__] = function
    return function


def distinct(kind: Any, count: int, seed: str) -> list[Any]:
    """Different values of a type, fewer where it has no more."""
    random, found = Random(seed), []
    for _ in range(60):
        one = value(random, kind)
        if one not in found and len(found) < count:
            found.append(one)
    return found


def identity(kind: Any) -> Callable[[Judge, str], JavaTable]:
    """Partitioned by a column of a type: two commits over its values, null among them."""

    def make(judge: Judge, name: str) -> JavaTable:
        version = 3 if "_ns" in str(kind) else 2
        table = JavaTable(judge, name, {"c": str(kind)}, [("identity", "c")], version)
        values = [*distinct(kind, 4, name), None]
        table.append(table.new_rows(len(values), {"c": values}))
        table.append(table.new_rows(len(values), {"c": values[::-1]}), fast=True)
        return table

    return make


for _kind in primitives(3):
    _name = str(_kind).replace("(", "_").replace(", ", "_").replace("[", "_").rstrip(")]")
    MAKERS[f"identity_{_name}"] = identity(_kind)


def pair(kind: PrimitiveType) -> Callable[[Judge, str], JavaTable]:
    """By two columns of a type: the second has it in manifests by its name alone."""

    def make(judge: Judge, name: str) -> JavaTable:
        terms = [("identity", "c"), ("identity", "d")]
        table = JavaTable(judge, name, {"c": str(kind), "d": str(kind)}, terms)
        values = [*distinct(kind, 3, name), None]
        table.append(table.new_rows(5, {"c": values, "d": values[1:]}))
        return table

    return make


for _name, _kind in (("decimal", DecimalType(9, 2)), ("fixed", FixedType(3)), ("uuid", UUIDType())):
    MAKERS[f"pair_{_name}"] = pair(_kind)


def all_types(version: int, layout: str) -> Callable[[Judge, str], JavaTable]:
    """Every type, not partitioned, in one row group, several, or Avro."""

    def make(judge: Judge, name: str) -> JavaTable:
        kinds = {f"c{number}": str(kind) for number, kind in enumerate(primitives(version))}
        properties = SMALL_GROUPS if layout == "groups" else {}
        table = JavaTable(judge, name, kinds | NESTED, (), version, properties)
        form = "avro" if layout == "avro" else "parquet"
        table.append(table.new_rows(9), format=form)
        table.append(table.new_rows(3), format=form)
        return table

    return make


for _version in (1, 2, 3):
    for _layout in ("flat", "groups", "avro"):
        MAKERS[f"types_{_layout}_v{_version}"] = all_types(_version, _layout)


@maker
def uuids_in_row_groups(judge: Judge, name: str) -> JavaTable:
    """Java merges the bounds of row groups in another order than they were taken in."""
    table = JavaTable(judge, name, {"u": "uuid"}, (), 2, SMALL_GROUPS)
    groups = [["10", "f0"] * 4, ["20", "30"] * 4]
    for order in (groups, groups[::-1]):
        firsts = [first for group in order for first in group]
        rows = table.new_rows(len(firsts))
        column = str(table.schema.find_field("u").field_id)
        for number, (row, first) in enumerate(zip(rows, firsts, strict=True)):
            row[column] = f"{first}{number:06x}00004000" + "8000000000000001"
        table.append(rows)
    return table


@maker
def transforms(judge: Judge, name: str) -> JavaTable:
    """Buckets, truncations and times of several columns."""
    columns = {"b": "binary", "s": "string", "d": "decimal(9, 2)", "t": "timestamptz", "u": "uuid"}
    terms = [("bucket[4]", "u"), ("truncate[2]", "s"), ("truncate[2]", "b"), ("day", "t")]
    table = JavaTable(judge, name, columns, [*terms, ("truncate[2]", "d")])
    table.append(table.new_rows(10))
    table.append(table.new_rows(10))
    return table


def row_level(version: int, mode: str, granularity: str) -> Callable[[Judge, str], JavaTable]:
    """Deletes and updates, one upon the other, in a partitioned table."""

    def make(judge: Judge, name: str) -> JavaTable:
        columns = {"p": "int", "s": "string", "d": "double"}
        table = JavaTable(judge, name, columns, [("identity", "p")], version, SMALL_GROUPS)
        table.append(table.new_rows(12, {"p": [1, 2, None]}), files=2)
        table.append(table.new_rows(6, {"p": [2, 3]}))
        table.delete(mode, [0, 4, 13], granularity=granularity)
        table.delete(mode, [1, 3, 12], granularity=granularity)
        table.change(mode, [2, 5, 14], granularity=granularity)
        table.delete(mode, [2, 15], granularity=granularity)
        table.append(table.new_rows(2))
        return table

    return make


MAKERS["copy_on_write_v1"] = row_level(1, "copy-on-write", "file")
MAKERS["copy_on_write_v2"] = row_level(2, "copy-on-write", "file")
MAKERS["copy_on_write_v3"] = row_level(3, "copy-on-write", "file")
MAKERS["merge_on_read_v2_file"] = row_level(2, "merge-on-read", "file")
MAKERS["merge_on_read_v2_partition"] = row_level(2, "merge-on-read", "partition")
MAKERS["merge_on_read_v3"] = row_level(3, "merge-on-read", "file")


def equality(version: int, *, uuids: bool = False) -> Callable[[Judge, str], JavaTable]:
    """Equality deletes by columns of every type, between position deletes and appends."""

    def make(judge: Judge, name: str) -> JavaTable:
        some = [kind for kind in primitives(version) if (str(kind) == "uuid") == uuids]
        kinds = {f"c{n}": str(kind) for n, kind in enumerate(some * (4 if uuids else 1))}
        table = JavaTable(judge, name, kinds, (), version)
        values = {
            column: [*distinct(some[n % len(some)], 12 - n % 3, name + column), None]
            for n, column in enumerate(kinds)
        }
        table.append(table.new_rows(60, values))
        table.append(table.new_rows(60, values))
        for number, column in enumerate(kinds):
            if kinds[column] != "boolean":
                table.delete_equal([column], sorted(table.rows)[-1 - number % 3])
        table.delete("merge-on-read", sorted(table.rows)[::5])
        table.append(table.new_rows(9, values))
        table.delete_equal(["c0", "c3"], sorted(table.rows)[0])
        table.append(table.new_rows(3))
        return table

    return make


MAKERS["equality_v2"], MAKERS["equality_v3"] = equality(2), equality(3)
MAKERS["equality_uuid"] = equality(2, uuids=True)


@maker
def equality_partitioned(judge: Judge, name: str) -> JavaTable:
    """In the partition alone; data of the same commit and later are not reached."""
    table = JavaTable(judge, name, {"p": "string", "v": "int"}, [("identity", "p")])
    values = {"p": ["a", "b", None], "v": [1, 2]}
    table.append(table.new_rows(12, values))
    for rid in (0, 4, 8):
        table.delete_equal(["p", "v"], rid)
        table.append(table.new_rows(3, values))
    return table


@maker
def partition_summaries(judge: Judge, name: str) -> JavaTable:
    """Summaries with the counts of at most four partitions, whose names have to be encoded."""
    columns = {"p": "string", "t": "timestamp"}
    terms = [("identity", "p"), ("day", "t")]
    limit = {"write.summary.partition-limit": "4"}
    table = JavaTable(judge, name, columns, terms, 2, limit)
    texts = ["a b/c=d,e", "~*.-_+%é𝄞", None, "long " * 45]
    table.append(table.new_rows(8, {"p": texts, "t": [0]}))
    table.append(table.new_rows(2, {"p": ["null", None], "t": [None, 1]}))
    table.append(table.new_rows(5, {"p": [*texts, "one too many"], "t": [-86_400_000_000 * 900]}))
    table.delete("merge-on-read", [0, 1], granularity="partition")
    table.delete_equal(["p", "t"], 5)
    table.delete("copy-on-write", [8])
    table.do("spec", changes=[{"change": "remove", "name": "p1"}])
    table.append(table.new_rows(2, {"p": texts[:2], "t": [0]}))
    table.do("properties", set={"format-version": "3"})
    table.delete("merge-on-read", [2, 15])
    table.change("merge-on-read", [6, 16])
    table.do("compact")
    return table


@maker
def vectors_over_position_deletes(judge: Judge, name: str) -> JavaTable:
    """Position deletes of v2, then v3: vectors take them in."""
    table = JavaTable(judge, name, {"p": "int", "s": "string"}, [("bucket[2]", "p")])
    table.append(table.new_rows(12, {"p": [1, 2, 3]}))
    table.delete("merge-on-read", [0, 5], granularity="partition")
    table.do("properties", set={"format-version": "3"})
    table.append(table.new_rows(4))
    table.delete("merge-on-read", [1, 2, 12])
    table.change("merge-on-read", [3, 13])
    return table


def evolved(version: int) -> Callable[[Judge, str], JavaTable]:
    """Columns added, dropped, renamed, widened and moved, at the top and in a struct."""

    def make(judge: Judge, name: str) -> JavaTable:
        columns = {"i": "int", "f": "float", "d": "decimal(9, 2)", "gone": "string", **NESTED}
        table = JavaTable(judge, name, columns, [("truncate[2]", "i")], version)
        table.append(table.new_rows(6))
        for change in (
            {"change": "widen", "name": "i", "type": "long"},
            {"change": "widen", "name": "f", "type": "double"},
            {"change": "widen", "name": "d", "type": "decimal(18, 2)"},
            {"change": "drop", "name": "gone"},
            {"change": "add", "name": "gone", "type": "int"},
            {"change": "rename", "name": "l", "to": "list of doubles"},
            {"change": "add", "parent": "s", "name": "z", "type": "binary"},
            {"change": "rename", "name": "s.x", "to": "renamed"},
            {"change": "first", "name": "m"},
        ):
            table.migrate(change)
        table.append(table.new_rows(6))
        return table

    return make


for _version in (1, 2, 3):
    MAKERS[f"evolved_schema_v{_version}"] = evolved(_version)


@maker
def defaults(judge: Judge, name: str) -> JavaTable:
    """Columns with defaults that older files lack (v3)."""
    table = JavaTable(judge, name, {"a": "int"}, (), 3)
    table.append(table.new_rows(3))
    given = {"int": 7, "string": "né", "boolean": True, "uuid": "f" * 32, "decimal(9, 2)": "-150"}
    for number, (kind, default) in enumerate(given.items()):
        made = {"change": "add", "name": f"d{number}", "type": kind, "default": default}
        table.migrate(made)
    table.append(table.new_rows(3))
    return table


def respecified(version: int) -> Callable[[Judge, str], JavaTable]:
    """Specs that follow each other, with deletes over all of them."""

    def make(judge: Judge, name: str) -> JavaTable:
        columns = {"i": "int", "t": "timestamp", "u": "uuid"}
        table = JavaTable(judge, name, columns, [("identity", "i"), ("month", "t")], version)
        values = {"i": [1, 2, None]}
        table.append(table.new_rows(6, values))
        add = {"change": "add", "name": "u4", "transform": "bucket[4]", "column": "u"}
        table.do("spec", changes=[add])
        table.append(table.new_rows(6, values))
        table.do("spec", changes=[{"change": "remove", "name": "p0"}])
        table.append(table.new_rows(6, values))
        mode = "copy-on-write" if version == 1 else "merge-on-read"
        table.delete(mode, [0, 7, 14])
        add = {"change": "add", "name": "id_u", "transform": "identity", "column": "u"}
        table.do("spec", changes=[{"change": "remove", "name": "u4"}, add])
        table.append(table.new_rows(4))
        table.delete(mode, [1, 18])
        return table

    return make


for _version in (1, 2, 3):
    MAKERS[f"evolved_spec_v{_version}"] = respecified(_version)


@maker
def upgraded(judge: Judge, name: str) -> JavaTable:
    """v1, then v2, then v3, with data of each."""
    table = JavaTable(judge, name, {"i": "int", "s": "string"}, [("identity", "i")], 1)
    for version in ("2", "3", None):
        table.append(table.new_rows(4, {"i": [1, 2]}))
        if version:
            table.do("properties", set={"format-version": version})
    table.delete("merge-on-read", [0, 5, 10])
    table.do("compact")
    table.append(table.new_rows(2))
    return table


@maker
def rewritten(judge: Judge, name: str) -> JavaTable:
    """Compacted, manifests rewritten, rolled back, a branch and a tag, gzipped metadata."""
    properties = {
        "write.metadata.compression-codec": "gzip",
        "commit.manifest.min-count-to-merge": "2",
    }
    table = JavaTable(judge, name, {"i": "int", "u": "uuid"}, [("identity", "u")], 3, properties)
    for _ in range(4):
        table.append(table.new_rows(3))
    table.delete("merge-on-read", [1, 4])
    table.do("rewrite-manifests")
    table.do("compact")
    kept = table.metadata["current-snapshot-id"]
    table.do("reference", change="tag", name="kept", snapshot=kept)
    table.append(table.new_rows(3))
    table.do("reference", change="branch", name="side", snapshot=kept)
    table.go_back(kept)
    return table


MISREAD = {
    "identity_timestamp_ns": "its generic reader fails on constants in nanoseconds",
    "identity_timestamptz_ns": "its generic reader fails on constants in nanoseconds",
    "equality_uuid": "bounds in another order than its own keep deletes from their data files",
}
"""What Java itself does not read as it was written, and why."""


def check(judge: Judge, name: str, table: JavaTable, expected: dict[str, Any]) -> None:
    """Java reads what was written, but for what it misreads. Raises ValueError."""
    struct = table.schema.as_struct()
    written = in_order(expected["rows"])
    try:
        got = in_order([sorted_maps(row, struct) for row in judge("rows", table=table.name)])
    except JudgeError as error:
        got = [str(error)]
    if (got == written) == (name in MISREAD):
        wrong = sorted(set(got) ^ set(written))
        raise ValueError(f"{table.name}: {len(got)} rows read, {len(written)} written: {wrong[:3]}")


def in_order(rows: Iterable[Any]) -> list[str]:
    """Rows as texts, sorted."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def main() -> None:
    """Make all anew, or those named."""
    wanted = sys.argv[1:] or MAKERS
    build()
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.tar.xz"):
        if old.name.removesuffix(".tar.xz") not in MAKERS:
            old.unlink()
    with Judge() as judge, tempfile.TemporaryDirectory() as place:
        files = Path(place, "files")
        properties = {
            "warehouse": ROOT,
            "uri": f"jdbc:sqlite:{place}/catalog.db",
            "jdbc.schema-version": "V1",
            "io-impl": "judge.FolderIO",
            "io.root": ROOT,
            "io.folder": str(files),
        }
        judge("open", kind="jdbc", properties=properties)
        for name in wanted:
            table = MAKERS[name](judge, name)
            expected = table.expected(lineage=name.endswith("v3") and "identity" not in name)
            check(judge, name, table, expected)
            pack(name, files / "db" / name, expected)
    total = sum(one.stat().st_size for one in FOLDER.glob("*.tar.xz"))
    sys.stdout.write(f"{len(wanted)} tables made, {total:,} bytes in {FOLDER}\n")


def pack(name: str, folder: Path, expected: dict[str, Any]) -> None:
    """One table as an archive, without the metadata files before the present one."""
    present = expected["metadata"].rpartition("/")[2]
    files = {"expected.json": json.dumps(expected, sort_keys=True).encode()}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (".metadata.json" not in path.name or path.name == present):
            files[str(path.relative_to(folder))] = path.read_bytes()
    with tarfile.open(FOLDER / f"{name}.tar.xz", "w:xz", preset=9) as out:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    main()
