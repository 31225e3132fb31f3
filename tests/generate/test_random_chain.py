from __future__ import annotations

from typing import Any

import pytest

from remat.generate.random_chain import homogeneous_chain, random_chain


def test_figures_stay_in_their_ranges() -> None:
    chain = random_chain(
        length=500, min_time=5, max_time=9, min_size=10, max_size=20, saved_factor=2, max_workspace=7, seed=4
    )
    assert 10 <= chain["input_size"] <= 20
    assert len(chain["stages"]) == 500
    for stage in chain["stages"]:
        assert 5 <= stage["forward_time"] <= 9
        assert stage["forward_time"] <= stage["backward_time"] <= 3 * stage["forward_time"]
        assert 10 <= stage["output_size"] <= 20
        assert 0 <= stage["saved_size"] <= 40
        assert 0 <= stage["forward_workspace"] <= 7
        assert 0 <= stage["backward_workspace"] <= 7
    assert len({stage["output_size"] for stage in chain["stages"]}) == 11


def test_zero_probability_sets_the_share_of_zeros() -> None:
    chain = random_chain(length=400, zero_probability=0.5, seed=1)
    zeros = sum(stage["output_size"] == 0 for stage in chain["stages"])
    assert 150 < zeros < 250
    empty = random_chain(length=5, zero_probability=1)
    assert all(not any(stage.values()) for stage in empty["stages"])


def test_a_seed_determines_the_chain() -> None:
    assert random_chain(seed=7) == random_chain(seed=7)
    assert random_chain(seed=7)["stages"] != random_chain(seed=8)["stages"]


def test_equal_stages_are_one_with_repeat() -> None:
    chain = homogeneous_chain(length=10**6, forward_time=0.5, input_gradient=False, units="si")
    assert [stage["repeat"] for stage in chain["stages"]] == [10**6]
    assert chain["stages"][0]["forward_time"] == 0.5
    assert chain["units"] == {"time": "s", "memory": "B"}
    assert chain["input_gradient"] is False


def test_whole_numbers_stay_integers() -> None:
    stage = homogeneous_chain(forward_time=2.0)["stages"][0]
    assert isinstance(stage["forward_time"], int)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"length": 0}, "length must be at least 1, not 0"),
        ({"length": 10**12}, "length must be at most 1,000,000"),
        ({"min_time": 9, "max_time": 3}, "min_time 9 is above max_time 3; swap them or widen the range"),
        ({"min_size": -1}, "min_size must be at least 0, not -1"),
        ({"zero_probability": 1.5}, "zero_probability must lie between 0 and 1, not 1.5"),
        ({"saved_factor": float("inf")}, "saved_factor must be finite, not inf"),
        ({"units": "GB"}, "units must be one of unit, si, not 'GB'"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"max_size": 2**61}, "saved_factor 3 times max_size 2305843009213693952 is above 2.62; lower one"),
        ({"saved_factor": 1e300, "max_size": 10**18}, "lower one of them"),
        ({"max_size": 2**60}, "lower max_size or length"),
        ({"length": True}, "length must be a whole number, not True"),
        ({"length": 2.5}, "length must be a whole number, not 2.5"),
        ({"length": 2.0}, "length must be a whole number, not 2.0"),
        ({"length": 10**40}, "length must be at most 1,000,000, not a number of more than 30 digits"),
    ],
)
def test_errors_of_random_chains(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_chain(**parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"length": -3}, "length must be at least 1, not -3"),
        ({"forward_time": -1}, "forward_time must be at least 0, not -1"),
        ({"forward_time": "1"}, "forward_time must be a number, not '1'"),
        ({"backward_time": 1e301}, r"backward_time must be at most 1e300, not 1e\+301"),
        ({"saved_size": 2**62}, "lower the sizes or length"),
    ],
)
def test_errors_of_homogeneous_chains(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        homogeneous_chain(**parameters)
