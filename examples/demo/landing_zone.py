"""Laying files down as a feed does: whole or not at all, and never twice."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

_CUT_OFF_AT = 0.6


def lay_down(folder: Path, name: str, lines: Sequence[bytes]) -> bool:
    """Write a gzipped file of lines unless it is there; returns whether it was written."""
    return _write(folder / name, _packed(lines))


def lay_down_cut_off(folder: Path, name: str, lines: Sequence[bytes]) -> bool:
    """The same, as an upload leaves it that broke off."""
    packed = _packed(lines)
    return _write(folder / name, packed[: int(len(packed) * _CUT_OFF_AT)])


def count_lines(files: Iterable[Path]) -> int:
    """Counts lines of gzipped files without the pipeline's code; of a cut file, what is left."""
    return sum(_count(file) for file in files)


def _count(file: Path) -> int:
    inflater, lines, last = zlib.decompressobj(31), 0, b"\n"
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            plain = inflater.decompress(block)
            lines += plain.count(b"\n")
            last = plain[-1:] or last
    return lines + (last != b"\n")


def _packed(lines: Sequence[bytes]) -> bytes:
    return gzip.compress(b"\n".join(lines) + b"\n", compresslevel=6, mtime=0)


def _write(path: Path, data: bytes) -> bool:
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(data)
    unfinished.rename(path)
    return True
