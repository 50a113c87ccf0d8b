"""Words of questions and catalogs: stems, names taken apart, abbreviations, costs in tokens."""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(r"[a-z]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PIECE = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")
_LETTERS_A_TOKEN = 4.5
_DIGITS_A_TOKEN = 3

_STOPS = """
a about all an and any are as at be been between but by came can come did do does each every far
for from had has have how i in into is it its made make many me more most much my no not of on
one only or our out over per please so some than that the their them then there these they this
to up us was we were what when where which while who whom whose why will with would you your
"""
STOP_WORDS = frozenset(_STOPS.split())


def words(text: str) -> list[str]:
    """Stems of a text, in order, no stop words; `revDaily` and `rev_daily` are two words."""
    return [stem(word) for word in raw_words(text) if word not in STOP_WORDS]


def raw_words(text: str) -> list[str]:
    """Lower-case words and numbers of a text, in order."""
    return _WORD.findall(_CAMEL.sub(" ", text).lower())


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """A word without its English ending: `orders`, `ordered` and `ordering` are one."""
    for ending, least, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            cut = word[: len(word) - len(ending)] + instead
            doubled = ending in ("ing", "ed") and len(cut) > 3 and cut[-1] == cut[-2] not in "ls"
            return cut[:-1] if doubled else cut
    return word


_ENDINGS = (
    ("sses", 2, "ss"),
    ("ies", 2, "y"),
    ("ches", 2, "ch"),
    ("shes", 2, "sh"),
    ("xes", 2, "x"),
    ("ss", 1, "ss"),
    ("us", 2, "us"),
    ("is", 2, "is"),
    ("ations", 3, "at"),
    ("ation", 3, "at"),
    ("ating", 3, "at"),
    ("ated", 3, "at"),
    ("ates", 3, "at"),
    ("ate", 3, "at"),
    ("ings", 3, ""),
    ("ing", 3, ""),
    ("eed", 3, "eed"),
    ("ied", 2, "y"),
    ("ed", 3, ""),
    ("es", 4, ""),
    ("s", 2, ""),
    ("e", 4, ""),
)


@lru_cache(maxsize=200_000)
def abbreviates(short: str, word: str) -> bool:
    """Whether a name may stand for a word: `ord` for order, `cust` for customer, `tkt` for ticket.

    It begins with the same letter, its letters come in the same order, and it is the word's
    beginning or skips mostly vowels.
    """
    if not 2 <= len(short) < len(word) or short[0] != word[0] or not short.isalpha():
        return False
    if word.startswith(short):
        return len(short) >= 3
    letters = iter(word)
    if not all(letter in letters for letter in short):
        return False
    consonants = word[0] + "".join(letter for letter in word[1:] if letter not in "aeiouy")
    letters = iter(consonants)
    return (
        len(short) >= 2
        and all(letter in letters for letter in short)
        and len(word) <= 4 * len(short)
    )


def token_estimate(text: str) -> int:
    """How many tokens a language model would take a text for, rounded up; no vocabulary is needed.

    A word of up to 4 letters is one token, a longer one a token for each 4.5 letters, numbers one
    for each 3 digits, every other sign one: 1.2 to 1.4 tokens a word of English prose.
    """
    total = 0
    for piece in _PIECE.findall(text):
        if piece.isdigit():
            total += -(-len(piece) // _DIGITS_A_TOKEN)
        elif piece[0].isascii() and piece.isalpha():
            total += max(1, round(len(piece) / _LETTERS_A_TOKEN + 0.3))
        else:
            total += 1
    return total


def clean(text: object, most: int = 300) -> str:
    """Text of others as one line of at most `most` letters that cannot end a quotation."""
    flat = " ".join(
        "".join(character if character.isprintable() else " " for character in str(text)).split()
    )
    flat = flat.translate(_QUOTES)
    return flat if len(flat) <= most else flat[: most - 1] + "…"


_QUOTES = str.maketrans({"“": "'", "”": "'", "✓": "v", "✗": "x"})


def quoted(text: object, most: int = 300) -> str:
    """Text of others, marked as such."""
    return f"“{clean(text, most)}”"
