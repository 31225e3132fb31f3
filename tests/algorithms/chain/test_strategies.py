"""Strategies on chains and adjoints: peaks and recomputations worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

import remat

UNIT = {"time": "unit", "memory": "unit"}
LECTURE: dict[str, Any] = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": 6}
CHAIN: dict[str, Any] = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "units": UNIT,
    "input_size": 1,
    "stages": [{"forward_time": 1, "backward_time": 2, "output_size": 1, "saved_size": 1, "repeat": 9}],
}


@pytest.mark.parametrize(
    ("algorithm", "options", "peak", "recompute"),
    [
        ("store-all", {}, 6, 0),
        ("recompute-all", {}, 3, 10),
        ("fixed", {"checkpoints": "0,2"}, 4, 4),
        ("fixed", {"checkpoints": "x0,x2"}, 4, 4),
    ],
)
def test_strategies_have_the_costs_of_the_lecture(
    algorithm: str, options: dict[str, str], peak: int, recompute: int
) -> None:
    result = remat.solve(LECTURE, algorithm=algorithm, options=options)
    assert result.peak_memory == {"memory": peak}
    assert result.recompute_time == recompute
    assert remat.solve(LECTURE, algorithm=algorithm, options=options, budget=peak).report is not None
    answer = remat.solve(LECTURE, algorithm=algorithm, options=options, budget=peak - 1)
    assert answer.scope is not None
    assert answer.least_budget is not None
    assert answer.least_budget.size == peak


def runs(result: remat.Result) -> dict[str, int]:
    count: dict[str, int] = {}
    for step in result.steps:
        prefix = step.task.rstrip("0123456789")  # type: ignore[union-attr]
        count[prefix] = count.get(prefix, 0) + 1
    return count


def test_chain_strategies_run_what_they_say() -> None:
    assert runs(remat.solve(CHAIN, algorithm="store-all")) == {"Fe": 9, "loss": 1, "B": 9}
    assert runs(remat.solve(CHAIN, algorithm="recompute-all")) == {"F": 36, "Fe": 9, "loss": 1, "B": 9}
    # Three segments of three stages: the first two run forward without saving once.
    assert runs(remat.solve(CHAIN, algorithm="periodic")) == {"F": 6, "Fe": 9, "loss": 1, "B": 9}
    fixed = remat.solve(CHAIN, algorithm="fixed", options={"checkpoints": (3, 6)})
    assert fixed.columns is not None
    periodic = remat.solve(CHAIN, algorithm="periodic", options={"segments": 3})
    assert periodic.columns is not None
    assert fixed.columns.runs.tolist() == periodic.columns.runs.tolist()


def test_periodic_with_one_segment_is_store_all() -> None:
    one = remat.solve(CHAIN, algorithm="periodic", options={"segments": 1})
    whole = remat.solve(CHAIN, algorithm="store-all")
    assert one.makespan == whole.makespan
    assert one.peak_memory == whole.peak_memory


@pytest.mark.parametrize(
    ("document", "algorithm", "options"),
    [
        (CHAIN, "fixed", {"checkpoints": "9"}),
        (CHAIN, "fixed", {"checkpoints": "-1"}),
        (CHAIN, "fixed", {"checkpoints": "one"}),
        (LECTURE, "fixed", {"checkpoints": "6"}),
        (CHAIN, "periodic", {"segments": 10}),
        (CHAIN, "periodic", {"segments": 0}),
    ],
)
def test_bad_options_are_refused(document: dict[str, Any], algorithm: str, options: dict[str, Any]) -> None:
    with pytest.raises(remat.OptionError, match="option"):
        remat.solve(document, algorithm=algorithm, options=options)


@pytest.mark.parametrize("initial", ["live", "ram"])
def test_with_storage_the_copies_are_paid(initial: str) -> None:
    level = {"name": "ram", "slots": 5, "write_time": 2, "read_time": 1}
    document = LECTURE | {"storage": [level], "initial_state": initial}
    given = initial == "ram"
    expected = {"store-all": (5 - given, 5, 0), "recompute-all": (1 - given, 5, 10), "fixed": (2 - given, 5, 4)}
    for algorithm, (writes, reads, recompute) in expected.items():
        options = {"checkpoints": "0,2"} if algorithm == "fixed" else {}
        result = remat.solve(document, algorithm=algorithm, options=options)
        assert result.recompute_time == recompute
        assert result.makespan == 5 + 6 + recompute + 2 * writes + reads
        assert result.report is not None
        # Nothing is left in storage at the end.
        assert result.report.profiles["ram"].size[-1] == 0


def test_storage_without_a_way_back_changes_nothing() -> None:
    """No value can use an unreachable memory."""
    machine = {
        "memories": [{"name": "a"}, {"name": "b"}],
        "processors": [{"name": "p", "memory": "a"}],
    }
    for algorithm in ("store-all", "revolve"):
        found = remat.solve(LECTURE, algorithm=algorithm, machine=machine)
        assert found.makespan == remat.solve(LECTURE, algorithm=algorithm).makespan
        assert found.peak_memory["b"] == 0


def test_strategies_solve_a_loop_of_one_step() -> None:
    for extra in ({}, {"storage": [{"name": "ram", "slots": 1}]}, {"tape_size": 2}):
        for algorithm in ("store-all", "recompute-all", "fixed", "revolve"):
            result = remat.solve(LECTURE | {"steps": 1} | extra, algorithm=algorithm)
            assert result.report is not None
            assert result.recompute_time == 0


def test_schedules_too_long_to_build_are_refused() -> None:
    for algorithm in ("recompute-all", "revolve"):
        with pytest.raises(remat.OptionError, match="steps here; at most"):
            remat.solve(LECTURE | {"steps": 100_000}, algorithm=algorithm, budget=3)
    with pytest.raises(remat.OptionError, match="steps here; at most"):
        remat.solve(CHAIN | {"stages": [CHAIN["stages"][0] | {"repeat": 100_000}]}, algorithm="recompute-all")
