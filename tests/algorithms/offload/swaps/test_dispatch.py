"""The dispatcher: for any offloaded values, the verifier accepts the schedule and confirms its makespan."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import remat
from remat.graph.machine import Link, Machine, Memory, Processor
from remat.plugin.problem import Problem
from remat.solving.problem_setup import make_problem
from remat.testing.strategies import chains, dags
from remat.verifier import check
from remat_algorithms.offload.swaps.dispatch import Dispatched, Overfull, dispatch
from remat_algorithms.offload.swaps.routes import routes
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap

CHANNELS = {
    "full duplex": ("out", "in", "deep"),
    "half duplex": ("bus", "bus", "bus"),
    "synchronous": ("gpu", "gpu", "gpu"),
    "writes synchronous": ("gpu", "in", "in"),
}


def machine_of(channels: str, out: float | None, back: float | None, latency: int = 0, deep: bool = False) -> Machine:
    """Build a device, a host, and with `deep` a disk behind the host."""
    first, second, third = CHANNELS[channels]
    memories = [Memory("device"), Memory("host")]
    links = [
        Link(source=0, target=1, bandwidth=out, latency=latency, channel=first),
        Link(source=1, target=0, bandwidth=back, latency=latency, channel=second),
    ]
    if deep:
        memories.append(Memory("disk"))
        links += [
            Link(source=1, target=2, bandwidth=out, channel=third),
            Link(source=2, target=1, bandwidth=back, channel=third),
        ]
    return Machine(tuple(memories), (Processor("gpu", 0),), tuple(links))


def some_swaps(order: Order, draw: random.Random) -> list[Swap]:
    """Choose gaps, routes and barriers at random."""
    ways = routes(order.machine)
    count = len(order.tasks)
    swaps = []
    for gaps in order.gaps_of_copy.values():
        route = draw.choice(ways)
        for index in gaps:
            gap = order.gaps[index]
            if draw.random() < 0.5 or gap.before - gap.after < 2 or gap.before == count:
                continue
            barriers: dict[str, int] = {}
            if draw.random() < 0.3 and gap.after >= 0:
                barriers |= {"leave_with": gap.after}
            if draw.random() < 0.3:
                barriers |= {"gone_by": draw.randint(gap.after + 1, gap.before - 1)}
            if draw.random() < 0.3:
                barriers |= {"return_with": draw.randint(gap.after + 1, gap.before - 1)}
            swaps.append(Swap(gap=index, route=route, **barriers))
    return swaps


CASES = st.tuples(
    st.one_of(chains(plain=True), chains(), dags()),
    st.sampled_from(sorted(CHANNELS)),
    st.sampled_from([None, 1, 3, 0.7]),
    st.sampled_from([None, 2, 5]),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 2**32),
)


@settings(max_examples=100, deadline=None)
@given(CASES)
def test_every_schedule_is_verified(case: Any) -> None:
    judge(*case)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(CASES)
def test_every_schedule_is_verified_thoroughly(case: Any) -> None:
    judge(*case)


def judge(
    document: dict[str, Any], channels: str, out: float | None, back: float | None, latency: int, deep: bool, seed: int
) -> None:
    """Dispatch on the least capacities that the planned profile allows, and on somewhat larger ones."""
    assume("'memory': 'host'" not in str(document))
    document.pop("machine", None)
    instance = remat.load(document)
    machine = machine_of(channels, out, back, latency, deep)
    problem = Problem(instance, machine)
    draw = random.Random(seed)
    order = Order.of(problem)
    assume(order.tasks)
    swaps = some_swaps(order, draw)
    program = order.program(swaps)
    least = int(order.profile(swaps).max(initial=0))
    without = max(least, int(order.profile().max(initial=0)))
    for budget in {least, least + (without - least) // 2, without}:
        smaller = machine.with_capacities({"device": budget})
        outcome = dispatch(problem.graph, smaller, program)
        assert isinstance(outcome, Dispatched)
        report = check(problem.graph, smaller, outcome.steps)
        assert report.ok, report.violations
        assert report.makespan == pytest.approx(outcome.makespan)
        assert report.makespan >= problem.no_recompute_time - 1e-9


ELSEWHERE = st.tuples(
    dags(),
    st.sampled_from(sorted(CHANNELS)),
    st.sampled_from([None, 1, 3, 0.7]),
    st.sampled_from([None, 2, 5]),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 2**32),
)


@settings(max_examples=30, deadline=None)
@given(ELSEWHERE)
def test_values_begin_and_end_elsewhere_and_others_run_tasks(case: Any) -> None:
    judge_elsewhere(*case)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(ELSEWHERE)
def test_values_begin_and_end_elsewhere_and_others_run_tasks_thoroughly(case: Any) -> None:
    judge_elsewhere(*case)


def judge_elsewhere(
    document: dict[str, Any], channels: str, out: float | None, back: float | None, latency: int, deep: bool, seed: int
) -> None:
    """Let inputs begin, outputs end and tasks run in other memories, at random; then as `judge`."""
    draw = random.Random(seed)
    machine = machine_of(channels, out, back, latency, deep)
    names = [memory.name for memory in machine.memories]
    moved = {"device": 0.5, "host": 0.35, "disk": 0.15}
    weights = [moved[name] for name in names]
    document["machine"] = machine.to_document()
    for key in ("inputs", "outputs"):
        places = [place if isinstance(place, str) else place["value"] for place in document.get(key, [])]
        document[key] = [{"value": value, "memory": draw.choices(names, weights)[0]} for value in dict.fromkeys(places)]
    instance = remat.load(document)
    processors = (Processor("gpu", 0), Processor("cpu", 1, speed=draw.choice([1, 0.5, 0.25])))
    problem = Problem(instance, replace(machine, processors=processors))
    graph = problem.graph
    runs = Order.of(problem).tasks
    assume(runs)
    beside = draw.random() * 0.5
    helpers = [int(draw.random() < beside) for _ in runs]
    order = Order(graph, problem.machine, runs, helpers)
    swaps = [
        replace(swap, route=order.anyhow(order.gaps[swap.gap].copy) or swap.route) for swap in some_swaps(order, draw)
    ]
    program = order.program(swaps)
    least = int(order.profile(swaps).max(initial=0))
    for budget in {least, least + least // 8}:
        smaller = problem.machine.with_capacities({"device": budget})
        outcome = dispatch(graph, smaller, program)
        assert isinstance(outcome, Dispatched)
        report = check(graph, smaller, outcome.steps)
        assert report.ok, report.violations
        assert report.makespan == pytest.approx(outcome.makespan)


def sent_away(capacity: int) -> dict[str, Any]:
    """Two values that a run makes and that must end in the host, behind the last run."""
    values = [{"id": "v", "size": 5}, {"id": "w", "size": 4}]
    places = [{"value": value["id"], "memory": "host"} for value in values]
    memories = [{"name": "device"}, {"name": "host", "capacity": capacity}]
    links = [{"source": "device", "target": "host", "bandwidth": 1}]
    machine = {"memories": memories, "processors": [{"name": "gpu", "memory": "device"}], "links": links}
    tasks = [{"id": "t", "time": 1, "writes": ["v", "w"]}]
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values, "outputs": places} | {
        "machine": machine
    }


@pytest.mark.parametrize(("capacity", "fits"), [(9, True), (8, False), (0, False)])
def test_outputs_that_do_not_fit_where_they_must_end(capacity: int, fits: bool) -> None:
    """If a value sent after the last run does not fit at its target, the dispatcher reports `Overfull`."""
    problem = make_problem(remat.load(sent_away(capacity)))
    order = Order.of(problem)
    outcome = dispatch(problem.graph, problem.machine, order.program())
    assert isinstance(outcome, Dispatched if fits else Overfull)
    if isinstance(outcome, Overfull):
        assert (outcome.position, outcome.memory) == (0, 1)


@pytest.mark.parametrize("algorithm", ["zero-offload", "weight-offload"])
def test_a_source_is_freed_only_after_a_copy_of_almost_no_time(algorithm: str) -> None:
    """The copy out takes longer than an instant, and less than two; a run without a duration reads the same value."""
    chain: dict[str, Any] = {
        "schema": "remat.instance/3",
        "kind": "chain",
        "input_size": 1,
        "stages": [
            {
                "forward_time": 0,
                "backward_time": 0,
                "output_size": 5,
                "parameter_size": 8,
                "parameter_gradient_size": 6,
                "optimizer_size": 9,
                "update_time": 0,
            }
        ],
        "backward_reads": ["input"],
        "machine": {
            "memories": [{"name": "device"}, {"name": "host"}],
            "processors": [{"name": "gpu", "memory": "device"}, {"name": "cpu", "memory": "host", "speed": 0.3}],
            "links": [
                {"source": "host", "target": "device", "bandwidth": 0.5},
                {"source": "device", "target": "host", "bandwidth": 1e9},
            ],
        },
        "parameter_memory": "device",
        "optimizer_memory": "host",
        "sharding": {"data": 4, "zero": 1},
    }
    assert remat.solve(chain, algorithm=algorithm, budget=21).makespan is not None
