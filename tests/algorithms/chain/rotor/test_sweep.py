"""Rotor at many budgets, its gap, and what more memory does."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

import remat
from remat.plugin.context import Context, Progress
from remat.plugin.options import make_options
from remat.plugin.proposal import Proposal
from remat.plugin.registry import find
from remat.solving.conclusion import conclude
from remat.solving.result import Result
from remat.solving.single import make_problem
from remat_algorithms.chain.rotor import slots as rotor_slots
from remat_algorithms.chain.rotor import table as rotor_table
from remat_algorithms.chain.rotor.table import RotorTable
from remat_algorithms.chain.segments import PERSISTENT, Segments
from tests.algorithms.chain.rotor.test_forms import Document, draw_chain
from tests.oracles.persistent import Recursion

ROTOR = find("rotor", "chain")


def proposals(
    document: Document, budgets: tuple[int, ...], context: Context | None = None, **options: Any
) -> list[Proposal]:
    sweep = ROTOR.load_sweep()
    assert sweep is not None
    problem = make_problem(remat.load(document))
    return list(sweep(problem, make_options(ROTOR, options), context or Context(), budgets))


def judged(document: Document, budget: int | None, proposal: Proposal) -> Result:
    """Place and verify a proposal within its budget; a wrong claim is an exception."""
    return conclude(make_problem(remat.load(document), budget=budget), ROTOR, proposal, {})


def range_of(document: Document) -> tuple[int, int]:
    refused = remat.solve(document, algorithm="rotor", budget=0).least_budget
    most: int = remat.solve(document, algorithm="rotor").peak_memory["memory"]
    return (0 if refused is None else refused.size), most


def wide_chain(seed: int, stages: int = 12) -> Document:
    """Draw a chain whose sizes have no common divisor worth the name."""
    rng = random.Random(seed)
    drawn = [
        {
            "forward_time": rng.randint(1, 100),
            "backward_time": rng.randint(1, 200),
            "output_size": rng.randint(1, 10**6),
            "saved_size": rng.randint(1, 10**6),
            "backward_workspace": rng.randint(1, 10**6),
            "variants": [{}, {"saved_size": rng.randint(1, 10**5), "backward_time": rng.randint(200, 300)}][
                : rng.choice([1, 2])
            ],
        }
        for _ in range(stages)
    ]
    return {"schema": "remat.instance/1", "kind": "chain", "input_size": 1000, "stages": drawn}


@pytest.mark.parametrize("seed", range(25))
def test_a_sweep_of_small_chains_is_the_recursion(seed: int) -> None:
    document = draw_chain(seed)
    recursion = Recursion(document)
    low, high = range_of(document)
    budgets = tuple(range(high + 2, max(0, low - 2) - 1, -1))
    found = proposals(document, budgets)
    assert len(found) == len(budgets)
    for budget, proposal in zip(budgets, found, strict=True):
        result = judged(document, budget, proposal)
        expected = recursion.least_time(budget)
        assert result.makespan == expected
        assert expected is None or result.optimal_within in (PERSISTENT, "all schedules")


@pytest.mark.parametrize("seed", range(25))
def test_the_breakpoints_of_small_chains(seed: int) -> None:
    document = draw_chain(seed)
    recursion = Recursion(document)
    low, high = range_of(document)
    best = {budget: recursion.least_time(budget) for budget in range(max(0, low - 1), high + 1)}
    front = {best[b]: b for b in sorted(best, reverse=True) if best[b] is not None}
    *found, last = proposals(document, ())
    results = [judged(document, None, proposal) for proposal in found]
    assert {result.makespan: result.peak_memory["memory"] for result in results} == front
    assert [result.makespan for result in results] == sorted(front)
    assert last.steps is None
    assert last.least is not None
    assert last.least.size == low or low == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_coarse_sweep_is_bracketed(seed: int) -> None:
    document = wide_chain(seed, stages=6)
    recursion = Recursion(document)
    low, high = range_of(document)
    budgets = tuple(high - (high - low) * k // 7 for k in range(9))
    latest: float = 0
    for budget, proposal in zip(budgets, proposals(document, budgets, slots=30), strict=True):
        result = judged(document, budget, proposal)
        exact = recursion.least_time(budget)
        assert (result.makespan is None) == (exact is None) == (budget < low)
        if result.makespan is not None and exact is not None:
            assert result.makespan >= max(exact, latest)
            latest = result.makespan
            for bound in result.bounds:
                assert bound.value <= exact


def test_a_coarse_curve_descends() -> None:
    document = wide_chain(3)
    *found, last = proposals(document, (), slots=50)
    results = [judged(document, None, proposal) for proposal in found]
    assert len(results) > 5
    assert last.least is not None
    assert results[-1].peak_memory["memory"] == last.least.size
    makespans = [result.makespan for result in results]
    assert makespans == sorted(set(makespans))
    peaks = [result.peak_memory["memory"] for result in results]
    assert peaks == sorted(set(peaks), reverse=True)


def test_a_sweep_fills_one_pair_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = []
    fill = RotorTable.of

    def counted(*given: Any, **more: Any) -> RotorTable | None:
        filled.append(given[1].up)
        return fill(*given, **more)

    monkeypatch.setattr(RotorTable, "of", counted)
    document = wide_chain(4)
    low, high = range_of(document)
    filled.clear()
    budgets = tuple(high - (high - low) * k // 19 for k in range(20))
    assert len(proposals(document, budgets, slots=60)) == 20
    assert filled == [True, False]


def test_a_stopped_sweep_still_answers() -> None:
    document = wide_chain(5)
    low, high = range_of(document)
    context = Context(deadline=time.monotonic() - 1)
    for proposal in proposals(document, (high - 1, low), context, slots=50):
        assert proposal.termination == "time limit"
        assert judged(document, low, proposal).makespan is not None


# --- the gap ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["5%", "0.05", 0.05, " 5 % "])
def test_the_gap_is_a_share(given: object) -> None:
    assert make_options(ROTOR, {"gap": given}).gap == pytest.approx(0.05)


@pytest.mark.parametrize("given", ["5 percent", "%", "-1%", 2, "nan", "200%"])
def test_what_is_no_gap(given: object) -> None:
    with pytest.raises(remat.OptionError, match="option gap"):
        make_options(ROTOR, {"gap": given})


@pytest.mark.parametrize("seed", range(4))
def test_slots_are_refined_until_the_gap_is_met(seed: int) -> None:
    document = wide_chain(seed)
    low, high = range_of(document)
    budget = (3 * low + high) // 4
    coarse = remat.solve(document, algorithm="rotor", budget=budget, options={"slots": 8})
    fine = remat.solve(document, algorithm="rotor", budget=budget, options={"slots": 8, "gap": "0.5%"})
    bounds = [max(bound.value for bound in result.bounds if bound.scope == PERSISTENT) for result in (coarse, fine)]
    assert coarse.makespan is not None
    assert fine.makespan is not None
    assert coarse.makespan > 1.005 * bounds[0], "a case to refine"
    assert fine.makespan <= 1.005 * bounds[1]
    assert bounds[0] <= bounds[1] <= fine.makespan <= coarse.makespan


def test_refining_ends_where_tables_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    document = wide_chain(1)
    low, high = range_of(document)
    monkeypatch.setattr("remat_algorithms.chain.rotor.rotor.MOST_BYTES", 100_000)
    result = remat.solve(document, algorithm="rotor", budget=(3 * low + high) // 4, options={"slots": 8, "gap": 0})
    assert any("too large" in note for note in result.notes)
    assert any("above the optimum of its class" in note for note in result.notes)


def test_tables_that_would_fill_the_machine_are_refused() -> None:
    stage = {"forward_time": 1, "backward_time": 1, "output_size": 1, "saved_size": 3, "repeat": 700}
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "stages": [stage]}
    with pytest.raises(remat.OptionError, match=r"takes .* GB, more than 16 GB; give option slots=\d+"):
        remat.solve(document, algorithm="rotor", budget=1000, options={"slots": 100_000})
    stage["repeat"] = 80_000
    with pytest.raises(remat.OptionError, match=r"80,000 stages takes .*; use periodic"):
        remat.solve(document, algorithm="rotor", budget=100_000)


# --- more memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "certificate"), [(0, True), (1, True), (2, True), (3, False)])
def test_more_memory_never_hurts_across_rungs(seed: int, certificate: bool) -> None:
    """Units change with the budget: the dearest budgets are those just above a rung."""
    document = wide_chain(seed, stages=9)
    low, high = range_of(document)
    slots, resident = 9, document["input_size"]
    steps = {low + (high - low) * k // 20 for k in range(21)}
    unit = -(-(high - resident) // slots)
    while unit > 1:
        edge = (slots + 1) * unit - 1 + resident
        steps |= {edge - 1, edge, edge + 1, edge + unit}
        unit = -(-unit // 2)
    latest: float = float("inf")
    for budget in sorted(step for step in steps if low <= step <= high):
        options = {"slots": slots, "certificate": certificate}
        result = remat.solve(document, algorithm="rotor", budget=budget, options=options)
        assert result.makespan is not None
        assert result.makespan <= latest, budget
        latest = result.makespan


def test_small_rooms_are_rounded_finely() -> None:
    """Near the least budget there are as many slots as anywhere."""
    document = wide_chain(2, stages=30)
    low, high = range_of(document)
    result = remat.solve(document, algorithm="rotor", budget=low + (high - low) // 50, options={"slots": 100})
    assert not any("too tight" in note for note in result.notes)


# --- threads, clocks --------------------------------------------------------------------------------------------------


def test_two_threads_fill_the_same_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotor_slots, "COMPILED_FROM", -1)
    monkeypatch.setattr(rotor_table, "COMPILED_FROM", -1)
    document = wide_chain(6)
    low, high = range_of(document)
    one, two = (
        remat.solve(document, algorithm="rotor", budget=(low + high) // 2, options={"slots": 40}, threads=threads)
        for threads in (1, 2)
    )
    assert one.makespan == two.makespan
    assert one.bounds == two.bounds


def test_the_clock_is_looked_at_inside_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of a long chain is filled in parts, and the parts make the same table."""
    document = wide_chain(7)
    low, high = range_of(document)
    results, looks = [], []
    for step in (10**9, 1):
        monkeypatch.setattr(rotor_table, "STEP", step)
        for compiled in (-1, 10**9):
            monkeypatch.setattr(rotor_table, "COMPILED_FROM", compiled)
            asked = 0
            segments = Segments.of(make_problem(remat.load(document)).chain)

            def stopped() -> bool:
                nonlocal asked
                asked += 1
                return False

            grid = rotor_table.Grid.of(segments, (low + high) // 2, (low + high) // 100, up=True)
            table = RotorTable.of(segments, grid, stopped=stopped)
            assert table is not None
            results.append(table.time.tolist())
            looks.append(asked)
    assert results[0] == results[1] == results[2] == results[3]
    assert looks == [13, 13, 91, 91]


def test_a_glance_before_a_long_table(monkeypatch: pytest.MonkeyPatch) -> None:
    document = wide_chain(8)
    low, high = range_of(document)
    budget = (low + 2 * high) // 3
    once = remat.solve(document, algorithm="rotor", budget=budget, options={"slots": 80})
    monkeypatch.setattr(rotor_slots, "COARSE_FROM", -1)
    told: list[str] = []
    twice = remat.solve(
        document,
        algorithm="rotor",
        budget=budget,
        options={"slots": 80},
        progress=lambda progress: told.append(progress.message),
    )
    assert (twice.makespan, twice.bounds, twice.notes) == (once.makespan, once.bounds, once.notes)
    assert told[0] == "20 slots"
    assert told[-1] == "80 slots"


def test_stopped_after_the_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the few slots gave is the answer: better than least memory, and without a bound."""
    monkeypatch.setattr(rotor_slots, "COARSE_FROM", -1)
    document = wide_chain(8)
    low, high = range_of(document)
    budget = (low + 2 * high) // 3
    context = Context()

    def stop(progress: Progress) -> None:
        context.interrupted = True

    context.listener = stop
    problem = make_problem(remat.load(document), budget=budget)
    proposal = ROTOR.load()(problem, make_options(ROTOR, {"slots": 80}), context)
    result = judged(document, budget, proposal)
    assert result.termination == "interrupted"
    assert [bound for bound in proposal.bounds if bound.scope == PERSISTENT] == []
    least = remat.solve(document, algorithm="rotor", budget=budget, time_limit=0)
    assert result.makespan is not None
    assert least.makespan is not None
    assert result.makespan < least.makespan
