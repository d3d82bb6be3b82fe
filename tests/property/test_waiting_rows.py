"""The chunked index behaves like a dictionary whose rows leave in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamer.reassemble.waiting import WaitingRows

steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 200)),
        st.tuples(st.just("pop"), st.integers(1, 90)),
        st.tuples(st.just("fill"), st.integers(1, 70)),
    ),
    max_size=60,
)


@given(steps, st.integers(0, 260))
def test_waiting_rows_are_a_dictionary_that_empties_in_order(
    happened: list[tuple[str, int]], cut: int
) -> None:
    waiting, model, start = WaitingRows(), dict[int, int](), 0

    for number, (what, value) in enumerate(happened):
        if what == "put" and value >= start:
            assert waiting.put(value, number) == model.get(value, -1)
            model.setdefault(value, number)
        elif what == "pop":
            expected = []
            while start in model and len(expected) < value:
                expected.append(model.pop(start))
                start += 1
            assert waiting.pop_run(start - len(expected), value) == expected
        elif what == "fill":
            before = start
            while start - before < value and start not in model:
                start += 1
                waiting.passed(start - 1, start)
        assert waiting.count == len(model)
        assert dict(waiting) == model
        assert all(waiting.place_of(i) == model.get(i, -1) for i in range(start, start + 70))

    taken = waiting.pop_from(cut)

    assert taken == sorted((index, place) for index, place in model.items() if index >= cut)
    assert dict(waiting) == {index: place for index, place in model.items() if index < cut}
