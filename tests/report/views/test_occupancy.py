"""Values over time: bands that add up to the memory's profile."""

import numpy as np
import pytest

import remat
from remat.report.views.lifetimes import lives_of
from remat.report.views.occupancy import Stay, occupancy_of
from remat.report.views.slices import coverage
from tests.report.results import chain_result, offload_result


def test_kinds_of_stays():
    result = offload_result()
    found = occupancy_of(result)
    assert [result.graph.values[int(value)] for value in found.values] == ["u", "v"]
    assert found.top.tolist() == [0, 4, 7]
    stays = sorted(zip(found.band.tolist(), found.begin.tolist(), found.end.tolist(), found.kind.tolist(), strict=True))
    assert stays == [
        (0, 0, 4, Stay.FORWARD),
        (0, 2, 9.5, Stay.ELSEWHERE),
        (0, 4, 9, Stay.RECOMPUTED),
        (0, 9, 9.5, Stay.FETCHED),
        (1, 6, 9, Stay.BACKWARD),
    ]
    assert found.kind[0] == Stay.ELSEWHERE  # drawn below the others


def test_bands_add_up_to_the_memory():
    result = chain_result()
    found = occupancy_of(result)
    profile = result.report.profiles["memory"]
    height = np.diff(found.top)
    for time in np.arange(0.5, result.makespan):
        there = (found.begin <= time) & (time < found.end)
        assert height[found.band[there]].sum() == profile.size[np.searchsorted(profile.time, time, side="right") - 1]


def test_bands_stand_in_the_order_of_first_appearance():
    result = remat.solve(remat.example("layered_n100"))
    found = occupancy_of(result)
    first = [found.begin[found.band == band].min() for band in range(len(found.values))]
    assert first == sorted(first)
    assert found.top[-1] == result.graph.size[found.values].sum()


def test_many_values_are_packed_and_stay_apart():
    rng = np.random.default_rng(3)
    stages = [
        {
            "forward_time": 1,
            "backward_time": 2,
            "output_size": int(rng.integers(1, 9)),
            "saved_size": int(rng.integers(1, 20)),
        }
        for _ in range(150)
    ]
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 3, "stages": stages}
    result = remat.solve(document | {"units": {"time": "unit", "memory": "unit"}}, algorithm="periodic")
    found = occupancy_of(result)
    assert not len(found.top)
    lives = lives_of(result.graph, result.machine, result.columns, result.report)
    assert sorted(found.high - found.low) == sorted(result.graph.size[lives.value])
    for k in range(len(found.kind)):
        beside = (found.begin < found.end[k]) & (found.end > found.begin[k]) & (np.arange(len(found.kind)) != k)
        assert not (beside & (found.low < found.high[k]) & (found.high > found.low[k])).any()
    # Little more than the peak: the pictures are as high as the memory is full.
    assert result.peak_memory["memory"] <= found.height <= 1.3 * result.peak_memory["memory"]


def test_coverage_is_exact():
    rng = np.random.default_rng(1)
    for _ in range(30):
        count = int(rng.integers(0, 6))
        x, y = np.sort(rng.random((2, count)) * 7, axis=0), np.sort(rng.random((2, count)) * 5, axis=0)
        weight = rng.random(count)
        found = coverage((x[0], x[1]), (y[0], y[1]), (5, 7), weight)
        for row in range(5):
            for column in range(7):
                wide = np.clip(np.minimum(x[1], column + 1) - np.maximum(x[0], column), 0, 1)
                high = np.clip(np.minimum(y[1], row + 1) - np.maximum(y[0], row), 0, 1)
                assert found[row, column] == pytest.approx((wide * high * weight).sum(), abs=1e-9)
    whole = np.array([0.0]), np.array([7.0])
    assert (coverage(whole, (np.array([0.0]), np.array([5.0])), (5, 7)) == 1).all()
