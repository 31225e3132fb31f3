"""Orders in columns, interpreted and compiled, equal the objects bit for bit."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import remat
from remat.plugin import OptionError, StepKind, useful_runs
from remat.plugin.problem import Problem
from remat.testing.strategies import chains, dags
from remat_algorithms.kit.compile.lowering import checked_indices
from remat_algorithms.offload.offload_greedy import rankings
from remat_algorithms.offload.swaps.fluid_bound import volume_bound
from remat_algorithms.offload.swaps.gap_selection import Choice
from remat_algorithms.offload.swaps.order_timing import Columns, Outline
from remat_algorithms.offload.swaps.routes import routes
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap
from tests.algorithms.offload.swaps.test_dispatch import machine_of

CASES = st.tuples(
    st.one_of(chains(plain=True), chains(), dags()),
    st.sampled_from(["full duplex", "half duplex"]),
    st.sampled_from([1, 3, 0.7]),
    st.sampled_from([None, 2, 5]),
    st.integers(0, 3),
    st.integers(0, 2**32),
)


@settings(max_examples=60, deadline=None)
@given(CASES)
def test_columns_say_what_objects_say(case: Any) -> None:
    compare(*case, compiled=False)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(CASES)
def test_compiled_timing_equals_placement(case: Any) -> None:
    compare(*case, compiled=True)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
@settings(max_examples=3000, deadline=None)
@given(case=CASES)
def test_columns_say_what_objects_say_thoroughly(case: Any, compiled: bool) -> None:
    compare(*case, compiled=compiled)


def compare(
    document: dict[str, Any], channels: str, out: float, back: float | None, latency: int, seed: int, *, compiled: bool
) -> None:
    """Compare some orders, with reruns, in which drawn gaps are spent elsewhere, between drawn times."""
    assume("'memory': 'host'" not in str(document))
    document.pop("machine", None)
    instance = remat.load(document)
    draw = random.Random(seed)
    machine = machine_of(channels, out, back, latency)
    free = Problem(instance, machine)
    order = Order.of(free)
    assume(order.tasks)
    peak = int(order.profile().max(initial=0))
    device = replace(machine.memories[0], capacity=draw.randint(peak // 2, peak))
    problem = Problem(instance, replace(machine, memories=(device, *machine.memories[1:])))
    ways = routes(problem.machine)
    assume(Columns.known(problem, ways))
    with checked_indices():
        columns = Columns(problem, ways[0], compiled=compiled)
        for _ in range(3):
            tasks = with_reruns(problem, order.tasks, draw)
            objects, outline = looked_at(problem, tasks), columns.look(tasks)
            assert (objects is None) == (outline is None)
            if objects is not None and outline is not None:
                agree(objects, outline, draw)


def with_reruns(problem: Problem, tasks: list[int], draw: random.Random) -> list[int]:
    """Insert some tasks again at drawn places; their inputs may be missing."""
    found = list(tasks)
    may = (problem.graph.recomputable & ~problem.graph.once).tolist()
    for _ in range(draw.choice((0, 1, 2, 3))):
        task = draw.choice(found)
        if may[task]:
            found.insert(draw.randint(found.index(task), len(found)), task)
    return found


def looked_at(problem: Problem, tasks: list[int]) -> Choice | None:
    useful = useful_runs(problem.graph, tasks)
    try:
        return Choice(problem, Order(problem.graph, problem.machine, useful), routes(problem.machine), outputs=True)
    except OptionError:
        return None


def agree(objects: Choice, outline: Outline, draw: random.Random) -> None:
    """Compare the order, the values chosen under a drawn ranking, and the resulting makespan."""
    assert objects.order.tasks == outline.tasks.tolist()
    for name in ("profile", "after", "before", "size", "value", "candidates", "length", "round_trip", "start_times"):
        assert np.array_equal(getattr(objects, name), getattr(outline, name)), name
    assert volume_bound(objects) == volume_bound(outline)
    for mine, other in zip(rankings(objects), rankings(outline), strict=True):
        assert np.array_equal(mine, other)
    ranking = objects.candidates.tolist()
    draw.shuffle(ranking)
    gaps = objects.select(ranking)
    assert gaps == outline.select(ranking)
    if gaps is None:
        return
    others = sorted(set(objects.candidates.tolist()) - set(gaps))
    gaps = gaps + draw.sample(others, min(len(others), draw.choice((0, 1, 3))))
    leave, back = [-1] * len(gaps), [-1] * len(gaps)
    for number, gap in enumerate(gaps):
        after, before = int(objects.after[gap]), int(objects.before[gap])
        if draw.random() < 0.3:
            leave[number] = after
        if draw.random() < 0.3:
            back[number] = draw.randint(after + 1, before - 1)
    route = objects.routes[0]
    swaps = [
        Swap(gap=gap, route=route, leave_with=first, return_with=second)
        for gap, first, second in zip(gaps, leave, back, strict=True)
    ]
    plan, timed = objects.dispatched(swaps), outline.timed(gaps, leave, back)
    assert (plan is None) == (timed is None)
    if plan is None or timed is None:
        return
    steps = plan.outcome.steps
    assert steps.start is not None
    assert plan.makespan == timed.makespan
    assert steps.start[steps.kind == StepKind.RUN].tolist() == timed.starts.tolist()
    again = outline.plan(gaps, leave, back)
    assert again is not None
    assert again.makespan == plan.makespan
