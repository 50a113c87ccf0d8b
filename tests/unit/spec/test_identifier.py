import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.errors import InvalidIdentifierError
from lakehouse.spec.identifier import Identifier, parse_namespace


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
        ("raw", "a/b"),
        ("raw", "a\\b"),
        ("raw", "a.b"),
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


@given(st.text(min_size=1, max_size=40))
def test_a_name_that_passes_is_one_folder(name):
    try:
        parsed = Identifier(("raw",), name)
    except InvalidIdentifierError:
        return
    assert "/" not in parsed.name
    assert parsed.name not in {".", "..", ""}
    assert Identifier.parse(str(parsed)) == parsed
