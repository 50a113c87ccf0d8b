"""Faults of reading landing files that we had, planted again."""

from __future__ import annotations

from tests.hostile.foreign_mutants import Mutant

_READING = "ingestion.reading"
_CONTENT, _FORMATS = f"{_READING}.content", f"{_READING}.formats"
_TYPING = f"{_READING}.typing"

LANDING_MUTANTS = [
    Mutant(
        "7: codes of CSV are guessed to be numbers",
        f"{_TYPING}.observed_kinds:_guessed",
        "in GUESSED.items():",
        "in list(GUESSED.items())[:-1]:",
        seed=945,
    ),
    Mutant(
        "7: codes are numbers in a column that was guessed to be one",
        f"{_TYPING}.typed_columns:typed_column",
        "if from_text and guessed and column_type in _NUMBERS:",
        "if False:",
        seed=625,
    ),
    Mutant(
        "7: 1_000 and full-width digits are decimals",
        f"{_TYPING}.typed_columns:_decimal",
        "not NUMBER.fullmatch(value)",
        "False",
        seed=149,
    ),
    Mutant(
        "7: 1_000 and full-width digits are event times",
        f"{_TYPING}.event_time:_number",
        "NUMBER.fullmatch(value)",
        "value.replace('_', '').replace('.', '').isdecimal()",
        seed=505,
    ),
    Mutant(
        "7: fractions of more digits than a double has are rounded",
        f"{_FORMATS}.json_text:exact_float",
        "math.isinf(number) or",
        "True or",
        seed=15,
    ),
    Mutant(
        "8: INT96 is a wall time",
        f"{_FORMATS}.parquet_rows:_int96_columns",
        '== "INT96"',
        '== ""',
        seed=37,
    ),
    Mutant(
        "12: clocks that are ahead lose events",
        "ingestion.workers.landing_reader:LandingReader.clock",
        "self.today + AHEAD",
        "self.today",
        seed=16,
    ),
    Mutant(
        "15: nanoseconds are refused as a column though they may be cut",
        f"{_TYPING}.typed_rows:RowTyper._judged",
        'self._source.nanoseconds == "cut"',
        "False",
        seed=413,
    ),
    Mutant(
        "15: one fraction makes large numbers doubles",
        f"{_TYPING}.value_kinds:inferred",
        'inexact <= weights["double"]',
        "True",
        seed=457,
    ),
    Mutant(
        "15: a decimal takes no number with a fraction",
        f"{_TYPING}.value_kinds:fits",
        '"huge", "double", "string"',
        '"huge", "string"',
        seed=200,
    ),
    Mutant(
        "15: a bucket column is inferred as a double",
        "ingestion.drift:resolve",
        "name in source.bucketed and",
        "False and",
        seed=15,
    ),
    Mutant(
        "19: what comes before a damage within a call is lost",
        f"{_CONTENT}:_decompressed",
        "if left:",
        "if False:",
        seed=9,
    ),
    Mutant(
        "19: what is compressed twice is text",
        f"{_CONTENT}:_unpacked",
        "if inner in _DECODERS:",
        "if False:",
        seed=45,
    ),
    Mutant("19: zlib is text", f"{_CONTENT}:kind_of", "if _is_zlib(head):", "if False:", seed=9),
    Mutant(
        "19: UTF-16 without a mark is text where it is not Latin",
        f"{_CONTENT}:wide_encoding",
        "if not _is_wide(head):",
        'if all(half.strip(b"\\0") for half in (head[::2], head[1::2])):',
        seed=13,
    ),
    Mutant(
        "19: a damaged JSON array gives nothing",
        f"{_READING}.landing_file:_array_chunks",
        "elements_before_damage(text)",
        "[]",
        seed=5,
    ),
    Mutant(
        "33: encodings are not read",
        f"{_READING}.landing_file:_text",
        "blocks if source.read.is_utf8 else",
        "blocks if True else",
        seed=18,
    ),
    Mutant(
        "33: options spell no numbers and no times",
        f"{_TYPING}.spelled_text:SpelledText.usual",
        "if option is None:",
        "if True:",
        seed=8,
    ),
    Mutant(
        "33: noon is midnight",
        f"{_TYPING}.time_patterns:_hour",
        '"PM"), 12, 0)',
        '"XM"), 12, 0)',
        seed=142,
    ),
    Mutant(
        "33: values that fit no column are lost",
        f"{_TYPING}.typed_rows:RowTyper._judged",
        "rescued.setdefault(position, {})[column.name] = value",
        "pass",
        seed=2,
    ),
    Mutant(
        "33: fields without a column are lost",
        f"{_TYPING}.typed_rows:RowTyper._judged",
        "rescued = dict(records.unknown(self._known))",
        "rescued = {}",
        seed=2,
    ),
    Mutant(
        "19: a stray quote takes the lines behind it with it",
        f"{_FORMATS}.csv_records:_OpenRecord.may_end",
        "not any(",
        "sum(one.count(b'\"') for one in self.lines) % 2 and any([1]) or not any(",
    ),
]
