"""`adjoint-best` against exhaustive search, against every other algorithm for adjoints, and its parts alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.plugin.context import Context, Progress
from remat.plugin.problem import Problem
from remat.schedule.document import Copy
from remat.solving.problem_setup import make_problem
from remat.testing import strategies
from remat_algorithms import catalogue
from remat_algorithms.joint.adjoint_best.block_table import BlockTable
from remat_algorithms.joint.adjoint_best.bound import lower_bound
from remat_algorithms.joint.adjoint_best.model import Model, cost, operations_of, steps_of
from remat_algorithms.joint.adjoint_best.persistent_table import LevelTable, stores, units_of
from remat_algorithms.joint.adjoint_best.search import Search
from remat_algorithms.joint.adjoint_best.window_search import Windows
from tests import places
from tests.oracles import levels, search
from tests.seeds import few, seeds

UNIT = {"time": "unit", "memory": "unit"}
OTHERS = [entry.name for entry in catalogue if entry.accepts("adjoint") and entry.name not in ("adjoint-best", "fixed")]
FIGURES = st.integers(0, 9)
LONGEST = {0: 7, 1: 7, 2: 6, 3: 5}


def draws(count: int) -> settings:
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )


@st.composite
def tiny(draw: st.DrawFn) -> tuple[dict[str, Any], int | None, tuple[Any, ...]]:
    """Draw unequal steps on up to three levels: the document, its budget, and what the search takes."""
    count = draw(st.integers(0, 3))
    n = draw(st.integers(2, LONGEST[count]))
    steps = draw(st.lists(st.tuples(FIGURES, FIGURES, st.integers(0, 6), st.integers(0, 6)), min_size=n, max_size=n))
    forward, backward, state, adjoint = (list(column) for column in zip(*steps, strict=True))
    level = st.tuples(st.integers(2, 14), st.integers(0, 4), st.integers(0, 4), st.sampled_from([None, 1, 2]))
    storage = draw(st.lists(level, min_size=count, max_size=count))
    low, high = max(state), sum(state) + max(adjoint)
    working = max(state) + max(adjoint) if count else draw(st.integers(low, high))
    where = draw(st.sampled_from([None, *range(count)]))
    document: dict[str, Any] = {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "units": UNIT,
        "steps": [
            {"forward_time": f, "backward_time": b, "state_size": x, "adjoint_size": y}
            for f, b, x, y in zip(forward, backward, state, adjoint, strict=True)
        ],
    }
    if count:
        document["storage"] = [
            {"name": f"level{k}", "capacity": size, "write_time": write, "read_time": read, "bandwidth": bandwidth}
            for k, (size, write, read, bandwidth) in enumerate(storage)
        ]
    if where is not None:
        document["initial_state"] = f"level{where}"
    return document, None if count else working, (forward[:-1], backward, state, adjoint, working, storage, where)


def loop(n: int, seed: int, *capacities: int, **more: Any) -> dict[str, Any]:
    """Return n unequal steps on levels that cost more and more."""
    rng = random.Random(seed)
    steps = [
        {"forward_time": rng.randint(1, 9), "backward_time": rng.randint(1, 9), "state_size": rng.randint(1, 6)}
        for _ in range(n)
    ]
    storage = [
        {"name": f"level{k}", "capacity": capacity, "write_time": k, "read_time": 2 * k}
        for k, capacity in enumerate(capacities)
    ]
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps} | more
    return document | ({"storage": storage} if storage else {})


# --- against exhaustive search ----------------------------------------------------------------------------------------


LITTLE = {"work": 0.001, "iterations": 20}
"""Constraint programs, and the walk that sends values to storage, find little here, and take most of each solve."""


def check_tiny(case: tuple[dict[str, Any], int | None, tuple[Any, ...]], **options: Any) -> None:
    document, budget, figures = case
    expected = levels.best_cost(*figures)
    result = remat.solve(document, algorithm="adjoint-best", budget=budget, options=options)
    assert result.makespan == (None if expected is None else pytest.approx(expected, rel=1e-12))
    if expected is None:
        assert result.scope is not None
        assert result.least_budget is not None
    else:
        assert result.lower_bound <= expected + 1e-9
        assert lower_bound(make_problem(remat.load(document), budget=budget), Context()) <= expected + 1e-9
        assert result.optimal_within


@draws(7)
@given(tiny())
def test_equals_exhaustive_search(case: tuple[dict[str, Any], int | None, tuple[Any, ...]]) -> None:
    check_tiny(case, **LITTLE)


@draws(2)
@given(tiny())
def test_equals_exhaustive_search_by_default(case: tuple[dict[str, Any], int | None, tuple[Any, ...]]) -> None:
    check_tiny(case)


@pytest.mark.slow
@draws(700)
@given(tiny())
def test_equals_exhaustive_search_thoroughly(case: tuple[dict[str, Any], int | None, tuple[Any, ...]]) -> None:
    check_tiny(case)


CLASSICAL = (
    st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=7),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=2),
)


@draws(6)
@given(*CLASSICAL)
def test_never_above_the_classical_model(times: list[tuple[int, int]], storage: list[tuple[int, int, int]]) -> None:
    check_classical(times, storage, **LITTLE)


@pytest.mark.slow
@draws(100)
@given(*CLASSICAL)
def test_never_above_the_classical_model_thoroughly(
    times: list[tuple[int, int]], storage: list[tuple[int, int, int]]
) -> None:
    check_classical(times, storage)


def check_classical(times: list[tuple[int, int]], storage: list[tuple[int, int, int]], **options: Any) -> None:
    """Compare with the classical model, whose working memory holds one buffer before the first adjoint."""
    forward, backward = [f for f, _ in times[:-1]], [b for _, b in times]
    document = loop(len(times), 0) | {
        "steps": [{"forward_time": f, "backward_time": b} for f, b in times],
        "storage": [
            {"name": f"level{k}", "slots": slots, "write_time": write, "read_time": read}
            for k, (slots, write, read) in enumerate(storage)
        ],
    }
    expected = search.adjoint_best_cost(forward, backward, storage)
    result = remat.solve(document, algorithm="adjoint-best", options=options)
    if expected is not None:
        assert result.makespan is not None
        assert result.makespan <= expected


def in_one_memory(longest: int) -> tuple[st.SearchStrategy[Any], ...]:
    step = st.tuples(FIGURES, FIGURES, st.integers(0, 4))
    return st.lists(step, min_size=1, max_size=longest), st.integers(0, 100)


@draws(10)
@given(*in_one_memory(5))
def test_one_memory_against_all_schedules(steps: list[tuple[int, int, int]], share: int) -> None:
    check_in_one_memory(steps, share)


@pytest.mark.slow
@draws(50)
@given(*in_one_memory(6))
def test_one_memory_against_all_schedules_thoroughly(steps: list[tuple[int, int, int]], share: int) -> None:
    check_in_one_memory(steps, share)


def check_in_one_memory(steps: list[tuple[int, int, int]], share: int) -> None:
    keys = ("forward_time", "backward_time", "state_size")
    document = loop(len(steps), 0, forward_time=1, backward_time=1, state_size=1, static_memory=3) | {
        "steps": [dict(zip(keys, step, strict=True)) for step in steps]
    }
    least = search.chain_least_budget(document)
    for budget in {least - 1, least, least + share % 8}:
        result = remat.solve(document, algorithm="adjoint-best", budget=budget)
        assert result.makespan == search.chain_best(document, budget)
        if result.makespan is None:
            assert result.status is remat.Status.INFEASIBLE
            assert result.scope == "all schedules"
            assert result.least_budget is not None
            assert result.least_budget.size == least


# --- against every other algorithm ------------------------------------------------------------------------------------


PATIENCE = 20
"""Seconds for each of the others: exact ones may take hours for their proof, and find what is good long before."""


def check_never_worse(document: dict[str, Any], budget: int | None) -> None:
    """Defaults are rarely worse than other algorithms; the comparison then grants a longer search."""
    options = LITTLE | {"iterations": 3, "moves": 3000, "window": 500}
    own = remat.solve(document, algorithm="adjoint-best", budget=budget, options=options)
    longer = False
    for name in OTHERS:
        try:
            other = remat.solve(document, algorithm=name, budget=budget, time_limit=PATIENCE)
        except remat.OptionError:
            continue
        if other.makespan is None:
            continue
        if not longer and (own.makespan is None or own.makespan > other.makespan * (1 + 1e-9)):
            own, longer = remat.solve(document, algorithm="adjoint-best", budget=budget, time_limit=3 * PATIENCE), True
        assert own.makespan is not None, name
        assert own.makespan <= other.makespan * (1 + 1e-9), name
        assert own.lower_bound <= other.makespan * (1 + 1e-9), name


@draws(3)
@given(strategies.adjoints(largest=12), st.sampled_from([None, 2, 4, 8, 20]))
def test_never_worse_than_any_other(document: dict[str, Any], budget: int | None) -> None:
    check_never_worse(document, budget)


@pytest.mark.slow
@draws(500)
@given(strategies.adjoints(largest=25), st.sampled_from([None, 2, 4, 8, 20]))
def test_never_worse_than_any_other_thoroughly(document: dict[str, Any], budget: int | None) -> None:
    check_never_worse(document, budget)


LARGE_AND_SMALL: list[dict[str, Any]] = [
    {},
    {"backward_time": 0},
    {"forward_time": 0, "state_size": 0},
    {"forward_time": 0, "backward_time": 0, "state_size": 0, "adjoint_size": 0},
    {"backward_time": 0},
    {"forward_time": 0},
    {"state_size": 5},
    {"backward_time": 0, "state_size": 4, "adjoint_size": 1},
    {"forward_time": 5, "backward_time": 3},
    {"forward_time": 6},
]


@pytest.mark.parametrize(
    ("tape_size", "storage"), [(None, False), (None, True), (3, False), pytest.param(3, True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("budget", few(13, 20))
def test_room_beside_small_states_is_used(storage: bool, tape_size: int | None, budget: int) -> None:
    """The working memory fits the largest state; next to small states it also holds other states and tapes."""
    levels = [
        {"name": "near", "write_time": 4},
        {"name": "disk", "slots": 0, "write_time": 5, "read_time": 4, "channel": "disk"},
    ]
    document = loop(1, 0) | {"steps": LARGE_AND_SMALL}
    document |= {"storage": levels} if storage else {}
    document |= {} if tape_size is None else {"tape_size": tape_size}
    few = LITTLE | {"iterations": 0, "moves": 0}
    own = remat.solve(document, algorithm="adjoint-best", budget=budget, options=few)
    for name in ("ap-sqrt", "feng-huang", "checkmate"):
        other = remat.solve(document, algorithm=name, budget=budget)
        if other.makespan is not None:
            assert own.makespan is not None, name
            assert own.makespan <= other.makespan, name


def test_equal_steps_and_their_tapes_share_one_memory() -> None:
    document = loop(1, 0, backward_time=0, tape_size=3) | {"steps": 6}
    own = remat.solve(document, algorithm="adjoint-best", budget=8)
    assert own.makespan == remat.solve(document, algorithm="checkmate", budget=8).makespan


@pytest.mark.parametrize("capacities", [(8,), (6, 15), pytest.param((6, 9, 30), marks=pytest.mark.slow)])
def test_better_than_slots_of_the_largest_state(capacities: tuple[int, ...]) -> None:
    document = loop(40, 3, *capacities)
    own = remat.solve(document, algorithm="adjoint-best", options={"iterations": 20})
    slots = remat.solve(document, algorithm="walther-griewank")
    assert own.makespan is not None
    assert slots.makespan is not None
    assert own.makespan < slots.makespan
    for level, capacity in zip(document["storage"], capacities, strict=True):
        assert own.peak_memory[level["name"]] <= capacity


EXAMPLES = sorted((places.INSTANCES / "adjoint").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_auto_is_never_worse_on_shipped_adjoints(example: Path) -> None:
    own = remat.solve(example)
    assert own.makespan is not None
    for name in (*OTHERS, "adjoint-best"):
        try:
            other = remat.solve(example, algorithm=name, time_limit=60)
        except remat.OptionError:
            continue
        assert other.makespan is None or own.makespan <= other.makespan * (1 + 1e-9), name


# --- its parts --------------------------------------------------------------------------------------------------------


def model_of(document: dict[str, Any], budget: int | None = None) -> tuple[Problem, Model]:
    problem = make_problem(remat.load(document), budget=budget)
    model = Model.of(problem)
    assert model is not None
    return problem, model


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 6))])
def test_tables_are_schedules_and_windows_better_ones(seed: int) -> None:
    capacities = ((), (9,), (6, 14))[seed % 3]
    problem, model = model_of(loop(18, seed, *capacities), None if capacities else 24)
    if capacities:
        places = stores(model)
        assert places
        table: LevelTable | BlockTable = LevelTable(model, places)
    else:
        table = BlockTable(model)
    assert table.possible
    assert table.fill(lambda: False)
    assert not table.fill(lambda: True)
    assert table.fill(lambda: False)
    operations = table.operations()
    assert operations is not None
    read = operations_of(model, problem, steps_of(problem, operations))
    assert read is not None
    assert cost(model, read) == cost(model, operations)
    windows = Windows(model, read, random.Random(seed), limit=2000)
    before = cost(model, read)
    for _ in range(30):
        better = windows.step(lambda: False)
        after = cost(model, windows.operations)
        assert after < before if better else after == before
        before = after
    report = remat.verify(remat.load(problem.instance), remat_schedule(problem, windows))
    assert report.ok
    assert report.makespan == before


def remat_schedule(problem: Problem, windows: Windows) -> dict[str, Any]:
    """Return the operations as a schedule document."""
    from remat.plugin.proposal import Proposal
    from remat.plugin.registry import find
    from remat.solving.conclusion import conclude

    proposal = Proposal(steps=steps_of(problem, windows.operations))
    result = conclude(problem, find("adjoint-best", "adjoint"), proposal, {})
    assert result.report is not None
    return result.to_dict()


def test_table_is_walther_griewank_on_one_level_of_equal_states() -> None:
    document = loop(30, 5, 4) | {"state_size": 1}
    document["steps"] = [{"forward_time": step["forward_time"]} for step in document["steps"]]
    document["storage"][0] |= {"write_time": 2, "read_time": 3}
    _, model = model_of(document)
    places = stores(model)
    assert places
    table = LevelTable(model, places)
    assert table.fill(lambda: False)
    operations = table.operations()
    assert operations is not None
    assert cost(model, operations) == remat.solve(document, algorithm="walther-griewank").makespan


def test_table_is_h_revolve_on_ordered_levels_of_equal_steps() -> None:
    document = loop(40, 5, 3, 4, 5) | {"steps": 40}
    _, model = model_of(document)
    places = stores(model)
    assert places
    table = LevelTable(model, places)
    assert table.fill(lambda: False)
    operations = table.operations()
    assert operations is not None
    assert cost(model, operations) == remat.solve(document, algorithm="h-revolve").makespan


def test_units_round_up_and_waste_little() -> None:
    assert units_of([4, 6, 8], 21, 100)[0] == 10
    count, units = units_of([1009, 2003, 4001], 10_000, 60)
    assert count <= 60
    for size, unit in zip([1009, 2003, 4001], units.tolist(), strict=True):
        assert unit * 10_000 >= size * count
    assert units_of([0, 0], 5, 3)[1].tolist() == [0, 0]


def test_search_without_a_schedule_or_time() -> None:
    _, model = model_of(loop(6, 1, 12))
    unlimited = Search(model, model.start)
    found = unlimited.run(limit=10**6)
    assert found is not None
    assert unlimited.ended
    proof = Search(model, model.start)
    assert proof.run(limit=10**6, below=found[0]) is None
    assert proof.ended
    short = Search(model, model.start)
    assert short.run(limit=3) is None
    assert not short.ended


# --- limits, and what the format can say ------------------------------------------------------------------------------


def test_iterations_decide_alone() -> None:
    document = loop(12, 2, 7)
    options = {"iterations": 4}
    first = remat.solve(document, algorithm="adjoint-best", options=options, seed=3)
    again = remat.solve(document, algorithm="adjoint-best", options=options, seed=3)
    assert first.to_dict()["steps"] == again.to_dict()["steps"]
    assert first.termination == "iteration limit"
    none = remat.solve(document, algorithm="adjoint-best", options={"iterations": 0})
    assert none.makespan is not None
    assert first.makespan is not None
    assert first.makespan <= none.makespan


def test_schedules_improve_until_the_limit() -> None:
    seen: list[Progress] = []
    document = loop(40, 2, 7, 12)
    hurried = remat.solve(document, algorithm="adjoint-best", time_limit=0)
    assert hurried.makespan is not None
    assert hurried.termination == "time limit"
    result = remat.solve(document, algorithm="adjoint-best", options={"iterations": 20}, progress=seen.append)
    assert result.makespan is not None
    assert result.makespan < hurried.makespan
    spans = [progress.makespan for progress in seen]
    assert spans == sorted(spans, reverse=True)  # type: ignore[type-var]
    assert spans[-1] == result.makespan


def test_tapes_overlap_and_other_machines() -> None:
    taped = remat.solve(loop(9, 1, 30, tape_size=2), algorithm="adjoint-best", options=LITTLE)
    assert taped.makespan is not None
    unequal = remat.solve(loop(12, 1, 9, tape_size=2), algorithm="adjoint-best", options={"iterations": 5})
    assert unequal.makespan is not None
    beside = loop(9, 1, 12)
    beside["storage"][0] |= {"channel": "dma", "write_time": 2}
    overlapped = remat.solve(beside, algorithm="adjoint-best", options=LITTLE)
    assert overlapped.makespan is not None
    assert "overlap" in overlapped.notes[0]
    few = {"iterations": 5}
    spare = remat.solve(loop(12, 1, 6), algorithm="adjoint-best", budget={"working": 30}, options=few)
    assert spare.makespan is not None
    assert spare.makespan <= remat.solve(loop(12, 1, 6), algorithm="adjoint-best", options=few).makespan  # type: ignore[operator]
    elsewhere = {
        "memories": [{"name": "host"}, {"name": "device"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [{"source": "host", "target": "device"}, {"source": "device", "target": "host"}],
    }
    assert remat.solve(loop(9, 1, machine=elsewhere), algorithm="adjoint-best", options=LITTLE).makespan is not None


def test_huge_figures_give_the_scaled_schedule() -> None:
    document = loop(8, 4, 9)
    for step in document["steps"]:
        step["forward_time"] *= 10**13
        step["state_size"] *= 10**12
    document["storage"][0]["capacity"] *= 10**12
    small = remat.solve(loop(8, 4, 9), algorithm="adjoint-best")
    large = remat.solve(document, algorithm="adjoint-best")
    assert isinstance(large.makespan, int)
    assert small.makespan is not None
    assert large.makespan // 10**13 == (small.makespan - sum(step["backward_time"] for step in document["steps"]))


def test_steps_on_a_coarse_scale_start_as_early_as_may_be() -> None:
    """Sizes over one bandwidth make the program's unit of time far longer than all runs together."""
    ways = [("device", "host", None), ("host", "device", 1), ("device", "disk", None), ("disk", "device", None)]
    links = [{"source": source, "target": target, "bandwidth": bandwidth} for source, target, bandwidth in ways]
    links[0]["channel"] = links[1]["channel"] = "gpu"
    machine = {"memories": [{"name": name} for name in ("device", "host", "disk")], "links": links}
    machine["processors"] = [{"name": "gpu", "memory": "device"}]
    document = {"schema": "remat.instance/2", "kind": "adjoint", "steps": 2, "forward_time": 14, "backward_time": 14}
    document |= {"state_size": 5 * 2**50 + 13, "tape_size": 2**52 + 13, "tape_time": 42, "machine": machine}
    result = remat.solve(document, algorithm="adjoint-best", budget=10_292_314_271_314_623)
    assert result.makespan == 112
    assert result.optimal_within == "all schedules"


def test_an_idle_channel_costs_nothing() -> None:
    """An asynchronous level without slots makes no schedule slower."""
    level = {"name": "ram", "bandwidth": 1}
    document = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 4, "backward_time": 0, "storage": [level]}
    alone = remat.solve(document, algorithm="adjoint-best", budget=8)
    document["storage"] = [level, {"name": "disk", "slots": 0, "channel": "bus"}]
    beside = remat.solve(document, algorithm="adjoint-best", budget={"ram": 8})  # the disk is quicker
    assert beside.makespan == alone.makespan == 7


@pytest.mark.slow
def test_a_schedule_outside_the_class_is_not_the_best_of_it() -> None:
    """The result offloads adjoints and tapes, which the class forbids; its optimality in the class stays proved."""
    links = [
        {"source": "device", "target": "host", "latency": 5, "channel": "gpu"},
        {"source": "host", "target": "device", "bandwidth": 5, "channel": "gpu"},
    ]
    machine = {
        "memories": [{"name": "device"}, {"name": "host", "capacity": 11}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": links,
    }
    steps: list[dict[str, int]] = [{}, {"state_size": 3}, {"forward_time": 0, "adjoint_size": 0}]
    steps += [{"state_size": 1, "adjoint_size": 4}, {}, {"forward_time": 4}, {"adjoint_size": 0}]
    document = {"schema": "remat.instance/2", "kind": "adjoint", "units": UNIT, "steps": steps, "tape_size": 6}
    document |= {"machine": machine}
    left_it = 0
    for budget in (10, 11):
        result = remat.solve(document, algorithm="adjoint-best", budget=budget, options={"work": 0.001})
        parked = {step.value[0] for step in result.steps if isinstance(step, Copy)} - {"x"}
        left_it += bool(parked)
        assert not (parked and result.optimal_within == "schedules that move whole states, one at a time"), budget
    assert left_it


@pytest.mark.parametrize("seed", seeds(30, 600))
def test_the_bound_with_tapes_holds(seed: int) -> None:
    """Against the optimum over all schedules, for equal and unequal steps, and tapes smaller and larger than states."""
    rng = random.Random(seed)
    n = rng.randint(1, 4)
    times = {"forward_time": rng.randint(0, 4), "backward_time": rng.randint(0, 4), "tape_time": rng.randint(0, 4)}
    own = [{"forward_time": rng.randint(0, 4), "backward_time": rng.randint(0, 4)} for _ in range(n)]
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "tape_size": rng.randint(0, 4)}
    document |= {"state_size": rng.randint(1, 3), "adjoint_size": rng.randint(0, 2)}
    document |= {"steps": own} if rng.random() < 0.5 else {"steps": n, **times}
    (whole,) = remat.solve(document, algorithm="store-all").peak_memory.values()
    for budget in range(document["state_size"], whole + 1):
        best = remat.solve(document, algorithm="dag-exact", budget=budget)
        if best.makespan is not None:
            assert best.optimal_within == "all schedules"
            assert lower_bound(make_problem(remat.load(document), budget=budget), Context()) <= best.makespan


@pytest.mark.parametrize("seed", seeds(1, 60))
def test_the_bound_with_slow_levels_holds(seed: int) -> None:
    """On longer loops with quick and slow levels, no schedule that is found beats it, and it says more than nothing."""
    rng = random.Random(seed)
    n = rng.randint(20, 60)
    disk = {"name": "disk", "write_time": rng.randint(1, 5), "read_time": rng.randint(1, 5)}
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": n, "forward_time": 1}
    document |= {"storage": [{"name": "ram", "capacity": rng.randint(1, 4)}, disk]}
    if rng.random() < 0.5:
        document["tape_size"] = rng.randint(1, 2)
    bound = lower_bound(make_problem(remat.load(document)), Context())
    best = remat.solve(document, algorithm="adjoint-best", options=LITTLE)
    assert bound <= best.makespan
    if "tape_size" not in document:
        assert bound > best.no_recompute_time


def unread(result: remat.Result) -> list[str]:
    """Return the values in memories from which no step reads them."""
    return [
        row.value
        for row in result.decisions
        for stay in row.offloaded
        if not any(one.source == stay.memory and stay.start <= one.start <= stay.end for one in row.transfers)
    ]


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_no_checkpoint_is_written_that_nothing_reads(seed: int) -> None:
    draw = random.Random(seed)
    forward = [draw.randint(1, 9) for _ in range(40)]
    storage = [{"name": "ram", "capacity": 6, "write_time": 0, "read_time": 0}]
    loop = remat.adjoint(40, forward_time=forward, backward_time=2, state_size=1, storage=storage)
    result = remat.solve(loop, algorithm="adjoint-best")
    assert result.report is not None
    assert result.report.ok
    assert not unread(result)
