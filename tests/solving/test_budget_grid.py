"""The budgets at which anything can change."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.instance import load
from remat.plugin.problem import budget_memory
from remat.solving.budget_grid import Grid
from remat.solving.problem_setup import make_problem
from remat.testing import strategies
from tests.seeds import few

grids = st.builds(Grid, st.integers(0, 50), st.integers(1, 9))


@given(grids, st.integers(-20, 200))
def test_neighbours_on_the_grid_are_adjacent(grid, size):
    points = [grid.offset + k * grid.step for k in range(-300, 300)]
    assert grid.above(size) == min(point for point in points if point > size)
    assert grid.below(size) == max(point for point in points if point < size)


@given(grids, st.integers(-1, 100), st.integers(0, 100))
def test_between_returns_a_grid_point_in_the_middle(grid, low, high):
    points = [point for k in range(-300, 300) if low < (point := grid.offset + k * grid.step) < high]
    middle = grid.between(low, high)
    assert (middle is None) == (not points)
    assert middle is None or middle in points


@given(grids, st.integers(0, 100), st.integers(0, 3000), st.integers(2, 30))
def test_spread_returns_distinct_budgets_of_the_grid(grid, low, more, count):
    high = low + more
    budgets = grid.spread(low, high, count)
    assert (budgets[0], budgets[-1]) == (high, low)
    assert len(budgets) <= count
    assert list(budgets) == sorted(set(budgets), reverse=True)
    inner = [grid.offset + k * grid.step for k in range(-60, 3200)]
    inner = [size for size in inner if low < size < high]
    assert set(budgets[1:-1]) <= set(inner)
    if len(inner) <= count - 2:
        assert sorted(budgets[1:-1]) == inner


def test_spread_in_equal_ratios():
    budgets = Grid(0, 1).spread(10**9, 16 * 10**9, 5)
    assert [round(math.log2(size / 10**9), 6) for size in budgets] == [4, 3, 2, 1, 0]
    assert Grid(0, 1).spread(0, 1024, 4) == (1024, 101, 10, 0)


@pytest.mark.parametrize("count", few(10, 40))
@pytest.mark.parametrize("kind", ["chain", "adjoint", "dag", "tree"])
def test_every_peak_lies_on_the_grid(kind, count):
    @settings(max_examples=count, derandomize=True, database=None, deadline=None)
    @given(strategies.documents(kind))
    def check(document):
        instance = load(document)
        problem = make_problem(instance)
        memory = budget_memory(instance, problem.machine)
        grid = Grid.of(problem, memory)
        name = problem.machine.memories[memory].name
        for algorithm in ("keep-all", "recompute-all", "store-all"):
            try:
                peak = remat.solve(instance, algorithm=algorithm).peak_memory.get(name, grid.offset)
            except remat.OptionError:
                continue
            assert (peak - grid.offset) % grid.step == 0

    check()


def test_the_step_is_the_greatest_common_divisor():
    chain = {
        "schema": "remat.instance/1",
        "kind": "chain",
        "input_size": 12,
        "static_memory": 5,
        "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 18, "backward_workspace": 30}],
    }
    assert Grid.of(make_problem(load(chain)), 0) == Grid(5, 6)
    machine = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [{"source": "device", "target": "host"}],
    }
    # Parts of values may be moved.
    assert Grid.of(make_problem(load(chain | {"machine": machine})), 0) == Grid(5, 1)
    adjoint = {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "steps": 5,
        "state_size": 8,
        "adjoint_size": 3,
        "storage": [{"name": "ram"}],
    }
    assert Grid.of(make_problem(load(adjoint)), 1) == Grid(0, 8)
    assert Grid.of(
        make_problem(
            load(
                chain
                | {
                    "input_size": 0,
                    "static_memory": 0,
                    "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 0}],
                }
            )
        ),
        0,
    ) == Grid(0, 1)
