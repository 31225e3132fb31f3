"""`rotor-float`, `chain-exact` and `chain-best` against each other, exhaustive searches and reference values."""

from __future__ import annotations

import itertools
import json
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

import remat
from remat.errors import AlgorithmError
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain.exact.live_sets import LiveSets
from remat_algorithms.chain.floating import model as floating
from remat_algorithms.chain.floating import rotor_float
from remat_algorithms.chain.floating import table as floating_table
from remat_algorithms.chain.floating.model import FLOATING, LeastFloating, Needs
from remat_algorithms.chain.floating.table import FloatingTable, Slots
from remat_algorithms.chain.segments import RunList, Segments
from remat_algorithms.kit.compile.lowering import Kernel, checked_indices
from tests import places
from tests.algorithms.chain.rotor.test_rotor import draw_chain
from tests.oracles import search
from tests.oracles.floating import floating_best

REFERENCE = json.loads((places.REFERENCE / "chain.json").read_text())
TINY = [
    pytest.param(case["instance"], case["budgets"], id=case["instance"]["name"])
    for case in REFERENCE["cases"]
    if "opt_exhaustive" in case["budgets"][0]
]
LONGER = [
    pytest.param(case["instance"], point, id=f"{case['instance']['name']}-{point['budget']}")
    for case in REFERENCE["cases"]
    for point in case["budgets"][1::3]
    if "opt_exhaustive" not in point
]


def makespan(instance: Any, algorithm: str, budget: int, **options: Any) -> Any:
    return remat.solve(instance, algorithm=algorithm, budget=budget, options=options).makespan


def whole_range(instance: Any) -> tuple[int, int]:
    """Return rotor's minimum budget and the smallest budget without recomputation."""
    least = remat.solve(instance, algorithm="rotor", budget=0).least_budget
    high = remat.solve(instance, algorithm="rotor").peak_memory["memory"]
    return (high if least is None else least.size), high


# --- reference values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("instance", "points"), TINY)
def test_tiny_reference_values(instance: Any, points: list[dict[str, Any]], every: int) -> None:
    before = None
    for point in points[::every]:
        budget = point["budget"]
        exact = remat.solve(instance, algorithm="chain-exact", budget=budget)
        assert exact.makespan == point["opt_exhaustive"]
        if exact.makespan is None:
            assert exact.status is remat.Status.INFEASIBLE
            assert exact.scope == "all schedules"
            continue
        assert exact.status is remat.Status.OPTIMAL
        assert before is None or exact.makespan <= before
        before = exact.makespan
        best = makespan(instance, "chain-best", budget)
        floats = makespan(instance, "rotor-float", budget)
        assert exact.makespan <= best <= floats <= point["opt_persistent"]
        # Floating schedules close the whole distance here.
        assert floats == exact.makespan
        for name in ("periodic", "chen-greedy", "revolve-chain"):
            found = makespan(instance, name, budget)
            assert found is None or found >= exact.makespan


@pytest.mark.slow
@pytest.mark.parametrize(("instance", "point"), LONGER)
def test_longer_reference_values(instance: Any, point: dict[str, Any]) -> None:
    best = remat.solve(instance, algorithm="chain-best", budget=point["budget"], options={"iterations": 200})
    floats = makespan(instance, "rotor-float", point["budget"])
    assert best.makespan is not None
    assert best.lower_bound <= best.makespan <= floats <= point["opt_persistent"]


def test_a_schedule_that_no_persistent_one_equals() -> None:
    """Keeping B2's saved value without its input spares one forward over every persistent schedule."""
    instance = next(case["instance"] for case in REFERENCE["cases"] if case["instance"]["name"] == "hom-L5")
    assert makespan(instance, "rotor", 10) == 19
    assert makespan(instance, "rotor-float", 10) == makespan(instance, "chain-exact", 10) == 18


# --- rotor-float ------------------------------------------------------------------------------------------------------


def check_floating(seed: int, stages: int, *, equal_forwards: bool = False) -> tuple[int, int]:
    """Return the distances from rotor to rotor-float, and to the best schedule, over some budgets."""
    instance = draw_chain(seed, stages)
    if equal_forwards:
        for stage in instance["stages"]:
            del stage["saving_forward_time"]
    low, high = whole_range(instance)
    gained = distance = 0
    for budget in sorted({low - 1, low, low + 1, (3 * low + high) // 4, (low + high) // 2, high}):
        result = remat.solve(instance, algorithm="rotor-float", budget=max(0, budget))
        assert result.makespan == floating_best(instance, max(0, budget))
        if result.makespan is None:
            continue
        assert result.optimal_within in (FLOATING, "all schedules")
        persistent, best = makespan(instance, "rotor", budget), search.chain_best(instance, budget)
        assert best <= result.makespan
        if persistent is not None:
            assert result.makespan <= persistent
            gained, distance = gained + persistent - result.makespan, distance + persistent - best
    return gained, distance


@pytest.mark.parametrize("stages", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_best_floating_schedules(stages: int) -> None:
    for seed in range(6):
        check_floating(100 * stages + seed, stages)


@pytest.mark.slow
def test_floating_schedules_close_most_of_the_distance() -> None:
    """Floating schedules close 80 % of the distance if saving costs no extra time; cheaper saves leave more."""
    seeds = [(100 * stages + seed, stages) for stages in (3, 4, 5) for seed in range(12)]
    found = [check_floating(*seed, equal_forwards=True) for seed in seeds]
    gained, distance = (sum(column) for column in zip(*found, strict=True))
    assert gained >= 0.8 * distance > 0


@pytest.mark.parametrize("seed", range(4))
def test_kernels_and_twins_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = make_problem(remat.load(draw_chain(seed, 6 + seed))).chain
    segments = Segments.of(chain)
    needs = Needs.of(chain, segments)
    found = []
    for compiled_from in (1, 1000):
        monkeypatch.setattr(floating_table, "COMPILED_FROM", compiled_from)
        monkeypatch.setattr(floating, "COMPILED_FROM", compiled_from)
        least = LeastFloating.of(needs)
        table = FloatingTable.of(needs, Slots.of(least.whole + 7, 2, up=True)) if least is not None else None
        assert least is not None
        assert table is not None
        found.append((least.least, table.time))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("seed", range(2))
def test_kernels_interpreted_and_checked(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = Segments.of(make_problem(remat.load(draw_chain(seed, 4 + seed))).chain)
    needs = Needs.of(segments.chain, segments)
    monkeypatch.setattr(floating_table, "COMPILED_FROM", 1)
    monkeypatch.setattr(floating, "COMPILED_FROM", 1)
    found = []
    for plain in (False, True):
        with monkeypatch.context() as patched, checked_indices():
            if plain:
                patched.setattr(Kernel, "bind", lambda kernel, *records: partial(kernel.plain, *records))
            least = LeastFloating.of(needs)
            assert least is not None
            table = FloatingTable.of(needs, Slots.of(least.whole + 7, 2, up=True))
        assert table is not None
        found.append((least.least, table.time))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


def test_least_floating_memory_is_enough() -> None:
    for seed in range(12):
        instance = draw_chain(seed, 5)
        chain = make_problem(remat.load(instance)).chain
        segments = Segments.of(chain)
        least = LeastFloating.of(Needs.of(chain, segments))
        assert least is not None
        runs = RunList(segments, has_saving=True)
        least.schedule(runs)
        budget = least.whole + chain.static_memory
        assert floating_best(instance, budget) is not None
        assert budget == 0 or floating_best(instance, budget - 1) is None
        assert remat.solve(instance, algorithm="rotor-float", budget=budget).makespan is not None


@pytest.mark.parametrize("slots", [3, 7, 20])
def test_rounding_never_beats_rounding_less(slots: int) -> None:
    for seed in range(3):
        instance = draw_chain(seed, 5, largest=40)
        low, high = whole_range(instance)
        for budget in (low, (low + high) // 2):
            rough = remat.solve(instance, algorithm="rotor-float", budget=budget, options={"slots": slots})
            exact = makespan(instance, "rotor-float", budget)
            assert rough.makespan is not None
            assert exact <= rough.makespan <= makespan(instance, "rotor", budget)
            bounds = [bound.value for bound in rough.bounds if bound.scope == FLOATING]
            assert all(bound <= exact for bound in bounds)


def test_long_chains_are_left_to_rotor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotor_float, "MOST_STAGES", 4)
    instance = draw_chain(3, 5)
    budget = whole_range(instance)[0]
    result = remat.solve(instance, algorithm="rotor-float", budget=budget)
    assert result.makespan == makespan(instance, "rotor", budget)
    assert any("more than 4 stages" in note for note in result.notes)


# --- chain-exact ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_live_sets_find_the_best_of_all_schedules(seed: int) -> None:
    instance = draw_chain(seed, 4)
    low, high = whole_range(instance)
    for budget in (max(0, low - 1), low, (2 * low + high) // 3):
        problem = make_problem(remat.load(instance), budget=budget)
        outcome = LiveSets(problem.chain, budget).shortest(states=10**6, stopped=lambda: False)
        expected = search.chain_best(instance, budget)
        assert outcome.finished
        assert (None if outcome.tasks is None else problem.graph.time[outcome.tasks].sum()) == expected


def test_a_limit_of_states_is_named_and_leaves_a_bound() -> None:
    instance = next(case["instance"] for case in REFERENCE["cases"] if case["instance"]["name"] == "mid-L8-tmp-9022")
    full = remat.solve(instance, algorithm="chain-exact", budget=42)
    short = remat.solve(instance, algorithm="chain-exact", budget=42, options={"states": 50})
    assert full.status is remat.Status.OPTIMAL
    assert short.status is remat.Status.FEASIBLE
    assert short.termination == "iteration limit"
    assert "the limit of 50 states was reached" in short.notes[0]
    assert full.makespan is not None
    assert short.makespan is not None
    assert full.no_recompute_time < short.lower_bound <= full.makespan <= short.makespan
    nothing = remat.solve(instance, algorithm="chain-exact", budget=37, options={"states": 5})
    assert nothing.status is remat.Status.UNKNOWN
    assert "5 states" in nothing.notes[0]


def test_least_budget_of_all_schedules() -> None:
    for seed in range(6):
        instance = draw_chain(seed, 3)
        answer = remat.solve(instance, algorithm="chain-exact", budget=0)
        if answer.status is remat.Status.INFEASIBLE and answer.least_budget is not None:
            assert answer.least_budget.sufficient
            assert answer.least_budget.size == search.chain_least_budget(instance)


def test_other_memories_are_out_of_scope() -> None:
    machine = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [{"source": "device", "target": "host"}, {"source": "host", "target": "device"}],
    }
    instance = draw_chain(1, 4) | {"machine": machine}
    low = whole_range(draw_chain(1, 4))[0]
    for name in ("chain-exact", "chain-best"):
        result = remat.solve(instance, algorithm=name, budget=low)
        assert result.optimal_within == "sequential schedules in one memory"


# --- chain-best -------------------------------------------------------------------------------------------------------


def test_chain_best_beats_rotor_on_a_real_network() -> None:
    instance = remat.example("chains/resnet50_b32_224")
    low, high = whole_range(instance)
    budget = (low + high) // 2
    best = remat.solve(instance, algorithm="chain-best", budget=budget, options={"iterations": 500, "work": 0})
    assert best.makespan is not None
    assert best.makespan < makespan(instance, "rotor", budget) * 0.999
    assert best.lower_bound > best.no_recompute_time


def test_the_walk_finds_what_the_table_misses() -> None:
    instance = remat.example("chains/random_l30")
    low, high = whole_range(instance)
    budget = low + (high - low) * 5 // 100
    floats = makespan(instance, "rotor-float", budget, certificate=False)
    walks = [
        remat.solve(instance, algorithm="chain-best", budget=budget, seed=1, options={"iterations": 3000, "work": 0})
        for _ in range(2)
    ]
    assert walks[0].makespan < floats
    assert [step.task for step in walks[0].steps] == [step.task for step in walks[1].steps]


def test_seeds_and_iterations_decide() -> None:
    instance = draw_chain(5, 11)
    low, high = whole_range(instance)
    budget = low + (high - low) // 20
    found = [makespan(instance, "chain-best", budget, iterations=iterations) for iterations in (0, 300, 1000)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(found))


def test_chain_best_refuses_as_rotor_float_does() -> None:
    instance = remat.example("gpt2s")
    for budget in (2**30, 3523660799):
        refused = remat.solve(instance, algorithm="chain-best", budget=budget)
        floating = remat.solve(instance, algorithm="rotor-float", budget=budget)
        assert refused.scope is not None
        assert refused.termination == "completed"
        assert all("algorithm auto tries others" in note for note in refused.notes)
        assert refused.scope == floating.scope == ("all schedules" if budget == 2**30 else FLOATING)
        assert refused.least_budget == floating.least_budget
        assert refused.least_budget is not None
        assert refused.least_budget.sufficient
    named = refused.least_budget
    assert refused.graph.tasks[named.task or 0] == "B14"
    found = remat.solve(instance, algorithm="chain-best", budget=named.size, options={"iterations": 0, "states": 0})
    assert found.makespan is not None


def test_nothing_is_walked_where_everything_fits_or_the_chain_is_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    # Importing it fails, also where another test has imported it before.
    monkeypatch.setitem(sys.modules, "remat_algorithms.chain.phase_matrix_kernel", None)
    monkeypatch.delattr("remat_algorithms.chain.phase_matrix_kernel", raising=False)
    whole = remat.solve(remat.example("chains/resnet101_b64_224"), algorithm="chain-best")
    assert whole.status is remat.Status.OPTIMAL
    assert whole.makespan == pytest.approx(whole.no_recompute_time, rel=1e-12)
    instance = draw_chain(1112, 12)
    low, high = whole_range(instance)
    assert remat.solve(instance, algorithm="chain-best", budget=(3 * low + high) // 4).makespan is not None
    with pytest.raises(AlgorithmError, match="phase_matrix_kernel"):
        remat.solve(
            instance, algorithm="chain-best", budget=(3 * low + high) // 4, options={"iterations": 1, "states": 0}
        )
