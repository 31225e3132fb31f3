"""`remat.placement.peak_of`: the bytes that steps need, against the verifier."""

import doctest

import pytest

import remat
from remat.placement import minimum_capacity, peak_of, place
from remat.placement.outcome import Placement
from remat.plugin import StepBuilder

CHAINS = [
    remat.chain(forward_time=[1, 2, 3] * 4, backward_time=2, output_size=[5, 3, 8] * 4, input_size=3, static_memory=7),
    remat.chain(forward_time=[1, 2, 3, 1], backward_time=2, output_size=4, saved_size=[9, 1, 3, 2], input_size=3),
]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("algorithm", ["keep-all", "periodic", "recompute-all", "chen-sqrt"])
def test_the_peak_of_runs_is_what_the_verifier_measures(chain, algorithm):
    result = remat.solve(chain, algorithm=algorithm)
    peak = peak_of(result.graph, result.machine, result.columns)
    assert peak == result.peak_memory["memory"]
    bounded = result.machine.with_capacities({"memory": peak - 1})
    assert peak_of(result.graph, bounded, result.columns) == peak  # whatever the budget


def test_other_memories_are_measured_by_their_number():
    chain = remat.chain(
        forward_time=[3, 1, 2, 4],
        backward_time=2,
        output_size=[40, 30, 20, 10],
        saved_size=5,
        input_size=20,
        machine=remat.device(150, link=10),
    )
    result = remat.solve(chain, algorithm="offload-greedy")
    graph, machine, steps = result.graph, result.machine, result.columns
    for memory, one in enumerate(machine.memories):
        need = peak_of(graph, machine, steps, memory)
        free = {other.name: None for other in machine.memories}
        assert isinstance(place(graph, machine.with_capacities(free | {one.name: need}), steps), Placement)
        assert not isinstance(place(graph, machine.with_capacities(free | {one.name: need - 1}), steps), Placement)
        assert need <= result.peak_memory[one.name]


def test_nothing_needs_nothing():
    graph = {"schema": "remat.instance/1", "kind": "dag", "tasks": [{"id": "t", "time": 1, "writes": []}]}
    result = remat.solve(graph, algorithm="keep-all")
    assert peak_of(result.graph, result.machine, result.columns) == 0
    assert peak_of(result.graph, result.machine, StepBuilder().build()) == 0


def test_the_example_runs():
    assert doctest.testmod(minimum_capacity).failed == 0
