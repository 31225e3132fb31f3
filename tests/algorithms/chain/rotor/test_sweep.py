"""Rotor at many budgets, its gap, and what more memory does."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

import remat
from remat.errors import ClaimError
from remat.plugin.context import Context, Progress
from remat.plugin.options import make_options
from remat.plugin.proposal import Proposal
from remat.plugin.registry import find
from remat.solving.conclusion import conclude
from remat.solving.problem_setup import make_problem
from remat.solving.result import Result
from remat.verifier import check
from remat_algorithms.chain.rotor import search as rotor_search
from remat_algorithms.chain.rotor import sweep as rotor_sweep
from remat_algorithms.chain.rotor.front_table import Cells
from remat_algorithms.chain.segments import PERSISTENT
from tests.algorithms.chain.rotor.test_uniform_forms import Document, draw_chain
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


@pytest.mark.parametrize("whole", [True, False])
def test_makespans_fall_along_a_curve(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read off the fronts of all budgets, or, where those take too long, at budgets in equal steps."""
    if not whole:
        monkeypatch.setattr(rotor_sweep, "WHOLE_WORK", 0)
        monkeypatch.setattr(rotor_sweep, "POINTS", 12)
    document = wide_chain(3)
    *found, last = proposals(document, ())
    results = [judged(document, None, proposal) for proposal in found]
    assert len(results) > 5
    assert last.least is not None
    assert results[-1].peak_memory["memory"] == last.least.size
    makespans = [result.makespan for result in results]
    assert makespans == sorted(set(makespans))
    peaks = [result.peak_memory["memory"] for result in results]
    assert peaks == sorted(set(peaks), reverse=True)


def test_a_sweep_fills_its_fronts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = []
    fill = Cells.of

    def counted(*given: Any, **more: Any) -> Cells:
        filled.append(given)
        return fill(*given, **more)

    monkeypatch.setattr(Cells, "of", counted)
    document = wide_chain(4)
    low, high = range_of(document)
    filled.clear()
    budgets = tuple(high - (high - low) * k // 19 for k in range(20))
    assert len(proposals(document, budgets)) == 20
    assert len(filled) == 1


def test_a_stopped_sweep_still_answers() -> None:
    document = wide_chain(5)
    low, high = range_of(document)
    context = Context(deadline=time.monotonic() - 1)
    for proposal in proposals(document, (high - 1, low), context):
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


@pytest.mark.parametrize("short", [0, 99])
def test_a_gap_ends_the_search(short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotor_search, "SHORT", short)
    monkeypatch.setattr(rotor_search, "FEW", 0)
    document = wide_chain(2)
    low, high = range_of(document)
    budget = (3 * low + high) // 4
    best, near = (
        remat.solve(document, algorithm="rotor", budget=budget, options={"gap": gap}) for gap in (None, "90%")
    )
    bound = max(bound.value for bound in near.bounds if bound.scope == PERSISTENT)
    assert best.optimal_within in (PERSISTENT, "all schedules")
    assert best.makespan is not None
    assert near.makespan is not None
    assert bound <= best.makespan <= near.makespan <= 1.9 * bound


def test_stopped_after_a_first_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped search answers with the once-schedule, which beats minimum memory, and its current bound."""
    monkeypatch.setattr(rotor_search, "SHORT", 0)
    monkeypatch.setattr(rotor_search, "FEW", 0)
    monkeypatch.setattr(rotor_search, "ONCE_FROM", 0)
    document = wide_chain(0)
    low, high = range_of(document)
    budget = (2 * low + high) // 3
    context = Context()

    def stop(progress: Progress) -> None:
        context.interrupted = True

    context.listener = stop
    problem = make_problem(remat.load(document), budget=budget)
    proposal = ROTOR.load()(problem, make_options(ROTOR, {}), context)
    result = judged(document, budget, proposal)
    assert result.termination == "interrupted"
    assert all(bound.value <= (result.makespan or 0) for bound in proposal.bounds)
    least = remat.solve(document, algorithm="rotor", budget=budget, time_limit=0)
    assert result.makespan is not None
    assert least.makespan is not None
    assert result.makespan < least.makespan


def test_chains_that_would_fill_the_machine_are_refused() -> None:
    stage = {"forward_time": 1, "backward_time": 1, "output_size": 1, "saved_size": 3, "repeat": 80_000}
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "stages": [stage]}
    with pytest.raises(remat.OptionError, match=r"80,000 stages take .* GB.*; use periodic"):
        remat.solve(document, algorithm="rotor", budget=100_000)


def test_a_schedule_is_verified_once_for_all_budgets_that_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    document = wide_chain(3)
    least, most = range_of(document)
    budgets = [most - (most - least) * k // 199 for k in range(200)]
    seen: list[tuple[int, ...]] = []

    def counted(graph: Any, machine: Any, steps: Any, **more: Any) -> Any:
        seen.append(tuple(steps.item.tolist()))
        return check(graph, machine, steps, **more)

    monkeypatch.setattr("remat.solving.conclusion.check", counted)
    answers = remat.sweep(document, "rotor", budgets=budgets).curves[0].answers
    assert len(answers) == len(set(budgets))
    assert 1 < len(seen) == len(set(seen)) < len(answers)
    for answer in answers:
        assert answer.budget is not None
        assert answer.peak is not None
        assert answer.peak <= answer.budget
    for answer in answers[::20]:
        alone = remat.solve(document, algorithm="rotor", budget=answer.budget)
        assert (answer.makespan, answer.peak) == (alone.makespan, alone.peak_memory["memory"])
        assert (answer.lower_bound, answer.optimal_within) == (alone.lower_bound, alone.optimal_within)


def test_what_was_verified_for_more_memory_is_judged_anew_where_it_does_not_fit() -> None:
    document = wide_chain(3)
    _, most = range_of(document)
    (proposal,) = proposals(document, (most,))
    ample = judged(document, most, proposal)
    problem = make_problem(remat.load(document), budget=most - 1)
    with pytest.raises(ClaimError, match="although the algorithm says that its schedule fits"):
        conclude(problem, ROTOR, proposal, {}, verified=ample)
