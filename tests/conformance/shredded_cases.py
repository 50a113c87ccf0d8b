"""`python -m tests.conformance.shredded_cases FOLDER`: parquet-testing's shredded variants.

FOLDER is `shredded_variant` of a clone of apache/parquet-testing: files that Iceberg's Java
implementation wrote, each with its variants encoded, or with the reason why it has to be refused.
Files that its notes call invalid may be refused or read.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lakehouse.data.conversion.variant_arrays import variants_of_file
from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.types.variant_values import decode_variant


def variants_in(path: Path) -> list[Any] | None:
    """The values of a case's Parquet file as we read them; None where we refuse it."""
    column = pq.read_table(path, arrow_extensions_enabled=False)["var"].combine_chunks()
    try:
        rows = variants_of_file(column).to_pylist()
        return [None if row is None else decode_variant(**row) for row in rows]
    except CorruptMetadataError:
        return None


def variant_in(raw: bytes) -> Any:
    """The value of a case's file of metadata and value."""
    width = (raw[0] >> 6) + 1
    names = int.from_bytes(raw[1 : 1 + width], "little")
    end = 1 + width * (2 + names)  # of the offsets, the last of which is the size of the names
    end += int.from_bytes(raw[end - width : end], "little")
    return decode_variant(raw[:end], raw[end:])


def verdict(case: dict[str, Any], folder: Path) -> str:
    """`equal`, `refused`, or what is wrong."""
    found = variants_in(folder / case["parquet_file"])
    if "error_message" in case:
        return "refused" if found is None else f"read, and has to be refused: {found}"
    if found is None:
        return "refused, as invalid files may be" if "notes" in case else "refused"
    files = case.get("variant_files", [case.get("variant_file")])
    wanted = [None if name is None else variant_in((folder / name).read_bytes()) for name in files]
    return "equal" if repr(found) == repr(wanted) else f"{found} instead of {wanted}"


def main() -> int:
    """Print the verdicts, counted; exit code 1 when a case is wrong."""
    folder = Path(sys.argv[1])
    counts: Counter[str] = Counter()
    wrong = 0
    for case in json.loads((folder / "cases.json").read_text()):
        if "parquet_file" not in case:  # a number that was left out
            continue
        said = verdict(case, folder)
        may_be = ["refused" if "error_message" in case else "equal"]
        if "notes" in case:
            may_be.append("refused, as invalid files may be")
        is_right = said in may_be
        wrong += not is_right
        counts[said if is_right else "wrong"] += 1
        if not is_right:
            sys.stdout.write(f"{case['case_number']} {case['test']}: {said}\n")
    for said, count in counts.most_common():
        sys.stdout.write(f"{count:5} {said}\n")
    return 1 if wrong or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
