"""What is kept in memory, against a list of what was used, longest ago first."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from lakehouse.kept_by_bytes import KeptByBytes

KEYS, SIZES = st.sampled_from("abcdef"), st.integers(0, 12)
STEPS = st.one_of(
    st.tuples(st.just("get"), KEYS, st.none()),
    st.tuples(st.just("put"), KEYS, SIZES),
    st.tuples(st.just("resize"), KEYS, SIZES),
    st.tuples(st.just("remove"), KEYS, st.none()),
    st.tuples(st.just("bound"), st.none(), st.integers(1, 30)),
)


@given(bound=st.integers(1, 30), steps=st.lists(STEPS, max_size=40))
def test_the_bound_holds_and_what_was_used_last_stays(bound, steps):
    dropped, told = [], []
    kept, model, values = KeptByBytes(bound, told.append), OrderedDict(), {}
    for step, key, size in steps:
        if step == "get":
            assert kept.get(key) is (values[key] if key in model else None)
            if key in model:
                model.move_to_end(key)
        elif step == "put":
            values[key] = [key]
            kept.put(key, values[key], size)
            model.pop(key, None)
            if size <= bound:
                model[key] = size
        elif step == "resize":
            kept.resize(key, [key], size)  # another than the one that is kept
            kept.resize(key, values.get(key), size)
            if key in model:
                model[key] = size
        elif step == "remove":
            kept.remove(key)
            model.pop(key, None)
        else:
            bound = kept.bytes_max = size
        while sum(model.values()) > bound:
            dropped.append(values[model.popitem(last=False)[0]])
        assert told == dropped
        assert kept.held == sum(model.values()) <= bound
    for key in "abcdef":
        assert kept.get(key) is (values[key] if key in model else None)
