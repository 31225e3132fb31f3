"""Revolve against its closed form, exhaustive search and reference values."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import remat
from remat.plugin.emit import MOST_RUNS
from remat.solving.problem_setup import make_problem
from remat_algorithms.adjoint import revolve_operations
from remat_algorithms.adjoint.binomial.revolve import plan_revolve
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve_operations import Blocks, Splits
from remat_algorithms.adjoint.slots import Slots
from remat_algorithms.kit.binomial import advances
from tests import places

REFERENCE = json.loads((places.REFERENCE / "adjoint.json").read_text())["points"]
UNIT = {"time": "unit", "memory": "unit"}


def loop(steps: int, slots: int | None = None, **level: Any) -> dict[str, Any]:
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps}
    if slots is not None:
        document["storage"] = [{"name": "ram", "slots": slots, **level}]
    return document


@pytest.mark.parametrize("point", REFERENCE["revolve"], ids=lambda p: f"{p['n']}-{p['snapshots']}")
def test_advances_equal_published_values(point: dict[str, Any]) -> None:
    n, slots = point["n"], point["snapshots"]
    assert advances(n, slots) == point["advances"]
    if n > 10_000:
        return
    stored = remat.solve(loop(n, slots), algorithm="revolve")
    assert stored.makespan == point["advances"] + n
    assert stored.peak_memory["ram"] <= slots
    assert stored.report is not None
    assert stored.report.profiles["ram"].size[-1] == 0
    shared = remat.solve(loop(n), algorithm="revolve", budget=slots + 2)
    assert shared.makespan == point["advances"] + n
    assert shared.peak_memory["memory"] <= slots + 2


def test_plans_take_as_many_advances_as_the_closed_form_says() -> None:
    for n in range(1, 80):
        for slots in range(1, 12):
            plan = plan_revolve(n, slots, 1)
            assert plan.advances == advances(n, slots)
            assert plan.writes.get(1, 0) <= n
            # One read for each backward but the first to run.
            assert plan.reads.get(1, 0) <= n * n


def test_checkpoint_costs_and_sizes_in_bytes() -> None:
    document = loop(20) | {
        "units": {"time": "s", "memory": "B"},
        "state_size": "1GiB",
        "forward_time": 2,
        "storage": [{"name": "disk", "capacity": "3.5GiB", "bandwidth": "1GiB/s"}],
    }
    result = remat.solve(document, algorithm="revolve")
    plan = plan_revolve(20, 3, 1)
    copies = plan.writes[1] + plan.reads[1]
    assert result.makespan == 2 * advances(20, 3) + 20 + copies
    assert result.peak_memory == {"working": 2**31, "disk": 3 * 2**30}
    assert result.optimal_within is None


def test_asynchronous_storage_overlaps() -> None:
    slow = remat.solve(loop(30, 4, write_time=1, read_time=1), algorithm="revolve")
    overlapped = remat.solve(loop(30, 4, write_time=1, read_time=1, channel="dma"), algorithm="revolve")
    assert overlapped.makespan is not None
    assert slow.makespan is not None
    assert overlapped.makespan <= slow.makespan


def test_no_slot_is_infeasible_and_names_the_least_budget() -> None:
    answer = remat.solve(loop(5, 0), algorithm="revolve")
    assert answer.scope is not None
    assert answer.least_budget is not None
    assert answer.least_budget.size == 1
    assert remat.solve(loop(5, 0), algorithm="revolve", budget=1).report is not None
    answer = remat.solve(loop(5), algorithm="revolve", budget=2)
    assert answer.least_budget is not None
    assert answer.least_budget.size == 3


@pytest.mark.parametrize("name", ["revolve", "bptt-hsm", "online-revolve", "treeverse", "multistage", "h-revolve"])
@pytest.mark.parametrize("storage", [True, False])
def test_a_least_budget_whose_schedule_is_too_long_is_only_a_bound(name: str, storage: bool) -> None:
    document = loop(20_000, 0) | {"state_size": 10}
    if not storage:
        del document["storage"]
    answer = remat.solve(document, algorithm=name, budget=5)
    assert answer.scope is not None
    assert answer.least_budget is not None
    assert not answer.least_budget.sufficient
    (note,) = (note for note in answer.notes if "200,010,000 runs" in note)
    assert answer.least_budget.size == (10 if storage else 30)
    with pytest.raises(remat.OptionError, match=r"200,0\d\d,\d\d\d steps"):
        remat.solve(document, algorithm=name, budget=answer.least_budget.size)
    if name == "revolve":
        enough = note.rsplit("=", 1)[1]
        problem = make_problem(remat.load(document), budget=enough)
        slots = Slots.of(problem).count
        assert advances(20_000, slots) + 20_000 <= MOST_RUNS < advances(20_000, slots - 1) + 20_000


def test_more_slots_than_steps() -> None:
    result = remat.solve(loop(5, 50), algorithm="revolve")
    assert result.recompute_time == 0


def test_x0_in_storage_is_not_written() -> None:
    for n in (1, 2, 7):
        live = remat.solve(loop(n, 3, write_time=5), algorithm="revolve")
        given = remat.solve(loop(n, 3, write_time=5) | {"initial_state": "ram"}, algorithm="revolve")
        assert live.makespan is not None
        assert given.makespan == live.makespan - (5 if n > 1 else 0)


def test_unequal_steps_are_refused() -> None:
    steps = [{"forward_time": 1}, {"forward_time": 2}, {"forward_time": 1}]
    with pytest.raises(remat.OptionError, match="equal"):
        remat.solve(loop(3) | {"steps": steps}, algorithm="revolve")


def test_tapes_are_remade_right_before_each_backward() -> None:
    document = loop(6, 3) | {"tape_size": 2}
    result = remat.solve(document, algorithm="revolve")
    assert result.report is not None
    assert result.makespan == advances(6, 3) + 6 + 6
    shared = remat.solve(loop(6) | {"tape_size": 2}, algorithm="revolve", budget=3 + 1 + 1 + 2)
    assert shared.makespan == advances(6, 3) + 6 + 6


def test_an_empty_advance_is_no_operation() -> None:
    plan = Plan()
    plan.advance(3, 3)
    assert len(plan) == 0


def test_schedules_with_other_slots_share_their_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operations do not depend on the cache of earlier schedules."""
    for most in (1_000_000, 50):
        monkeypatch.setattr(revolve_operations, "MOST_KEPT", most)
        shared = Blocks(1, Splits(600))
        for slots in (3, 40, 7, 1, 12):
            alone = plan_revolve(600, slots, 1).entries
            assert np.array_equal(plan_revolve(600, slots, 1, blocks=shared).entries, alone)
        kept = sum(len(block) for block, _ in shared._known.values())
        assert kept <= max(most, max(len(block) for block, _ in shared._known.values()))
