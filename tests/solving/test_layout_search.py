"""`remat.solve(..., layout=True)`: schedules whose addresses fit the budget, and what that costs."""

import random
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import remat
from remat.errors import OptionError
from remat.plugin import context
from remat.plugin.proposal import Status, Termination
from remat.solving import layout_search


def drawn(seed):
    """Return a task graph of 15 to 30 tasks, whose outputs have 1 to 20 bytes."""
    draw = random.Random(seed)
    count = draw.randint(15, 30)
    tasks, values = [], []
    for k in range(count):
        reads = [f"v{j}" for j in range(k) if draw.random() < 2.5 / max(k, 1)]
        tasks.append({"id": f"t{k}", "time": draw.randint(1, 5), "reads": reads, "writes": [f"v{k}"]})
        values.append({"id": f"v{k}", "size": draw.randint(1, 20)})
    used = {value for task in tasks for value in task["reads"]}
    for k, task in enumerate(tasks):
        if f"v{k}" not in used:
            task["required"] = True
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values}


# The fastest schedule of each fits its budget in bytes, and has no layout that does: seed, budget, makespan.
FREE, DEAR = (6, 87, 64), (19, 52, 55)


def solved(case, **more):
    seed, budget, _ = case
    return remat.solve(drawn(seed), budget=budget, algorithm="dag-exact", layout=True, **more)


@pytest.mark.parametrize("case", [FREE, DEAR])
def test_the_first_layout_does_not_fit(case):
    seed, budget, makespan = case
    first = remat.solve(drawn(seed), budget=budget, algorithm="dag-exact")
    assert first.makespan == makespan
    assert first.peak_memory["memory"] <= budget
    assert remat.layout(first, capacity=budget).infeasible_within == "this schedule"


def check(result, case):
    seed, budget, makespan = case
    assert result.addresses is not None
    report = remat.verify(drawn(seed), result.to_dict())
    assert report.ok
    assert report.arenas["memory"] <= budget
    assert result.lower_bound == makespan
    return result.makespan


def test_another_order_costs_nothing():
    result = solved(FREE)
    assert check(result, FREE) == FREE[2]
    assert result.status is Status.OPTIMAL
    assert "the addresses cost no time: no faster schedule was found without them" in result.notes


def test_the_price_of_addresses_is_told(monkeypatch):
    monkeypatch.setattr(layout_search, "MOST_CHANGES", 50)
    result = solved(DEAR)
    assert check(result, DEAR) == 56
    assert result.status is Status.FEASIBLE
    assert any(note.startswith("the addresses cost 1 s (1.82 %): without them a") for note in result.notes)


def test_a_rerun_where_no_smaller_budget_does(monkeypatch):
    monkeypatch.setattr(layout_search, "MOST_BUDGETS", 0)
    monkeypatch.setattr(layout_search, "MOST_CHANGES", 200)
    assert check(solved(DEAR), DEAR) > DEAR[2]


def test_no_schedule_with_a_layout(monkeypatch):
    for name in ("MOST_BUDGETS", "MOST_CHANGES", "MOST_INCUMBENTS"):
        monkeypatch.setattr(layout_search, name, 0)
    result = solved(FREE)
    assert (result.status, result.scope) == (Status.UNKNOWN, "the schedule that was laid out")
    assert result.lower_bound == FREE[2]
    assert any(note.startswith("a schedule with a peak of 87 B in memory was found, in 64 s;") for note in result.notes)


def test_a_budget_below_every_schedule_is_infeasible():
    result = remat.solve(drawn(6), budget=10, algorithm="dag-exact", layout=True)
    assert (result.status, result.scope) == (Status.INFEASIBLE, "all schedules")


def test_a_chain_and_an_unbounded_memory():
    stage = {"forward_time": 1, "backward_time": 2, "output_size": 4, "saved_size": 9, "forward_workspace": 3}
    chain = {"schema": "remat.instance/1", "kind": "chain", "input_size": 4, "stages": [stage] * 6}
    for budget in (60, None):
        result = remat.solve(chain, budget=budget, algorithm="rotor", layout=True)
        assert remat.verify(chain, result.to_dict()).arenas == result.peak_memory


def test_every_memory_with_a_budget_is_laid_out():
    links = [{"source": one, "target": other, "bandwidth": 8} for one, other in (("gpu", "host"), ("host", "gpu"))]
    machine = {
        "memories": [{"name": "gpu"}, {"name": "host"}],
        "processors": [{"name": "p", "memory": "gpu"}],
        "links": links,
    }
    instance = drawn(3) | {"machine": machine}
    budget = {"gpu": "80%", "host": "500B"}
    result = remat.solve(instance, budget=budget, algorithm="dag-offload-best", layout=True, time_limit=3)
    report = remat.verify(instance, result.to_dict())
    assert report.ok
    assert set(report.arenas) == {"gpu", "host"}


def test_streams_have_no_addresses():
    with pytest.raises(OptionError, match="layout: a schedule that repeats itself without end has no addresses"):
        remat.solve(drawn(3) | {"schema": "remat.instance/3", "stream": 4}, layout=True)


def test_whoever_listens_can_end_the_search():
    heard = []
    result = solved(FREE, progress=lambda progress: heard.append(progress) or len(heard) < 2)
    assert len(heard) == 2
    assert result.addresses is None
    assert (result.status, result.termination) == (Status.UNKNOWN, Termination.INTERRUPTED)


def test_the_default_time_limit_is_that_of_the_whole_search():
    assert [remat.solve(drawn(3), layout=layout).default_limit for layout in (False, True)] == [60, 60]


def test_smaller_budgets_leave_time_for_changes(monkeypatch):
    clock = SimpleNamespace(now=time.monotonic())
    monkeypatch.setattr(context, "time", SimpleNamespace(monotonic=lambda: clock.now))
    for name, value in (("FEW_CHANGES", 0.0), ("MOST_CHANGES", 200)):
        monkeypatch.setattr(layout_search, name, value)
    search = layout_search._Search
    solve, change, left, smaller = search._solved, search._changed, [], []

    def slow(self, problem, inner):
        result = solve(self, problem, inner)
        if problem is self.problem:
            return result
        smaller.append(inner.seconds_left)
        clock.now += inner.seconds_left
        return replace(result, columns=None)

    def noted(self, first, **more):
        left.append(self.context.seconds_left)
        return change(self, first, **more)

    monkeypatch.setattr(search, "_solved", slow)
    monkeypatch.setattr(search, "_changed", noted)
    assert check(solved(DEAR, time_limit=100), DEAR) > DEAR[2]
    assert len(smaller) > 3
    assert left[-1] >= 50
