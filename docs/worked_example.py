"""Follows a commit byte by byte, from pointer to row: prints docs/format.md's worked example.

`python docs/worked_example.py --write` puts it into the page.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import struct
import sys
import textwrap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakehouse as lh
from lakehouse.environment import Environment
from lakehouse.manifests.manifest_reader import decode_avro, load_manifests
from lakehouse.spec.manifests.avro_container import inflated_blocks, read_blocks, read_header
from lakehouse.spec.manifests.columnar_manifest import (
    columnar_path,
    encode_columnar,
    name_with_checksum,
)
from lakehouse.spec.metadata.table_metadata import types_of

PAGE = Path(__file__).resolve().parent / "format.md"
BEGIN, END = (
    "<!-- worked example: made by docs/worked_example.py -->",
    "<!-- end of the worked example -->",
)
VERSIONS = f"pyarrow {pa.__version__}, zlib {zlib.ZLIB_RUNTIME_VERSION}"
SCHEMA = pa.schema(
    [("event_ts", pa.timestamp("us", tz="UTC")), ("user_id", pa.int64()), ("amount", pa.float64())]
)
WANTED = 12.5


def example() -> str:
    """The example as Markdown; the same bytes on each run with the same versions."""
    table = _table()
    snapshot = table.current_snapshot()
    if snapshot is None:
        raise AssertionError("the example committed nothing")
    return _wrapped(
        [
            (
                "Two rows of two days were appended to an empty table partitioned by "
                f"`day(event_ts)` (bytes below: {VERSIONS})."
            ),
            "A reader wants the rows of 2026-06-09.",
            *_pointer(table),
            *_metadata(table, snapshot),
            *_manifest_list(table, snapshot),
            *_manifest(table),
            *_data_file(table),
        ]
    )


def _wrapped(lines: list[str]) -> str:
    """Paragraphs wrapped at 100 columns; headings and blocks of code as they are."""
    parts = re.split(r"(^```.*?^```$|^#.*?$)", "\n".join(lines), flags=re.DOTALL | re.MULTILINE)
    for number in range(0, len(parts), 2):
        parts[number] = re.sub(
            r"\S[^\n]*(?:\n[^\n]+)*",
            lambda paragraph: textwrap.fill(
                paragraph.group(), 100, break_long_words=False, break_on_hyphens=False
            ),
            parts[number],
        )
    return "".join(parts)


def _table() -> lh.Table:
    catalog = lh.load_catalog("memory://lake", environment=Environment.seeded(9))
    properties = {"write.parquet.compression-codec": "uncompressed"}
    table = catalog.create_table(
        "raw.events", SCHEMA, partition_by=["day(event_ts)"], properties=properties
    )
    days = [dt.datetime(2026, 6, day, 9, 30, tzinfo=dt.UTC) for day in (8, 9)]
    table.append(
        pa.table({"event_ts": days, "user_id": [41, 42], "amount": [3.0, WANTED]}, schema=SCHEMA)
    )
    return table


def _pointer(table: lh.Table) -> Iterator[str]:
    folder = f"{table.location}/metadata"
    yield "\n### 1. The pointer\n"
    yield (
        f"`{folder}/version-hint.text` says where to begin looking; `v3` is not there, so `v2` is "
        "the newest version.\n"
    )
    yield from _block(_dump(table.storage.read(f"{folder}/version-hint.text")))
    data = table.storage.read(table.metadata_location)
    yield f"\n`{table.metadata_location}` ({len(data)} bytes) begins\n"
    yield from _block(_dump(data[:32]))


def _metadata(table: lh.Table, snapshot: lh.Snapshot) -> Iterator[str]:
    yield "\n### 2. Table metadata\n"
    yield (
        "The current snapshot names its manifest list; the partition spec says what a partition "
        "value means: field 1000 is"
    )
    yield "`day` of the column with id 1.\n"
    document = json.loads(table.storage.read(table.metadata_location))
    shown = {
        key: document[key]
        for key in (
            "format-version",
            "current-snapshot-id",
            "last-sequence-number",
            "partition-specs",
        )
    }
    shown["snapshots"] = [
        {
            key: document["snapshots"][0][key]
            for key in ("snapshot-id", "sequence-number", "manifest-list")
        }
    ]
    yield from _block(json.dumps(shown, indent=1).splitlines(), "json")
    if snapshot.manifest_list != shown["snapshots"][0]["manifest-list"]:
        raise AssertionError("another manifest list")


def _manifest_list(table: lh.Table, snapshot: lh.Snapshot) -> Iterator[str]:
    data = table.storage.read(snapshot.manifest_list)
    yield "\n### 3. The manifest list\n"
    yield (
        f"An Avro file of {len(data)} bytes. Its header holds the schema; after it comes one block "
        "of rows, deflated.\n"
    )
    yield from _block(_container(data, snapshot.manifest_list))
    yield (
        "\n"
        "The inflated block, field by field (Avro writes integers as zigzag varints, and 02 "
        "before an optional value):\n"
    )
    yield from _block(_annotated(data, snapshot.manifest_list))
    yield (
        "\n"
        "The bounds of the partition field (`lower_bound` 2026-06-08, `upper_bound` 2026-06-09, "
        "days since 1970, four bytes)"
    )
    yield "allow the day wanted: the manifest has to be read."


def _manifest(table: lh.Table) -> Iterator[str]:
    (manifest,) = load_manifests(
        table.storage, table.metadata.snapshot(table.snapshots()[-1].snapshot_id)
    )
    location = manifest.manifest_path
    data = table.storage.read(location)
    types = types_of(table.metadata)
    entries = decode_avro([(location, table.storage.read(location))], table.spec(), types).entries
    columnar = encode_columnar(entries)
    named = name_with_checksum(manifest.manifest_path.removesuffix(".avro"), columnar.checksum)
    yield "\n### 4. The manifest and its columnar manifest\n"
    yield f"The manifest, {len(data)} bytes, has one entry a data file. The second:\n"
    yield from _block(_annotated(data, location))
    file = pq.ParquetFile(io.BytesIO(columnar.data))
    wanted = [
        "status",
        "file_path",
        "record_count",
        "partition.1000",
        "lower.3",
        "upper.3",
        "sequence_number",
    ]
    yield "\nA commit writes a columnar manifest from 32 entries on. For this manifest it would be"
    yield f"`{columnar_path(named).rpartition('/')[2]}`,"
    yield (
        "the same entries as columns, and the manifest would have the same name. A filter on "
        "`event_ts`"
    )
    yield "reads `partition.1000` of it first:\n"
    lines = [
        f"{key.decode()} = {_short(value.decode())}"
        for key, value in sorted((file.metadata.metadata or {}).items())
        if b"lake" in key
    ]
    for name in wanted:
        values = [
            f"...{value[-14:]}" if isinstance(value, str) else value
            for value in file.read([name])[name].to_pylist()
        ]
        lines.append(f"{name:16} {file.schema_arrow.field(name).type!s:7} {values}")
    yield from _block(lines)
    day = (dt.date(2026, 6, 9) - dt.date(1970, 1, 1)).days
    yield (
        "\n"
        f"2026-06-09 is day {day}: the second file stays. Its status is 1 (added); the sequence "
        "number is null, as in the"
    )
    yield "manifest, and is inherited from the row of the manifest list: 1."


def _short(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:64]}... ({len(text)} digits)"


def _data_file(table: lh.Table) -> Iterator[str]:
    scan = table.scan(where="event_ts >= '2026-06-09T00:00:00+00:00'")
    (file,) = scan.plan().files
    data = table.storage.read(file.file_path)
    (length,) = struct.unpack("<I", data[-8:-4])
    metadata = pq.read_metadata(io.BytesIO(data))
    chunk = metadata.row_group(0).column(2)
    at = data.index(
        struct.pack("<d", WANTED), chunk.dictionary_page_offset or chunk.data_page_offset
    )
    yield "\n### 5. The data file and the row\n"
    yield (
        f"`{file.file_path.rpartition('/')[2]}`, {len(data)} bytes, ends with the length of its "
        "footer and the magic:\n"
    )
    yield from _block(
        [
            *_dump(data[:4]),
            "...",
            *_dump(
                data[at : at + 8],
                at,
                f"row 0, column 2 (field id {_field_id(metadata, 2)}): amount = {WANTED}",
            ),
            "...",
            *_dump(data[-8:], len(data) - 8, f"footer of {length} bytes"),
        ]
    )
    yield (
        "\n"
        "The footer tells the field id of each column, by which the reader finds it whatever its "
        "name:\n"
    )
    columns = [metadata.row_group(0).column(number) for number in range(3)]
    yield from _block(
        f"field id {_field_id(metadata, number)}  {column.path_in_schema:9} "
        f"{column.physical_type:7} first page at byte "
        f"{column.dictionary_page_offset or column.data_page_offset}"
        for number, column in enumerate(columns)
    )
    yield "\nand the row is\n"
    yield from _block(
        [str(scan.to_arrow().to_pylist()[0]).replace("zoneinfo.ZoneInfo(key='UTC')", "UTC")]
    )


def _field_id(metadata: pq.FileMetaData, column: int) -> str:
    return str(
        metadata.schema.to_arrow_schema().field(column).metadata[b"PARQUET:field_id"].decode()
    )


def _block(lines: Any, language: str = "text") -> Iterator[str]:
    yield f"```{language}"
    yield from lines
    yield "```"


def _dump(data: bytes, start: int = 0, note: str = "") -> Iterator[str]:
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{start + at:06x}  {part.hex(' '):47}  {text}" + (f"  {note}" if note else "")


def _container(data: bytes, location: str) -> Iterator[str]:
    header = read_header(data, location)
    block = next(read_blocks(data, header, location))
    yield from _dump(data[:16], 0, "Obj 01: an Avro file; then a map")
    for key in sorted(set(header.metadata) - {"avro.schema"}):
        yield f"        {key} = {header.metadata[key].decode()}"
    yield f"{header.first_block - 16:06x}  {header.sync.hex(' ')}  sync marker"
    yield f"{header.first_block:06x}  {block.count} row(s), {len(block.data)} bytes deflated"


def _annotated(data: bytes, location: str) -> Iterator[str]:
    """The last record of the file."""
    header = read_header(data, location)
    for count, plain in inflated_blocks(data, header, location):
        walker = _Walker(plain)
        for _ in range(count):
            walker.lines = []
            walker.walk(header.schema, "")
        yield from walker.lines


class _Walker:
    """Reads Avro values and notes the bytes of each."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.lines: list[str] = []

    def walk(self, schema: Any, path: str) -> None:
        """Read one value."""
        start = self.at
        if isinstance(schema, list):
            schema = schema[self._long()]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            self.walk(kind, path)
        elif kind == "record":
            for field in schema["fields"]:
                self.walk(field["type"], f"{path}.{field['name']}" if path else field["name"])
        elif kind == "array":
            while count := self._long():
                for number in range(count):
                    self.walk(schema["items"], f"{path}[{number}]")
        else:
            value = self._primitive(kind)
            raw = self.data[start : self.at]
            shown = raw[:12].hex(" ") + (" ..." if len(raw) > 12 else "")
            self.lines.append(f"{start:04x}  {shown:40} {path} = {value}")

    def _primitive(self, kind: str) -> Any:
        if kind == "null":
            return "null"
        if kind in ("int", "long"):
            return self._long()
        if kind == "boolean":
            return bool(self._take(1)[0])
        raw = self._take(self._long())
        return raw.decode() if kind == "string" else f"0x{raw.hex()}"

    def _take(self, length: int) -> bytes:
        self.at += length
        return self.data[self.at - length : self.at]

    def _long(self) -> int:
        shift = value = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)


def main() -> None:
    """Print the example, or put it into the page."""
    if "--write" not in sys.argv[1:]:
        sys.stdout.write(example() + "\n")
        return
    before, _, behind = PAGE.read_text().partition(BEGIN)
    after = behind.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{example()}\n\n{END}{after}")


if __name__ == "__main__":
    main()
