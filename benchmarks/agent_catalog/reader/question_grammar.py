"""What a question asks for, by grammar alone: the figure, the thing, spans of time, numbers.

English, calendar and the ISO names of countries and currencies are all that it knows.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from lakehouse.agents.words import STOP_WORDS, stem

MONTHS = {
    name: number
    for number, name in enumerate(
        [
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
            "december",
        ],
        1,
    )
}
_MONTH = "|".join(MONTHS)
COUNTRIES = {
    "germany": "DE", "german": "DE", "austria": "AT", "austrian": "AT", "switzerland": "CH",
    "swiss": "CH", "sweden": "SE", "swedish": "SE", "netherlands": "NL", "dutch": "NL",
    "france": "FR", "french": "FR", "poland": "PL", "polish": "PL", "italy": "IT",
    "italian": "IT", "spain": "ES", "spanish": "ES", "denmark": "DK", "danish": "DK",
    "norway": "NO", "belgium": "BE", "finland": "FI", "portugal": "PT", "czechia": "CZ",
    "britain": "GB", "kingdom": "GB",
}  # fmt: skip
CURRENCIES = {
    "franc": "CHF", "francs": "CHF", "krona": "SEK", "kronor": "SEK", "euro": "EUR",
    "euros": "EUR", "pound": "GBP", "pounds": "GBP", "dollar": "USD", "dollars": "USD",
    "chf": "CHF", "sek": "SEK", "eur": "EUR", "gbp": "GBP", "usd": "USD",
}  # fmt: skip
_NUMBERS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30,
    "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
    "hundred": 100, "thousand": 1000, "million": 1_000_000,
}  # fmt: skip
_COMPARED = {
    r"at least|no fewer than|no less than|or more": ">=",
    r"more than|over|above|exceeding|longer than|larger than|greater than": ">",
    r"at most|no more than|up to": "<=",
    r"fewer than|less than|under|below|shorter than|smaller than": "<",
    r"exactly": "=",
}
_END_OF_NOUNS = STOP_WORDS | {
    "came", "come", "been", "be", "being", "exchanged", "did", "does", "do", "that",
    "which", "who", "with", "without", "since", "during", "before", "after", "still", "now",
    "currently", "ever", "yet", "including", "excluding", "per", "placed", "made", "was",
    "were", "is", "are", "has", "have", "had", "can", "could", "would", "should", "not",
    "never",
}  # fmt: skip
_DETERMINERS = {
    "the", "a", "an", "our", "their", "all", "its", "total", "different", "distinct",
    "individual", "single",
}  # fmt: skip
_FIGURES = (
    ("share", r"\b(share|percentage|proportion|what percent|per cent of|percent of|rate of)\b"),
    ("avg", r"\b(average|mean|on average|averaged)\b"),
    ("median", r"\bmedian\b"),
    ("count", r"\b(how many|number of|count of|how often)\b"),
    ("max", r"\b(highest|largest|biggest|maximum|longest|greatest|most expensive|latest|newest)\b"),
    ("min", r"\b(lowest|smallest|minimum|shortest|cheapest|earliest|oldest)\b"),
)
_EVERYTHING = re.compile(
    r"\b(whatever|of any (kind|sort|type)|everything|regardless|no matter|without exception)\b"
)
_INCLUDED = re.compile(
    r"([\w-]+(?: [\w-]+){0,3}) (?:included|too|as well)\b|"
    r"\b(?:including|also|even) ([\w-]+(?: [\w-]+){0,2})"
)


@dataclass(frozen=True, slots=True)
class Span:
    """Days, both included."""

    first: dt.date
    last: dt.date


@dataclass(frozen=True)
class Asked:
    """A question taken apart.

    Attributes:
        text: lower case, spans of time taken out.
        stems: its words in order, stop words left out.
        figure: count, sum, avg, median, max, min or share.
        nouns: the noun phrase of the question's subject, the head last; raw words as stems.
        span: the days that it is about.
        open_end: whether the span runs until now.
        compared: (operator, number, stems of the words around it).
        included: stems of what the question includes by name.
        everything: whether nothing is to be left out.
        currency: ISO code of the currency that is named.
        country: ISO code.
    """

    text: str
    stems: tuple[str, ...]
    figure: str
    nouns: tuple[str, ...]
    span: Span | None
    open_end: bool
    compared: tuple[tuple[str, float, tuple[str, ...]], ...]
    included: frozenset[str]
    everything: bool
    currency: str | None
    country: str | None

    def has(self, *patterns: str) -> bool:
        """Whether one of the regular expressions occurs."""
        return any(re.search(rf"\b(?:{pattern})\b", self.text) for pattern in patterns)


def taken_apart(question: str, today: dt.date) -> Asked:
    """The parts of a question asked on a day."""
    text = " ".join(question.lower().replace("\u2019", "'").split()).rstrip("?")
    span, open_end, remaining = _span(text, today)
    yesterday = today - dt.timedelta(days=1)
    if span is not None and span.first <= yesterday < span.last:
        span, open_end = Span(span.first, yesterday), True
    figure = next((name for name, how in _FIGURES if re.search(how, remaining)), "sum")
    raw = re.findall(r"[a-z]+|\d+", remaining)
    included = {
        stem(word)
        for match in _INCLUDED.finditer(remaining)
        for word in re.findall(r"[a-z]+", match.group(0))
        if word not in STOP_WORDS | {"included", "including", "too", "well", "also", "even", "ones"}
    }
    country = next((COUNTRIES[word] for word in raw if word in COUNTRIES), None)
    currency = next((CURRENCIES[word] for word in raw if word in CURRENCIES), None)
    if currency is not None and country is not None and re.search(
        r"(swiss|swedish) (franc|kron)", remaining
    ):  # fmt: skip
        left = re.sub(r"(swiss|swedish) (franc|kron)\w*", "", remaining)
        words = re.findall(r"[a-z]+", left)
        country = next((COUNTRIES[word] for word in words if word in COUNTRIES), None)
    return Asked(
        text=remaining,
        stems=tuple(stem(word) for word in raw if word not in STOP_WORDS),
        figure=figure,
        nouns=_nouns(remaining, figure),
        span=span,
        open_end=open_end,
        compared=tuple(_compared(remaining)),
        included=frozenset(included),
        everything=bool(_EVERYTHING.search(remaining)),
        currency=currency,
        country=country,
    )


def _nouns(text: str, figure: str) -> tuple[str, ...]:
    """Words after the question's head until a verb or preposition: its subject."""
    starts = {
        "count": r"how many|number of|count of",
        "share": r"(?:share|percentage|proportion|percent|per cent) of",
    }
    head = re.search(
        starts.get(
            figure,
            r"average|mean|median|highest|largest|maximum|longest|lowest|smallest|minimum|how much|"
            r"what (?:is|was|were|are|did|does)|what|which",
        ),
        text,
    )
    tail = text[head.end() :] if head else text
    starts_of_figures = (
        r"average|mean|median|highest|largest|maximum|longest|lowest|smallest|minimum"
    )
    nouns: list[str] = []
    for word in re.findall(r"[a-z]+|\d+|[,;:]", tail):
        if word in ",;:" and not nouns:
            continue
        if (
            word in _DETERMINERS
            or re.fullmatch(starts_of_figures, word)
            or (word in _END_OF_NOUNS and not nouns)
        ):
            continue
        if word in _END_OF_NOUNS or word in ",;:":
            break
        nouns.append(stem(word))
    return tuple(nouns)


def _compared(text: str) -> list[tuple[str, float, tuple[str, ...]]]:
    comparisons = []
    number = rf"((?:\d[\d,.]*|{'|'.join(_NUMBERS)})(?: (?:hundred|thousand|million))?)"
    for pattern, operator in _COMPARED.items():
        for match in re.finditer(rf"\b(?:{pattern})\b (?:an? )?{number}((?: [a-z]+){{0,3}})", text):
            around = re.findall(r"[a-z]+", text[: match.start()])[-3:]
            after = re.findall(r"[a-z]+", match.group(2))
            words_near = tuple(stem(word) for word in [*after, *around] if word not in STOP_WORDS)
            comparisons.append((operator, _number(match.group(1)), words_near))
    return comparisons


def _number(text: str) -> float:
    value = 1.0
    for part in text.split():
        value *= float(part.replace(",", "")) if part[0].isdigit() else _NUMBERS[part]
    return value


def _last_day(year: int, month: int) -> dt.date:
    return dt.date(year + month // 12, month % 12 + 1, 1) - dt.timedelta(days=1)


def _span(text: str, today: dt.date) -> tuple[Span | None, bool, str]:
    """The days that a text names, whether they run on until now, and the text without them."""
    yesterday = today - dt.timedelta(days=1)
    for pattern, read in _SPANS:
        match = re.search(pattern, text)
        if match is None:
            continue
        first, last = read(match)
        remaining = f"{text[: match.start()]} {text[match.end() :]}"
        before = text[: match.start()]
        ranged = read in (_days, _months, _years)
        if not ranged and re.search(
            r"\b(since|from|after)( the)?( (start|beginning|end) of)? $", before
        ):
            return Span(first, yesterday), True, remaining
        if re.search(r"\b(until|up to|through|by)( the)?( end of)? $", before):
            return Span(dt.date(1900, 1, 1), last), False, remaining
        if re.search(r"\bbefore( the)?( (start|beginning) of)? $", before):
            return Span(dt.date(1900, 1, 1), first - dt.timedelta(days=1)), False, remaining
        if re.search(r"\b(at|on) the end of $|\bend of $", before):
            return Span(last, last), False, remaining
        return Span(first, last), False, remaining
    if re.search(r"\byesterday\b", text):
        return Span(yesterday, yesterday), False, text.replace("yesterday", " ")
    if re.search(r"\blast month\b", text):
        last = today.replace(day=1) - dt.timedelta(days=1)
        return Span(last.replace(day=1), last), False, text.replace("last month", " ")
    if re.search(r"\blast year\b", text):
        year = today.year - 1
        span = Span(dt.date(year, 1, 1), dt.date(year, 12, 31))
        return span, False, text.replace("last year", " ")
    if re.search(r"\bthis year\b", text):
        return Span(dt.date(today.year, 1, 1), yesterday), True, text.replace("this year", " ")
    return None, False, text


def _day(match: re.Match[str], prefix: str) -> dt.date:
    month = match[f"{prefix}m"] or match["bm"]
    year = match[f"{prefix}y"] or match["by"]
    return dt.date(int(year), MONTHS[month], int(match[f"{prefix}d"]))


def _days(match: re.Match[str]) -> tuple[dt.date, dt.date]:
    return _day(match, "a"), _day(match, "b")


def _one_day(match: re.Match[str]) -> tuple[dt.date, dt.date]:
    day = dt.date(int(match["y"]), MONTHS[match["m"]], int(match["d"]))
    return day, day


def _iso_day(match: re.Match[str]) -> tuple[dt.date, dt.date]:
    day = dt.date.fromisoformat(match.group(0))
    return day, day


def _months(match: re.Match[str]) -> tuple[dt.date, dt.date]:
    last_year = int(match["by"])
    first_year = int(match["ay"]) if match["ay"] else last_year
    first = dt.date(first_year, MONTHS[match["am"]], 1)
    return first, _last_day(last_year, MONTHS[match["bm"]])


def _month(match: re.Match[str]) -> tuple[dt.date, dt.date]:
    year, month = int(match["y"]), MONTHS[match["m"]]
    return dt.date(year, month, 1), _last_day(year, month)


def _quarter(match: re.Match[str]) -> tuple[dt.date, dt.date]:
    ordinals = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": 4}
    quarter = ordinals[match["n"]] if match["n"] in ordinals else int(match["n"][-1])
    year = int(match["y"])
    return dt.date(year, 3 * quarter - 2, 1), _last_day(year, 3 * quarter)


def _half(match: re.Match[str]) -> tuple[dt.date, dt.date]:
    year, second = int(match["y"]), match["n"] == "second"
    return dt.date(year, 7 if second else 1, 1), _last_day(year, 12 if second else 6)


def _years(match: re.Match[str]) -> tuple[dt.date, dt.date]:
    return dt.date(int(match["ay"]), 1, 1), dt.date(int(match["by"]), 12, 31)


def _year(match: re.Match[str]) -> tuple[dt.date, dt.date]:
    year = int(match["y"])
    return dt.date(year, 1, 1), dt.date(year, 12, 31)


_TO = r"(?:to|and|until|through|till|-|\u2013)"
_SPANS = (
    (
        rf"(?P<ad>\d{{1,2}})(?: (?P<am>{_MONTH}))?(?: (?P<ay>20\d\d))? ?{_TO} ?"
        rf"(?P<bd>\d{{1,2}}) (?P<bm>{_MONTH}) (?P<by>20\d\d)",
        _days,
    ),
    (rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m>{_MONTH}) (?P<y>20\d\d)", _one_day),
    (rf"(?P<m>{_MONTH}) (?P<d>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y>20\d\d)", _one_day),
    (r"20\d\d-\d\d-\d\d", _iso_day),
    (
        rf"(?P<am>{_MONTH})(?: (?P<ay>20\d\d))? {_TO} (?P<bm>{_MONTH}) (?P<by>20\d\d)",
        _months,
    ),
    (rf"(?P<m>{_MONTH})(?: of)? (?P<y>20\d\d)", _month),
    (
        r"(?P<n>first|second|third|fourth|last|q[1-4]) ?(?:quarter)?(?: of| in)? (?P<y>20\d\d)",
        _quarter,
    ),
    (r"(?P<n>first|second) half(?: of| in)? (?P<y>20\d\d)", _half),
    (rf"(?P<ay>20\d\d) {_TO} (?P<by>20\d\d)", _years),
    (r"(?:(?:calendar |the )*year )?(?P<y>20\d\d)\b", _year),
)
