"""Damaged and hostile manifests end in a typed error, with bounded memory."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
import zlib

import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from lakehouse.errors import (
    CorruptMetadataError,
    InvalidInputError,
    LakehouseError,
    UnsupportedFeatureError,
)
from lakehouse.manifests.avro_decoding import decode_entries
from lakehouse.manifests.manifest_reader import decode_avro
from lakehouse.manifests.manifest_writer import encode_manifest
from lakehouse.spec.manifests.avro_container import (
    CHECKSUM_KEY,
    container_head,
    inflated_blocks,
    read_header,
    write_container,
    write_long,
)
from lakehouse.spec.manifests.data_file import (
    CONTENT_POSITION_DELETES,
    STATUS_ADDED,
    STATUS_EXISTING,
    DataFile,
    ManifestEntry,
)
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import (
    ManifestFile,
    read_manifest_list,
    write_manifest_list,
)
from lakehouse.spec.schema.iceberg_types import field_types

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
TYPES = field_types(SCHEMA)


def entry(number: int = 0, **changes) -> ManifestEntry:
    values = {
        "file_path": f"f{number}",
        "partition": (number,),
        "record_count": 1,
        "file_size_in_bytes": 1,
        **changes,
    }
    file = DataFile(
        lower_bounds={1: number.to_bytes(8, "little"), 2: b"a"}, value_counts={1: 1}, **values
    )
    return ManifestEntry(status=STATUS_ADDED, data_file=file)


def manifest_bytes(count: int = 20) -> bytes:
    return encode_manifest(
        Entries.from_manifest_entries([entry(n) for n in range(count)], SPEC, TYPES),
        SCHEMA,
        format_version=2,
    )


def without_checksum(data: bytes) -> bytes:
    """The file as another writer would have left it, so that damage gets past the checksum."""
    header = read_header(data, "m")
    pairs = {key: value for key, value in header.metadata.items() if key != CHECKSUM_KEY}
    return container_head(pairs, header.sync) + data[header.first_block :]


OURS = manifest_bytes()
VALID = without_checksum(OURS)
VALID_400 = without_checksum(manifest_bytes(400))
OUR_LIST, _ = write_manifest_list(
    [
        ManifestFile(
            manifest_path="m",
            manifest_length=1,
            partition_spec_id=0,
            added_snapshot_id=1,
            added_files_count=1,
            existing_files_count=0,
            deleted_files_count=0,
            added_rows_count=1,
            existing_rows_count=0,
            deleted_rows_count=0,
            partitions=(),
        )
    ],
    snapshot_id=1,
    parent_snapshot_id=None,
    sequence_number=1,
    format_version=2,
)
LIST = without_checksum(OUR_LIST)


def tried(data: bytes, folder) -> None:
    """Decode in both ways; only typed errors may come out."""
    path = folder / "m.avro"
    path.write_bytes(data)
    for decode in (
        lambda: decode_entries(data, str(path), SPEC, TYPES),
        lambda: decode_avro([(str(path), path.read_bytes())], SPEC, TYPES),
    ):
        with contextlib.suppress(LakehouseError):
            decode()


@given(
    st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=4)
)
@settings(max_examples=150)
def test_flipped_bytes(tmp_path_factory, changes):
    data = bytearray(VALID)
    for place, value in changes:
        data[place] = value
    tried(bytes(data), tmp_path_factory.getbasetemp())


def test_records_without_fields(tmp_path_factory):
    places = [one.start() + 1 for one in re.finditer(b'"fields"', VALID)]
    assert len(places) > 2
    for place in places:
        data = bytearray(VALID)
        data[place] = ord(" ")
        tried(bytes(data), tmp_path_factory.getbasetemp())


@given(st.integers(0, len(VALID) - 1))
def test_cut_off(length):
    if length == read_header(VALID, "m").first_block:
        return
    with pytest.raises(CorruptMetadataError, match="m"):
        decode_entries(VALID[:length], "m", SPEC, TYPES)


@given(st.integers(0, len(VALID) - 1), st.binary(max_size=30))
def test_uncompressed_content_flipped(tmp_path_factory, place, junk):
    """Flips below the compression reach the record decoders."""
    header = read_header(VALID, "m")
    ((count, plain),) = list(inflated_blocks(VALID, header, "m"))
    place %= len(plain)
    changed = plain[:place] + junk + plain[place + len(junk) :]
    metadata = {
        key: value.decode() for key, value in header.metadata.items() if not key.startswith("avro.")
    }
    tried(
        write_container(header.schema, metadata, [(count, changed)], level=1),
        tmp_path_factory.getbasetemp(),
    )


@example([(LIST.index(b'"name"') + 1, ord(" "))])
@example([(LIST.index(b'"fields"') + 1, ord(" "))])
@given(
    st.lists(st.tuples(st.integers(0, len(LIST) - 1), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_flipped_bytes_of_a_manifest_list(changes):
    data = bytearray(LIST)
    for place, value in changes:
        data[place] = value
    with contextlib.suppress(LakehouseError):
        read_manifest_list(bytes(data), "l")


def with_block(count: int, size: int, content: bytes) -> bytes:
    header = read_header(VALID, "m")
    return (
        VALID[: header.first_block] + write_long(count) + write_long(size) + content + header.sync
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_block(20, 1 << 40, b"xx"), id="claims more bytes than the file has"),
        pytest.param(with_block(1 << 50, 3, b"\x03\x00\x00"), id="claims more records than bytes"),
        pytest.param(with_block(-5, 2, b"\x03\x00"), id="negative count"),
        pytest.param(with_block(1, -2, b"\x03\x00"), id="negative size"),
        pytest.param(b"PAR1" + VALID[4:], id="not Avro"),
        pytest.param(b"", id="empty"),
        pytest.param(VALID[:-16] + bytes(16), id="wrong sync marker"),
    ],
)
def test_lying_blocks(data, tmp_path):
    path = tmp_path / "m.avro"
    path.write_bytes(data)
    with pytest.raises(CorruptMetadataError):
        decode_entries(data, "m", SPEC, TYPES)
    with pytest.raises(CorruptMetadataError):
        decode_avro([(str(path), path.read_bytes())], SPEC, TYPES)


def bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = bytes(1 << 20)
    content = b"".join(packer.compress(zeros) for _ in range(1024)) + packer.flush()
    return with_block(20, len(content), content)


MEASURED = """
import resource, sys
from lakehouse.errors import CorruptMetadataError
from lakehouse.manifests.manifest_reader import decode_avro
from lakehouse.manifests.avro_decoding import decode_entries
from lakehouse.storage.storage_by_scheme import storage_for
from tests.unit.spec.test_manifest_damage import SPEC, TYPES
path = sys.argv[1]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = open(path, "rb").read()
for decode in (
    lambda: decode_avro([(path, storage_for(path).read(path))], SPEC, TYPES),
    lambda: decode_entries(data, path, SPEC, TYPES),
):
    try:
        decode()
    except CorruptMetadataError as error:
        assert "inflates" in str(error), error
    else:
        raise AssertionError("a bomb was decoded")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_a_bomb_costs_bounded_memory(tmp_path):
    """A gigabyte of zeros in a megabyte: refused within 400 MiB, in both ways of decoding."""
    path = tmp_path / "m.avro"
    path.write_bytes(bomb())
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 400 * 1024


@pytest.mark.parametrize("junk", [b"\0", b"\1\2\3", bytes(400), VALID[:300]])
def test_bytes_behind_the_last_entry_of_a_block(tmp_path, junk):
    """DataFusion alone would never return."""
    header = read_header(VALID, "m")
    ((count, plain),) = list(inflated_blocks(VALID, header, "m"))
    metadata = {
        key: value.decode() for key, value in header.metadata.items() if not key.startswith("avro.")
    }
    path = tmp_path / "m.avro"
    path.write_bytes(write_container(header.schema, metadata, [(count, plain + junk)], level=1))
    with pytest.raises(CorruptMetadataError, match="holds more than its 20 records"):
        decode_avro([(str(path), path.read_bytes())], SPEC, TYPES)


def test_many_small_bombs(tmp_path):
    """Blocks below the size that is inflated with a limit: their sum is limited."""
    whole = without_checksum(manifest_bytes(1))
    header = read_header(whole, "m")
    ((_, plain),) = inflated_blocks(whole, header, "m")
    # a valid record but for its path, of three million zeros
    name = plain.index(b"\4f0")
    content = zlib.compress(
        plain[:name] + write_long(3 << 20) + bytes(3 << 20) + plain[name + 3 :], 9, -15
    )
    assert len(content) < 4096
    block = write_long(1) + write_long(len(content)) + content + header.sync
    path = tmp_path / "m.avro"
    path.write_bytes(whole[: header.first_block] + block * 400)
    with pytest.raises(CorruptMetadataError, match="inflates to far more"):
        decode_avro([(str(path), path.read_bytes())], SPEC, TYPES)


@pytest.mark.parametrize(
    "fields", [["a"], [{"type": "int"}], {"name": "a"}, [{"name": "a", "field-id": 500}]]
)
def test_records_without_named_fields_are_refused(fields):
    schema = json.dumps(
        {
            "type": "record",
            "name": "m",
            "fields": [{"name": "b", "type": {"type": "record", "fields": fields}}],
        }
    )
    parts = [b"Obj\x01", write_long(1)]
    for text in (b"avro.schema", schema.encode()):
        parts += [write_long(len(text)), text]
    with pytest.raises(CorruptMetadataError, match="named fields"):
        read_header(b"".join([*parts, b"\x00", bytes(16)]), "m")


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "xz", "bzip2"])
@pytest.mark.parametrize("entries_a_block", [1, 7, 400])
def test_every_codec_and_size_of_block_is_decoded_in_bulk(tmp_path, codec, entries_a_block):
    header = read_header(VALID, "m")
    metadata = {
        key: value.decode() for key, value in header.metadata.items() if not key.startswith("avro.")
    }
    rows = list(fastavro.reader(io.BytesIO(VALID_400)))
    sink = io.BytesIO()
    writer = fastavro.write.Writer(sink, header.schema, codec=codec, metadata=metadata)
    for number, row in enumerate(rows, 1):
        writer.write(row)
        if number % entries_a_block == 0:
            writer.dump()
    writer.flush()
    path = tmp_path / "m.avro"
    path.write_bytes(sink.getvalue())
    decoded = decode_avro([(str(path), path.read_bytes())], SPEC, TYPES)
    assert decoded.kind == "bulk", decoded.refused
    assert (
        decoded.entries.to_manifest_entries()
        == decode_entries(VALID_400, "m", SPEC, TYPES).to_manifest_entries()
    )


def test_items_without_content_are_refused():
    schema = json.dumps(
        {
            "type": "record",
            "name": "m",
            "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}],
        }
    )
    parts = [b"Obj\x01", write_long(1)]
    for text in (b"avro.schema", schema.encode()):
        parts += [write_long(len(text)), text]
    with pytest.raises(CorruptMetadataError, match="without content"):
        read_header(b"".join([*parts, b"\x00", bytes(16)]), "m")


def test_other_codecs():
    rows = [{"x": 1}]
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "long"}]}
    for codec in ("null", "deflate", "snappy", "xz", "bzip2"):
        sink = io.BytesIO()
        fastavro.writer(sink, schema, rows, codec=codec)
        data = sink.getvalue()
        assert list(inflated_blocks(data, read_header(data, "m"), "m")) == [(1, b"\x02")]
    unknown = data.replace(b"bzip2", b"bzip9")
    with pytest.raises(UnsupportedFeatureError, match="bzip9"):
        list(inflated_blocks(unknown, read_header(unknown, "m"), "m"))


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "at least one"),
        ([entry()], {"format_version": 1}, "version"),
        (
            [ManifestEntry(status=STATUS_EXISTING, data_file=entry().data_file)],
            {},
            "sequence numbers",
        ),
        ([entry(content=CONTENT_POSITION_DELETES)], {}, "either data files or delete files"),
        ([entry()], {"content": 1}, "either data files or delete files"),
        ([entry(content=CONTENT_POSITION_DELETES, content_offset=4)], {"content": 1}, "version 3"),
    ],
)
def test_what_cannot_be_written(rows, options, message):
    with pytest.raises(InvalidInputError, match=message):
        encode_manifest(
            Entries.from_manifest_entries(rows, SPEC, TYPES),
            SCHEMA,
            **{"format_version": 2, **options},
        )


def test_equal_input_gives_equal_bytes():
    assert manifest_bytes() == OURS


@given(st.integers(0, len(OURS) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_a_changed_byte_of_our_own_manifests_is_noticed(place, flip):
    data = bytearray(OURS)
    data[place] ^= flip
    try:
        found = decode_entries(bytes(data), "m", SPEC, TYPES)
    except LakehouseError:
        return
    # the name of the checksum itself
    assert found.table.equals(decode_entries(OURS, "m", SPEC, TYPES).table)


@given(st.integers(0, len(OUR_LIST) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_a_changed_byte_of_our_own_manifest_lists_is_noticed(place, flip):
    data = bytearray(OUR_LIST)
    data[place] ^= flip
    try:
        found = read_manifest_list(bytes(data), "l")
    except LakehouseError:
        return
    assert found == read_manifest_list(OUR_LIST, "l")
