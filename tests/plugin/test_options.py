"""Options: from text and from Python, with errors that name the option."""

from typing import Literal

import pytest
from pydantic import Field, ValidationError

from remat import OptionError
from remat.plugin.options import Options, make_options
from remat.plugin.registry import Algorithm


class Sample(Options):
    slots: int = Field(500, ge=1, description="slots")
    factor: float = Field(1.0, description="factor")
    exact: bool = Field(False, description="exact")
    rule: Literal["first", "best"] = Field("best", description="rule")
    marks: tuple[int, ...] = Field((), description="marks")
    size: int | None = Field(None, description="size")
    solver: str = Field("one", pattern="^(one|two)$", description="one, or two.")


def algorithm(options="somewhere:Sample"):
    return Algorithm(
        name="sample", solver="json:dumps", kinds=("dag",), summary="a test", guarantee="heuristic", options=options
    )


@pytest.fixture(autouse=True)
def _loaded(monkeypatch):
    monkeypatch.setattr(Algorithm, "load_options", lambda self: Sample if self.options else None)


def test_missing_options_have_their_defaults():
    assert make_options(algorithm(), {}) == Sample()


def test_values_of_python():
    made = make_options(algorithm(), {"slots": 7, "factor": 2, "exact": True, "rule": "first", "marks": [1, 2]})
    assert (made.slots, made.factor, made.exact, made.rule, made.marks) == (7, 2.0, True, "first", (1, 2))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (("slots", "12"), 12),
        (("factor", "0.5"), 0.5),
        (("factor", "1e-3"), 0.001),
        (("exact", "true"), True),
        (("exact", "no"), False),
        (("exact", "1"), True),
        (("rule", "first"), "first"),
        (("size", "3"), 3),
    ],
)
def test_text_is_converted(text, value):
    name, given = text
    assert getattr(make_options(algorithm(), {name: given}), name) == value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slots": "many"}, r"option slots: .*integer.*, not 'many'"),
        ({"slots": "1.5"}, r"option slots: .*integer.*, not '1.5'"),
        ({"slots": 0}, r"option slots: .*greater than or equal to 1, not 0"),
        ({"factor": "nan"}, r"option factor: .*finite number, not 'nan'"),
        ({"factor": float("inf")}, r"option factor: .*finite number"),
        ({"exact": "perhaps"}, r"option exact: .*boolean.*, not 'perhaps'"),
        ({"rule": "worst"}, r"option rule: .*'first' or 'best', not 'worst'"),
        ({"solver": "three"}, r"option solver: one, or two, not 'three'$"),
        ({"marks": [1, "x"]}, r"option marks.1: .*integer.*, not 'x'"),
        ({"slots": "9" * 5000}, r"option slots: "),
    ],
)
def test_errors_name_the_option(given, message):
    with pytest.raises(OptionError, match=message) as caught:
        make_options(algorithm(), given)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_unknown_names_get_a_suggestion():
    with pytest.raises(OptionError, match="sample has no option 'slot'; did you mean 'slots'"):
        make_options(algorithm(), {"slot": 3})
    with pytest.raises(OptionError, match="sample has no option 'xyzzy'; it has slots, factor, exact"):
        make_options(algorithm(), {"xyzzy": 3})


def test_algorithm_without_options():
    assert make_options(algorithm(options=""), {}) is None
    with pytest.raises(OptionError, match="sample has no options, so 'slots' has no effect"):
        make_options(algorithm(options=""), {"slots": 3})


def test_options_are_frozen():
    made = make_options(algorithm(), {})
    with pytest.raises(ValidationError, match="frozen"):
        made.slots = 3
    assert make_options(algorithm(), {}) == made
    assert hash(made) == hash(Sample())
