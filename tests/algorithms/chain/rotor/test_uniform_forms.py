"""Compare rotor on chains of every form with all persistent schedules and with an independent recursion."""

from __future__ import annotations

import random
from typing import Any

import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain import minimum_memory
from remat_algorithms.chain.minimum_memory import LeastMemory
from remat_algorithms.chain.rotor import search
from remat_algorithms.chain.segments import PERSISTENT, Segments
from tests.oracles.persistent import Recursion, trade_offs
from tests.seeds import seeds

Document = dict[str, Any]
READS = ("input", "output", "saved")


def draw_chain(seed: int, most: int = 5) -> Document:
    """Draw a chain with variants, unread values, tasks in place; zeros, huge workspaces and equal stages among them."""
    rng = random.Random(seed)
    largest = rng.choice([1, 3, 9])
    times = rng.choice([0, 1, 9])

    def size() -> int:
        return rng.choice([0, rng.randint(0, largest), rng.randint(1, largest)])

    def reads() -> list[str]:
        return [key for key in READS if rng.random() < 0.6]

    def some(chance: float, **draws: Any) -> Document:
        return {key: draw() for key, draw in draws.items() if rng.random() < chance}

    def huge() -> int:
        return rng.choice([size(), size(), 5 * largest])

    odd_reads = rng.choice([0, 0, 0.4])
    variants = rng.choice([0, 0.3, 0.7])

    def variant() -> Document:
        figures = some(0.6, saved_size=size, backward_time=lambda: rng.randint(0, 2 * times))
        figures |= some(0.2, saving_forward_time=lambda: rng.randint(0, times), backward_reads=reads)
        return figures | some(0.2, saving_workspace=huge, backward_workspace=huge)

    def stage() -> Document:
        drawn = {
            "forward_time": rng.randint(0, times),
            "backward_time": rng.randint(0, 2 * times),
            "output_size": size(),
            "saved_size": size(),
        }
        drawn |= some(0.3, forward_workspace=huge, saving_workspace=huge, backward_workspace=huge, gradient_size=size)
        drawn |= some(0.3, saving_forward_time=lambda: rng.randint(0, times))
        drawn |= some(odd_reads, backward_reads=reads)
        return drawn | some(variants, variants=lambda: [variant() for _ in range(rng.randint(1, 3))])

    count = rng.randint(1, most)
    stages = [stage() | {"repeat": count}] if rng.random() < 0.2 else [stage() for _ in range(count)]
    return {
        "schema": "remat.instance/1",
        "kind": "chain",
        "units": {"time": "unit", "memory": "unit"},
        "input_size": size(),
        "static_memory": rng.choice([0, 3]),
        "loss": {"time": rng.randint(0, times), "workspace": size()},
        "input_gradient": rng.random() < 0.8,
        "in_place": rng.random() < 0.25,
        "stages": stages,
    }


def check_against_recursion(seed: int, budgets: int) -> None:
    document = draw_chain(seed)
    recursion = Recursion(document)
    whole = remat.solve(document, algorithm="rotor")
    assert whole.recompute_time == 0 or whole.makespan == recursion.least_time(10**9)
    refused = remat.solve(document, algorithm="rotor", budget=0).least_budget
    least = 0 if refused is None else refused.size
    most = whole.peak_memory["memory"]
    rng = random.Random(seed)
    chosen = {least - 1, least, most - 1, most} | {rng.randint(least, max(least, most)) for _ in range(budgets)}
    for budget in chosen:
        if budget < 0:
            continue
        result = remat.solve(document, algorithm="rotor", budget=budget)
        expected = recursion.least_time(budget)
        assert result.makespan == expected, (seed, budget)
        if expected is None:
            assert result.scope is not None
            assert result.least_budget is not None
            if result.scope == PERSISTENT:
                assert result.least_budget.size == least
        else:
            assert result.optimal_within in (PERSISTENT, "all schedules")


@pytest.mark.parametrize("seed", seeds(20, 150))
def test_rotor_is_the_recursion(seed: int) -> None:
    check_against_recursion(seed, 2)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
def test_rotor_is_the_recursion_on_2000_chains(chunk: int) -> None:
    for seed in range(1000 + 100 * chunk, 1100 + 100 * chunk):
        check_against_recursion(seed, 4)


def check_against_all(seed: int) -> None:
    document = draw_chain(seed, most=3)
    recursion = Recursion(document)
    front = trade_offs(document)
    least, most = min(front), max(front)
    for budget in range(max(0, least - 1), most + 2):
        fitting = [time for peak, time in front.items() if peak <= budget]
        assert recursion.least_time(budget) == (min(fitting) if fitting else None), (seed, budget)


@pytest.mark.parametrize("seed", seeds(30, 60))
def test_the_recursion_is_all_persistent_schedules(seed: int) -> None:
    check_against_all(seed)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
def test_the_recursion_is_all_persistent_schedules_of_many_chains(chunk: int) -> None:
    for seed in range(5000 + 50 * chunk, 5050 + 50 * chunk):
        check_against_all(seed)


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_the_kernels_equal_their_twins(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Minimum memory, compiled and interpreted, on chains of every form."""
    compare_kernels(Segments.of(make_problem(remat.load(draw_chain(seed, most=9))).chain), monkeypatch)


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_the_kernels_equal_their_twins_to_the_last_digit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With times of which dozens make a nanosecond, all of them sums of powers of two: no tolerance is in either."""
    document = draw_chain(seed, most=9)
    for stage in document["stages"]:
        for owner in (stage, *stage.get("variants", ())):
            owner |= {key: time * 2.0**-36 for key, time in owner.items() if key.endswith("_time")}
    compare_kernels(Segments.of(make_problem(remat.load(document)).chain), monkeypatch)


def compare_kernels(segments: Segments, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = []
    for compiled_from in (-1, 10**9):
        monkeypatch.setattr(minimum_memory, "COMPILED_FROM", compiled_from)
        least = LeastMemory.of(segments)
        pairs.append([least.need.tolist(), least.time.tolist()])
    assert pairs[0] == pairs[1]


OF_EQUAL_STAGES = [["output"], [], *(pytest.param([one], marks=pytest.mark.slow) for one in ("saved", "input"))]


@pytest.mark.parametrize("reads", OF_EQUAL_STAGES)
@pytest.mark.parametrize("in_place", [False, True])
def test_a_long_chain_of_equal_stages(reads: list[str], in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a stage processed alone needs no forward, a split just before the next stage saves one."""
    stage = {"forward_time": 100, "backward_time": 1, "output_size": 1, "saved_size": 2, "backward_reads": reads}
    document: Document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "in_place": in_place}
    document |= {"stages": [stage | {"repeat": 40}], "units": {"time": "unit", "memory": "unit"}}
    least = remat.solve(document, algorithm="rotor", budget=0).least_budget
    assert least is not None
    for budget in (least.size, least.size + 20):
        answers = []
        for short in (0, 10**9):  # with a limit on the time, and without
            with monkeypatch.context() as patched:
                patched.setattr(search, "SHORT", short)
                patched.setattr(search, "FEW", 0)
                answers.append(remat.solve(document, algorithm="rotor", budget=budget))
        assert answers[0].makespan == answers[1].makespan
        assert all(answer.optimal_within in (PERSISTENT, "all schedules") for answer in answers)
