"""poet's minimum energy: by hand, against exhaustive search, and within the program of larger graphs."""

import random

import pytest

import remat
from remat.errors import OptionError
from remat.instance import load
from remat.solving.problem_setup import make_problem
from remat_algorithms.offload.poet import energy_search
from remat_algorithms.offload.poet.energy_costs import EnergyCosts
from tests.oracles.energies import energy_of, least_energy
from tests.oracles.offloading import least_makespan

LINKS = [
    {"source": "ram", "target": "flash", "bandwidth": 2, "energy": 1.5},
    {"source": "flash", "target": "ram", "bandwidth": 2, "energy": 0.5},
]
MACHINE = {
    "memories": [{"name": "ram"}, {"name": "flash"}],
    "processors": [{"name": "cpu", "memory": "ram"}],
    "links": LINKS,
}
TASKS = [
    {"id": "a", "time": 1, "energy": 20, "size": 4},
    {"id": "b", "time": 2, "energy": 5, "reads": ["a"], "size": 4},
    {"id": "c", "time": 2, "energy": 5, "reads": ["b"], "size": 4},
    {"id": "d", "time": 1, "energy": 5, "reads": ["a", "c"], "size": 1},
]
UNITS = {"time": "unit", "memory": "unit"}
EXAMPLE = {"schema": "remat.instance/3", "kind": "dag", "units": UNITS, "machine": MACHINE, "tasks": TASKS}


def solve(document, budget=None, **options):
    memory = document["machine"]["memories"][0]["name"]
    budget = None if budget is None else {memory: budget}
    return remat.solve(document, algorithm="poet", budget=budget, options={"objective": "energy"} | options)


def test_paging_costs_energy_and_time_as_by_hand():
    """A run of `a` costs 20. Paging costs 4 (1.5 + 0.5) = 8, and 2 + 2 of time, of which only the page-out is
    hidden."""
    result = solve(EXAMPLE, 9)
    assert (result.energy, result.makespan) == (43, 8)
    starts = [(step.get("run") or step.get("copy"), step["start"]) for step in result.to_dict()["steps"]]
    timeline = [(name, start) for name, start in starts if name]
    assert sorted(timeline, key=lambda pair: pair[::-1]) == [("a", 0), ("a", 1), ("b", 1), ("c", 3), ("a", 5), ("d", 7)]
    assert result.notes == ("energy 43: the least of whole-value offloading with recomputation",)


def test_a_deadline_by_hand():
    """By 7, `a` must be recomputed: 20 instead of 8. No schedule ends by 6."""
    result = solve(EXAMPLE, 9, deadline=7)
    assert (result.energy, result.makespan) == (55, 7)
    assert result.notes == ("energy 55: the least of whole-value offloading with recomputation, by 7",)
    assert solve(EXAMPLE, 9, deadline=8.5).energy == 43
    late = solve(EXAMPLE, 9, deadline=6.5)
    assert late.makespan is None
    assert late.scope == "whole-value offloading with recomputation, by 6.5"
    assert solve(EXAMPLE, 8).status == "infeasible"


def test_without_a_budget_nothing_runs_again():
    assert (solve(EXAMPLE).energy, solve(EXAMPLE).makespan) == (35, 6)


def test_bad_options_are_refused():
    with pytest.raises(OptionError, match="a deadline is for objective=energy"):
        remat.solve(EXAMPLE, algorithm="poet", options={"deadline": 3})
    plain = EXAMPLE | {
        "tasks": [{key: value for key, value in task.items() if key != "energy"} for task in TASKS],
        "machine": MACHINE | {"links": []},
    }
    with pytest.raises(OptionError, match="no task and no link of the instance has an energy"):
        solve(plain)
    for wrong in (-1, float("nan"), 1e301, "soon"):
        with pytest.raises(OptionError, match="deadline"):
            solve(EXAMPLE, 9, deadline=wrong)


def drawn(seed):
    """Draw a graph of four to six tasks with energies on two memories: any one, or two or three layers and back."""
    chance = random.Random(seed)
    layered = chance.random() < 0.7
    count = chance.choice([4, 6]) if layered else 5
    tasks, names = [], []
    for number in range(count):
        reads = sorted({chance.choice(names) for _ in range(chance.randint(1, 2))}) if names else []
        if layered:
            reads = sorted({names[number - 1], names[min(number - 1, count - 1 - number)]}) if number else []
        task = {"id": f"t{number}", "time": chance.randint(0, 3), "reads": reads, "size": chance.randint(1, 4)}
        task["energy"] = chance.choice([chance.randint(1, 9), chance.randint(0, 9) / 4, {"big": chance.randint(1, 20)}])
        if chance.random() < 0.15:
            task["in_place"] = True
        if chance.random() < 0.15:
            task["recomputable"] = False
        elif chance.random() < 0.1 and number < count - 1:
            task["required"] = False
        if chance.random() < 0.2:
            task["workspace"] = chance.randint(1, 2)
        tasks.append(task)
        names.append(task["id"])
    # A value must be kept, paged or recomputed for late readers.
    tasks[-1]["reads"] = sorted({*tasks[-1]["reads"], "t0"})
    channels = chance.choice([(None, None), ("bus", "bus"), ("p", "p")])
    links = []
    for (source, target), channel in zip((("m", "n"), ("n", "m")), channels, strict=True):
        link = {"source": source, "target": target, "bandwidth": chance.choice([1, 2, 4])}
        link["energy"] = chance.choice([0.25, 0.5, 1, 3])
        links.append(link | ({} if channel is None else {"channel": channel}))
    machine = {
        "memories": [{"name": "m"}, {"name": "n"} | chance.choice([{}, {"capacity": chance.randint(2, 6)}])],
        "processors": [{"name": "p", "memory": "m", "type": "big"}],
        "links": links,
    }
    document = {"schema": "remat.instance/3", "kind": "dag", "units": UNITS, "machine": machine, "tasks": tasks}
    if chance.random() < 0.3:
        document["outputs"] = [chance.choice(names)]
    free = remat.solve(document, algorithm="keep-all")
    low, high = free.memory_bounds["m"].size, free.peak_memory["m"]
    budget = chance.choice([low, low, low + 1, (low + high) // 2])
    return document, budget, chance.choice([0, 0.5, 1])


def agrees(seed):
    """Compare poet with exhaustive search, without a deadline and with one.

    Return whether the least energy exceeds that of one run of each required task, and whether the deadline cost energy.
    """
    document, budget, slack = drawn(seed)
    quick = least_makespan(document, budget, recompute=True)
    free = least_energy(document, budget)
    found = solve(document, budget)
    assert (found.energy is None) == (free is None)
    if free is None:
        assert quick is None
        return False, False
    assert found.energy == pytest.approx(float(free), rel=1e-12, abs=1e-12)
    assert "the least of" in found.notes[0]
    deadline = float(quick) + slack
    best = least_energy(document, budget, deadline)
    timed = solve(document, budget, deadline=deadline)
    assert timed.report.ok
    assert timed.energy == pytest.approx(float(best), rel=1e-12, abs=1e-12)
    assert timed.energy == pytest.approx(float(energy_of(document, timed.to_dict()["steps"])), rel=1e-12, abs=1e-12)
    assert timed.makespan <= deadline + 1e-9
    if quick > 0:
        assert solve(document, budget, deadline=float(quick) * 0.99).makespan is None
    energies = [task["energy"] for task in document["tasks"] if task.get("required", True)]
    return free > sum(one["big"] if isinstance(one, dict) else one for one in energies), best > free


@pytest.mark.parametrize(
    "draws", [range(15), *(pytest.param(part, marks=pytest.mark.slow) for part in (range(50), range(50, 100)))], ids=len
)
def test_exhaustive_search_equals_poet_on_tiny_draws(draws):
    found = [agrees(number) for number in draws]
    # Energies beyond those of one run each, and deadlines that cost energy.
    assert sum(extra for extra, _ in found) >= 2 * len(draws) // 5
    assert sum(dearer for _, dearer in found) >= len(draws) // 25


def test_the_first_processor_counts():
    """Tasks run on the first processor, even where another one would need less energy."""
    machine = MACHINE | {
        "processors": [{"name": "cpu", "memory": "ram", "type": "a"}, {"name": "npu", "memory": "ram", "type": "b"}]
    }
    tasks = [task | {"energy": {"a": 2, "b": 1}} for task in TASKS]
    result = solve(EXAMPLE | {"tasks": tasks, "machine": machine}, 12)
    assert result.energy == 8
    assert result.notes == ("energy 8: the least of whole-value offloading with recomputation, on the first processor",)


def test_the_program_of_larger_graphs(monkeypatch):
    """If the search stops, the program decides: never better than the minimum energy, and often equal."""
    monkeypatch.setattr("remat_algorithms.offload.poet.energy_search.MOST_STATES", 0)
    equal = 0
    for seed in range(8):
        document, budget, slack = drawn(seed)
        deadline = 2 * float(least_makespan(document, budget, recompute=True) or 0) + slack
        least = least_energy(document, budget, deadline)
        found = solve(document, budget, deadline=deadline)
        if found.energy is None or least is None:
            assert least is None or found.scope is None or "by" in found.scope
            continue
        assert found.energy >= float(least) - 1e-9
        assert found.makespan <= deadline + 1e-9
        assert "not proved to be the least" in found.notes[0]
        equal += found.energy == pytest.approx(float(least))
    assert equal >= 4


def test_a_stop_ends_the_search_at_once():
    looks = []
    problem = make_problem(load(EXAMPLE), budget={"ram": 9})
    found = energy_search.least_energy(
        problem, EnergyCosts.of(problem), None, lambda: len(looks) == 3 or looks.append(0)
    )
    assert (found.steps, found.proved) == (None, False)


@pytest.mark.parametrize(("deadline", "ends"), [(6.5, False), (7, True), (2.0**62, True), (1e300, True)])
def test_deadlines_of_the_program(monkeypatch, deadline, ends):
    """A schedule that the search finds but that ends after the deadline is not an answer."""
    monkeypatch.setattr("remat_algorithms.offload.poet.energy_search.MOST_STATES", 0)
    monkeypatch.setattr("remat_algorithms.offload.poet.poet.SMALL", 0)
    found = solve(EXAMPLE, 9, deadline=deadline, stages=2).makespan
    assert found is not None and found <= deadline if ends else found is None


@pytest.mark.slow
def test_a_graph_beyond_the_search():
    """A graph of 20 tasks: the fastest schedule pages, and recomputation needs less energy."""
    chance = random.Random(3)
    tasks = [{"id": f"f{k}", "time": 2, "energy": chance.randint(1, 9), "size": 4} for k in range(10)]
    for k in range(1, 10):
        tasks[k]["reads"] = [f"f{k - 1}"]
    for k in reversed(range(10)):
        reads = [f"f{k}"] if k == 9 else [f"f{k}", f"b{k + 1}"]
        tasks.append({"id": f"b{k}", "time": 3, "energy": 20, "size": 4, "reads": reads})
    document = EXAMPLE | {"tasks": tasks, "machine": MACHINE | {"links": [link | {"energy": 5} for link in LINKS]}}
    quick = remat.solve(document, algorithm="poet", budget={"ram": 24}, options={"work": 0.02})
    deadline = 1.3 * quick.makespan
    frugal = solve(document, 24, work=0.02, deadline=deadline)
    assert quick.report.transferred["ram->flash"] > 0
    assert frugal.makespan <= deadline
    assert frugal.energy < quick.energy
