"""Names by index and indices by name, plain and numbered."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat.graph.names import FEW, Names, NumberedNames, StageNames

RUNS = st.lists(
    st.tuples(
        st.sampled_from(["F", "Fe", "B", "x", "loss", "T"]),
        st.one_of(st.none(), st.integers(0, 12)),
        st.integers(0, 12),
    ),
    max_size=4,
    unique_by=lambda run: run[0],
).map(lambda runs: [(prefix, first, 1 if first is None else count) for prefix, first, count in runs])


@settings(deadline=None)
@given(RUNS)
def test_numbered_names_are_the_plain_ones(runs):
    expected = [
        prefix if first is None else f"{prefix}{first + k}" for prefix, first, count in runs for k in range(count)
    ]
    numbered, plain = NumberedNames(runs), Names(expected)
    assert len(numbered) == len(plain) == len(expected)
    assert list(numbered) == list(plain) == expected
    for index, name in enumerate(expected):
        assert numbered[index] == plain[index] == name
        assert numbered[index - len(expected)] == name
        assert numbered.find(name) == plain.find(name) == index
    assert numbered[1:3] == list(plain[1:3])
    assert numbered[::-1] == expected[::-1]
    for name in ("", "F", "F01", "Fx", "F13", "F-1", "f1", "F1 ", "9", "Fe", "loss1", "x" + "9" * 30, "F٣"):
        assert numbered.find(name) == plain.find(name)


STRANGE = [
    "",
    "F",
    "F01",
    "Fx",
    "F13",
    "F-1",
    "f1",
    "F1 ",
    "9",
    "Fe",
    "loss1",
    "x" + "9" * 17,
    "F\u0663",
    "\0",
    "F\0",
    "é1",
]
AWKWARD = ["x" + "9" * 30, "F\n1", "a long prefix 7", "F\ud8001"]


@settings(deadline=None)
@given(RUNS, st.lists(st.sampled_from(STRANGE), max_size=9), st.lists(st.sampled_from(AWKWARD), max_size=1), st.data())
def test_many_names_are_found_as_each_one_is(runs, strange, awkward, data):
    numbered = NumberedNames([*runs, ("longer than most", 0, 5), ("é", 1, 3)])
    plain = Names(list(numbered))
    asked = data.draw(st.permutations([*list(numbered) * 4, *strange, *awkward, *["F1"] * FEW]))
    expected = [-1 if (index := plain.find(name)) is None else index for name in asked]
    assert numbered.find_all(asked).tolist() == plain.find_all(asked).tolist() == expected
    assert numbered.find_all(asked[:3]).tolist() == expected[:3]


def test_many_names_of_several_runs_of_one_prefix():
    names = NumberedNames([("B", 1, 5), ("B7.", 1, 2), ("B", 8, 90), ("loss", None, 1)])
    asked = [*names, "B6", "B7", "B7.3", "B98", "B0", "loss"]
    expected = [*range(len(names)), -1, -1, -1, -1, -1, len(names) - 1]
    assert names.find_all(asked).tolist() == expected


@pytest.mark.parametrize("index", [3, -4, 10**9])
def test_indices_beyond_the_end(index):
    names = NumberedNames([("F", 1, 2), ("loss", None, 1)])
    with pytest.raises(IndexError):
        names[index]


def test_numbers_have_no_leading_zeros():
    names = NumberedNames([("T", 0, 11)])
    assert [names.find(name) for name in ("T0", "T00", "T010", "T10")] == [0, None, None, 10]


def test_a_million_names_cost_nothing():
    names = NumberedNames([("x", 0, 10**12)])
    assert names[10**12 - 1] == "x999999999999"
    assert names.find("x123456789") == 123456789


def test_prefixes_that_end_in_digits_do_not_confuse():
    # Several runs of one prefix, with a gap between them.
    names = NumberedNames([("F", 1, 2), ("F", 10, 2)])
    assert list(names) == ["F1", "F2", "F10", "F11"]
    assert [names.find(name) for name in names] == [0, 1, 2, 3]
    assert names.find("F3") is None


def test_stages_by_their_own_names():
    tasks = NumberedNames([("F", 1, 3), ("Fe", 1, 2), ("Fe3.", 1, 2), ("loss", None, 1), ("B", 1, 3)])
    names = StageNames(tasks, [[("stem", 1), ("block", 2)]])
    block = ["block"] * 2
    assert list(names) == ["stem", *block, "stem", "block", *block, "", "stem", *block]
    assert names[-2:] == block
    joined = StageNames(NumberedNames([("F1.", 1, 1), ("F2.", 1, 2)]), [[("a", 1)], [("b", 1), ("", 1)]], joined=True)
    assert list(joined) == ["a", "b", ""]
    assert list(pickle.loads(pickle.dumps(joined))) == ["a", "b", ""]
