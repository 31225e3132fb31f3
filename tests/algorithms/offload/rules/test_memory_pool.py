"""Memory pools of `autoswap` and `swapadvisor`: lifetimes and addresses by hand; addresses fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.schedule.steps import StepKind
from remat.solving.problem_setup import make_problem
from remat.testing.strategies import chains, dags
from remat_algorithms.offload.rules.memory_pool import WORKSPACE, lives_of
from remat_algorithms.offload.swaps.dispatch import Dispatched
from remat_algorithms.offload.swaps.gap_selection import Plan
from remat_algorithms.offload.swaps.swaps import Order
from tests.algorithms.offload.machines import two_memories
from tests.algorithms.offload.timelines import chain_of, starts, timeline
from tests.seeds import examples

HOLES = chain_of([(f"s{k}", 1, 2, size) for k, size in enumerate([2, 2, 1, 1, 2])], input_size=2)
"""Inputs of 2 2 2 1 1, an output of 2; a backward k holds x_k-1, x_k, y_k, y_k-1."""

# In 11, one value must leave (B5 holds 12): x0, which frees 2. It is back during B4. Then B4 holds x0 x1 x2 (6), x3 x4
# y4 y3 (4), and B3 x0 x1 x2 (6), x3, y3 (2) and y2 (2). The pool has x0 x1 x2 and y5 in 0-8, y4 and x4 beside x3 and y3
# in 8-12: y5 goes (2 bytes are free), and x0 comes there. What B4 frees, x4 and y4, are two holes of 1: y2 does not
# fit there, and what y5 left is taken. So the addresses take 12.
ONE_LEAVES = """
    0   Fe1, x0 out
    1   Fe2
    2   Fe3
    3   Fe4
    4   Fe5
    5   loss, B5
    7   B4, x0 back
    9   B3
    11  B2
    13  B1
"""

# With the pool, x1 follows. B5 holds 8: x2 and x3, x4, y4, x5 or y5. Both are back before B2: at 7 and 8.
TWO_LEAVE = """
    0   Fe1, x0 out
    1   Fe2, x1 out
    2   Fe3
    3   Fe4
    4   Fe5
    5   loss, B5
    7   B4, x1 back
    8   x0 back
    9   B3
    11  B2
    13  B1
"""


@pytest.mark.parametrize(("pool", "expected", "arena"), [(False, ONE_LEAVES, 12), (True, TWO_LEAVE, 10)])
def test_five_stages_in_a_pool(pool: bool, expected: str, arena: int) -> None:
    options = {"pool": pool}
    result = remat.solve(HOLES, algorithm="autoswap", machine=two_memories(2), budget={"device": 11}, options=options)
    assert starts(result) == timeline(expected)
    assert result.makespan == 15
    assert remat.layout(result, algorithm="best-fit").arena == arena


def _lives(result: remat.Result, document: dict[str, Any], machine: dict[str, Any]) -> Any:
    problem = make_problem(remat.load(document), machine=machine)
    assert result.columns is not None
    plan = Plan(Order.of(problem), (), Dispatched(result.columns, result.makespan or 0))
    return lives_of(plan, problem)


@settings(max_examples=25, deadline=None)
@given(st.one_of(chains(), dags(plain=True)), st.floats(0.3, 1), st.booleans())
def test_lifetimes_are_those_of_the_verifier(document: dict[str, Any], share: float, whole: bool) -> None:
    """Two buffers live at one time if and only if the residencies of the schedule do."""
    document.pop("machine", None)
    machine = two_memories(3, 2)
    peak = remat.solve(document, algorithm="keep-all", machine=machine).peak_memory["device"]
    budget = None if whole else {"device": int(share * peak)}
    result = remat.solve(document, algorithm="offload-greedy", machine=machine, budget=budget, options={"bound": False})
    if result.columns is None:
        return
    assert result.report is not None
    if (result.report.end <= result.report.start)[result.columns.kind == StepKind.RUN].any():
        return  # runs that take no time may follow each other in several orders at one instant
    lives = _lives(result, document, machine)
    known = remat.layout(result, algorithm="best-fit").residencies
    assert known is not None
    if lives.buffers.group is not None or len(known.hosts):
        return  # outputs in place begin later where they take over an address
    mine = sorted(zip(lives.value, lives.buffers.start, lives.buffers.end, lives.buffers.size, strict=True))
    theirs = sorted(zip(known.value, known.first, known.last, known.size, strict=True))
    assert [(row[0], row[3]) for row in mine] == [(row[0], row[3]) for row in theirs]
    assert (_meet(np.array(mine)) == _meet(np.array(theirs))).all()


def _meet(rows: np.ndarray) -> np.ndarray:
    rows = rows.reshape(-1, 4)
    first, last = rows[:, 1], rows[:, 2]
    found: np.ndarray = (first[:, None] < last[None]) & (first[None] < last[:, None])
    return found


def test_workspaces_and_outputs_in_place() -> None:
    """B1 takes the address of y1 for y0: 4 in place; its workspace of 3 needs a separate address."""
    document = chain_of([("s", 1, 1, 4)], input_size=4, in_place=True)
    document["stages"][0]["backward_workspace"] = 3
    result = remat.solve(document, algorithm="keep-all", machine=two_memories(1))
    lives = _lives(result, document, two_memories(1))
    assert sorted(lives.buffers.size[lives.value == WORKSPACE].tolist()) == [3]
    assert lives.buffers.group is not None
    assert lives.arena() == result.peak_memory["device"]


@examples(4, 12, chains(plain=True), st.floats(0.2, 1))
def test_pooled_addresses_fit_the_budget(document: dict[str, Any], share: float) -> None:
    document.pop("machine", None)
    machine = two_memories(3, 2)
    peak = remat.solve(document, algorithm="keep-all", machine=machine).peak_memory["device"]
    given: dict[str, Any] = {"machine": machine, "budget": {"device": int(share * peak)}}
    pooled = remat.solve(document, algorithm="autoswap", options={"pool": True, "iterations": 3}, **given)
    if pooled.columns is not None:
        arena = remat.layout(pooled, algorithm="best-fit").arena
        assert arena is not None
        assert arena <= int(share * peak)
    placed = remat.solve(document, algorithm="swapadvisor", options={"allocation": True, "iterations": 20}, **given)
    if placed.columns is not None:
        arena = remat.layout(placed).arena
        assert arena is not None
        assert arena <= int(share * peak)


def test_individuals_differ_in_their_addresses() -> None:
    """In 11, the first individual's best fit needs another value to leave; the search finds addresses for fewer."""
    given: dict[str, Any] = {"algorithm": "swapadvisor", "machine": two_memories(0.5), "budget": {"device": 11}}
    first = remat.solve(HOLES, options={"iterations": 0, "allocation": True}, **given)
    found = remat.solve(HOLES, options={"iterations": 60, "allocation": True}, **given)
    bytes_only = remat.solve(HOLES, options={"iterations": 0}, **given)
    assert first.makespan is not None
    assert found.makespan is not None
    assert bytes_only.makespan is not None
    assert bytes_only.makespan <= found.makespan < first.makespan
    assert any("addresses take" in note for note in found.notes)


def test_plans_without_fitting_addresses_are_refused() -> None:
    """In 16, everything that can leave is needed for the bytes; the addresses that are left do not fit."""
    tight = chain_of([(f"s{k}", 1, 2, size) for k, size in enumerate([6, 2, 1, 6])], input_size=2)
    given: dict[str, Any] = {"algorithm": "autoswap", "machine": two_memories(2), "budget": {"device": 16}}
    assert remat.solve(tight, **given).makespan == 14
    pooled = remat.solve(tight, options={"pool": True}, **given)
    assert str(pooled.status) == "unknown"
    assert "no plan whose addresses fit" in " ".join(pooled.notes)
