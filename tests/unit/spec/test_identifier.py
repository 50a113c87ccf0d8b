import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.errors import InvalidIdentifierError
from lakehouse.spec.identifier import Identifier, dotted, parse_namespace, split_name


def test_text_tuple_and_identifier_mean_the_same():
    expected = Identifier(("raw", "eu"), "events")
    assert Identifier.parse("raw.eu.events") == expected
    assert Identifier.parse(("raw", "eu", "events")) == expected
    assert Identifier.parse(expected) is expected
    assert str(expected) == "raw.eu.events"


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "events",
        "raw.",
        ".events",
        "raw..events",
        "../../../escape",
        ("raw", ".."),
        ("raw", "."),
        ("raw", "a\\b"),
        "raw.a\\b",
        "raw.a\\\\.b",
        ("raw", "a\x00b"),
        ("raw", "a\nb"),
        ("raw", " a"),
        ("raw", "a "),
        ("raw", "a\u2028b"),
        ("raw", "x" * 256),
        ("raw", 5),
        (5, "raw"),
        5,
        None,
        (),
        ("raw", "a\ud800"),
    ],
)
def test_names_that_escape_or_confuse_are_refused(bad):
    with pytest.raises(InvalidIdentifierError):
        Identifier.parse(bad)


def test_namespaces_are_held_to_the_same_rules():
    assert parse_namespace("raw.eu") == ("raw", "eu")
    for bad in ("", "a..b", ("a", ".."), ()):
        with pytest.raises(InvalidIdentifierError):
            parse_namespace(bad)


TRICKY = st.text("ab./%\\\x1f 2eEF", min_size=1, max_size=6)


@given(st.text(min_size=1, max_size=40) | TRICKY)
def test_a_name_that_passes_reads_back(name):
    try:
        parsed = Identifier(("raw",), name)
    except InvalidIdentifierError:
        return
    assert parsed.name not in {".", "..", ""}
    assert Identifier.parse(str(parsed)) == parsed


@given(st.lists(TRICKY, min_size=2, max_size=4), st.lists(TRICKY, min_size=2, max_size=4))
def test_no_two_names_are_written_alike(one, other):
    try:
        first, second = Identifier.parse(one), Identifier.parse(other)
    except InvalidIdentifierError:
        return
    assert (str(first) == str(second)) == (first == second)


@given(st.text("ab.\\", max_size=8))
def test_names_in_a_database_that_others_wrote_read_back(text):
    assert dotted(split_name(text)) == text


def test_dots_of_text_stand_between_levels():
    assert Identifier.parse("raw.v1.2") == Identifier(("raw", "v1"), "2")
    assert Identifier.parse("raw.v1\\.2") == Identifier(("raw",), "v1.2")
    assert str(Identifier(("eu.west", "raw"), "a/b.c")) == "eu\\.west.raw.a/b\\.c"
    assert parse_namespace("eu\\.west.raw") == ("eu.west", "raw")
