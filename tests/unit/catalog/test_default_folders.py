"""Where tables lie whose names are no folders."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.catalog.folders import folder_name, namespace_folder, own_folder
from lakehouse.environment import Environment
from lakehouse.errors import InvalidIdentifierError
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.location import is_within, parse


def is_name(name: str) -> bool:
    try:
        Identifier(("raw",), name)
    except InvalidIdentifierError:
        return False
    return True


LEVEL = (st.text(min_size=1, max_size=20) | st.text("ab./%2eEF", min_size=1, max_size=6)).filter(
    is_name
)


@given(LEVEL, LEVEL)
def test_no_two_levels_have_one_folder(one, other):
    assert (folder_name(one) == folder_name(other)) == (one == other)
    assert unquote(folder_name(one)) == one


@given(st.lists(LEVEL, min_size=1, max_size=3).map(tuple), LEVEL)
def test_folders_stay_where_their_namespace_is(namespace, name):
    home = namespace_folder("/lake", namespace)
    place = own_folder("/lake", Identifier(namespace, name), Environment.system())
    assert is_within(place, home)
    # as many folders below the warehouse as there are levels, none hidden or leading upwards
    folders = parse(place).path.removeprefix("/lake/").split("/")
    assert len(folders) == len(namespace) + 1
    assert not any(folder.startswith(".") for folder in folders)


def test_plain_names_are_their_folders():
    for name in ("events", "v1_2", "a b", "größe", "x+y=z", "a-b"):
        assert folder_name(name) == name
    assert folder_name("a.b") == "a%2Eb"
    assert folder_name("a%2Eb") == "a%252Eb"


def test_long_names_are_refused_or_cut():
    with pytest.raises(InvalidIdentifierError, match="255 bytes"):
        namespace_folder("/lake", ("a" + "." * 100,))
    place = own_folder("/lake", Identifier(("raw",), "." * 100), Environment.system())
    assert len(place.rpartition("/")[2]) == 255
