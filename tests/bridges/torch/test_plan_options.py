"""Sizes and limits among the options of `remat.torch`, without PyTorch: refused at the call, as by `remat.solve`."""

from dataclasses import replace

import pytest

import remat
from remat.bridges.torch.plan_options import Choices, read_size

CHAIN = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "units": {"time": "us", "memory": "B"},
    "input_size": 2,
    "stages": [{"forward_time": 1, "backward_time": 2, "output_size": 3, "saved_size": 4}],
}
SIZES = ("60mb", "1gb", "8 GiBs", "", "GB", "-5", -5, 0.7, True, float("nan"), 2**63, b"8GB", {"memory": 5}, object)
SHARES = ("x%", "0%", "-70%", "%", "nan%", "20000%")


def of_solve(budget):
    with pytest.raises(remat.OptionError) as caught:
        remat.solve(CHAIN, budget=budget)
    return str(caught.value)


@pytest.mark.parametrize(
    "wrong", [size for size in SIZES if not isinstance(size, dict) and size != 0.7] + list(SHARES), ids=repr
)
def test_a_budget_is_refused_as_by_solve(wrong):
    said = of_solve(wrong)
    for given in (wrong, ["1GB", wrong]):
        with pytest.raises(remat.OptionError) as caught:
            Choices(budget=given)
        assert str(caught.value) == said
        assert "\n" not in said


@pytest.mark.parametrize("wrong", [*SIZES, *SHARES, "70%"], ids=repr)
@pytest.mark.parametrize("argument", ["reserve", "static"])
def test_other_sizes_are_refused_with_their_names(wrong, argument):
    with pytest.raises(remat.OptionError, match=rf"\A{argument}: .+\Z") as caught:
        Choices(reserve=wrong) if argument == "reserve" else read_size(wrong, "static")
    assert caught.value.argument == argument
    if not str(wrong).endswith("%") and not isinstance(wrong, (dict, float)):  # a float is a share, as a budget
        assert caught.value.message == of_solve(wrong).removeprefix("budget: ")


def test_what_can_be_read_stays():
    given = Choices(budget="60MB", reserve="1GiB", time_limit="2min")
    assert (given.budget, given.reserve, given.seconds) == ("60MB", "1GiB", 120)
    assert replace(given, algorithm="keep-all").budget == "60MB"
    assert Choices(budget=0.7, reserve=1e3) == Choices(budget="70%", reserve=1000)
    assert Choices(budget=("70%", 5)).budget == ["70%", 5]
    assert Choices().seconds == 30
    assert [read_size(size, "static") for size in (7, 1e3, "2kB")] == [7, 1000, 2000]


@pytest.mark.parametrize("wrong", ["3x", -1, "soon", [3]], ids=repr)
def test_a_limit_is_refused_as_by_solve(wrong):
    with pytest.raises(remat.OptionError) as solving:
        remat.solve(CHAIN, time_limit=wrong)
    with pytest.raises(remat.OptionError) as caught:
        Choices(time_limit=wrong)
    assert str(caught.value) == str(solving.value)
