"""Checkpointing on several storage levels against reference values, exhaustive search and plain recurrences."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import product
from math import inf
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.adjoint.levels.h_revolve import tables, value
from remat_algorithms.adjoint.levels.multistage import middle_split
from remat_algorithms.adjoint.levels.uniform import TimeLoop
from remat_algorithms.kit.binomial import advances
from tests import places
from tests.oracles import search
from tests.seeds import examples

REFERENCE = json.loads((places.REFERENCE / "adjoint.json").read_text())["points"]
ALL = ("h-revolve", "disk-revolve", "periodic-disk-revolve", "multistage", "two-level")
TWO = ("disk-revolve", "periodic-disk-revolve", "two-level")

Levels = list[tuple[int | None, float, float]]


def loop(steps: int, levels: Levels, forward: float = 1, backward: float = 1, **more: Any) -> dict[str, Any]:
    """Return an adjoint; a level is its slots, write time and read time."""
    storage = [
        {"name": f"level{k}", "slots": slots, "write_time": write, "read_time": read}
        for k, (slots, write, read) in enumerate(levels)
    ]
    return {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "units": {"time": "unit", "memory": "unit"},
        "steps": steps,
        "forward_time": forward,
        "backward_time": backward,
        "storage": storage,
    } | more


def run(document: dict[str, Any], algorithm: str = "h-revolve", **options: Any) -> remat.Result:
    """Solve, and check that no level overflows and that storage ends empty."""
    result = remat.solve(document, algorithm=algorithm, options=options)
    assert result.report is not None
    for level in document["storage"]:
        profile = result.report.profiles[level["name"]]
        assert profile.size[-1] == 0
        assert level["slots"] is None or result.peak_memory[level["name"]] <= level["slots"]
    return result


def copies(result: remat.Result) -> Counter[tuple[str, str]]:
    """Count the copies from one memory to another."""
    return Counter((step["from"], step["to"]) for step in result.to_dict()["steps"] if "copy" in step)


def two(point: dict[str, Any]) -> dict[str, Any]:
    """Return the instance of a reference point with an unbounded disk."""
    levels: Levels = [(point["c"], 0, 0), (None, point["wd"], point["rd"])]
    return loop(point["l"] + 1, levels, point["uf"], point["ub"])


# --- reference values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", REFERENCE["hrevolve"], ids=lambda p: f"{p['l']}-{p['slots']}")
def test_h_revolve_equals_published_costs(point: dict[str, Any]) -> None:
    levels = list(zip(point["slots"], point["write"], point["read"], strict=True))
    result = run(loop(point["l"] + 1, levels, point["uf"], point["ub"]))
    costs = [write + read for _, write, read in levels]
    if costs != sorted(costs):  # the published order of levels is not from quick to slow
        assert result.makespan <= point["optimal"]
        return
    assert result.makespan == point["optimal"]
    counts = copies(result)
    work = point["ub"] * (point["l"] + 1)
    work += point["uf"] * sum(str(step.get("run", "")).startswith("F") for step in result.to_dict()["steps"])
    for k, (_, write, read) in enumerate(levels):
        work += write * counts["working", f"level{k}"] + read * counts[f"level{k}", "working"]
    assert work == point["optimal"]


@pytest.mark.parametrize("point", REFERENCE["revolve_1d"], ids=lambda p: f"{p['l']}-{p['c']}")
def test_x0_on_disk_reference(point: dict[str, Any]) -> None:
    document = loop(point["l"] + 1, [(point["c"], 0, 0), (1, 0, point["rd"])], point["uf"], point["ub"])
    result = run(document | {"initial_state": "level1"})
    assert result.makespan == pytest.approx(point["opt1"], rel=1e-12)
    assert not copies(result)["working", "level1"]


@pytest.mark.parametrize("point", REFERENCE["disk_revolve"], ids=lambda p: f"{p['l']}-{p['c']}")
def test_disk_revolve_equals_published_costs(point: dict[str, Any]) -> None:
    assert run(two(point), "disk-revolve").makespan == point["optimal"]
    assert run(two(point)).makespan == point["optimal"]
    once = run(two(point), "disk-revolve", one_read=True)
    assert once.makespan == point["one_read_variant"]
    counts = copies(once)
    assert counts["working", "level1"] == counts["level1", "working"]


@pytest.mark.parametrize("point", REFERENCE["periodic_disk_revolve"], ids=lambda p: f"{p['l']}-{p['c']}")
def test_periodic_disk_revolve_equals_published_costs(point: dict[str, Any]) -> None:
    result = run(two(point), "periodic-disk-revolve")
    assert result.makespan == point["cost"]
    assert result.peak_memory["level1"] == point["disk_checkpoints"]
    counts = copies(result)
    assert counts["working", "level1"] == counts["level1", "working"] == point["disk_checkpoints"]


@pytest.mark.parametrize("point", REFERENCE["multistage"], ids=lambda p: f"{p['n']}-{p['ram']}-{p['disk']}")
def test_multistage_equals_published_forward_steps(point: dict[str, Any]) -> None:
    n = point["n"]
    result = run(loop(n, [(point["ram"], 0, 0), (point["disk"], 0, 0)], 1, 0), "multistage")
    assert result.makespan == point["forward_steps_with_taping"] - n
    assert result.optimal_within
    counts = copies(result)
    peer = point["peer_revolve"]
    assert counts["working", "level1"] <= peer["disk_w"]
    assert counts["level1", "working"] <= peer["disk_r"]
    dear = copies(run(loop(n, [(point["ram"], 0, 0), (point["disk"], 1, 1)], 1, 0), "multistage"))
    assert dear["working", "level1"] + dear["level1", "working"] <= peer["disk_w"] + peer["disk_r"]


@pytest.mark.parametrize("point", REFERENCE["twolevel"], ids=lambda p: f"{p['n']}-{p['period']}")
def test_two_level_equals_published_forward_steps(point: dict[str, Any]) -> None:
    n, every = point["n"], point["period"]
    result = run(loop(n, [(point["binomial_snapshots"], 0, 0), (None, 0, 0)], 1, 0), "two-level", period=every)
    last = n - (n - 1) // every * every
    assert result.makespan == point["forward_steps_with_taping"] - last - n


# --- exhaustive search ------------------------------------------------------------------------------------------------

COSTS = st.integers(0, 6).map(lambda half: half / 2 if half % 2 else half // 2)


@st.composite
def ordered_levels(draw: st.DrawFn, count: int) -> Levels:
    """Draw levels whose write and read times together do not decrease."""
    times = sorted((draw(st.tuples(COSTS, COSTS)) for _ in range(count)), key=sum)
    return [(draw(st.integers(0 if k else 1, 2)), *pair) for k, pair in enumerate(times)]


def check_optimal(levels: Levels, steps: int, forward: float, backward: float) -> None:
    expected = search.adjoint_best_cost([forward] * (steps - 1), [backward] * steps, levels)
    assert run(loop(steps, levels, forward, backward)).makespan == expected


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ordered_levels(2), st.integers(1, 6), st.sampled_from([1, 2, 0.5]), st.sampled_from([0, 1, 3]))
def test_two_levels_equal_exhaustive_search(levels: Levels, steps: int, forward: float, backward: float) -> None:
    check_optimal(levels, steps, forward, backward)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(ordered_levels(3), st.integers(1, 5), st.sampled_from([1, 2]), st.sampled_from([1, 3]))
def test_three_levels_equal_exhaustive_search(levels: Levels, steps: int, forward: float, backward: float) -> None:
    check_optimal(levels, steps, forward, backward)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(ordered_levels(3), st.integers(1, 6), st.sampled_from([1, 2]), st.sampled_from([1, 3]))
def test_three_levels_equal_exhaustive_search_thoroughly(
    levels: Levels, steps: int, forward: float, backward: float
) -> None:
    check_optimal(levels, steps, forward, backward)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(ordered_levels(2), st.integers(1, 6), st.integers(0, 1))
def test_x0_in_a_level(levels: Levels, steps: int, where: int) -> None:
    slots, write, read = levels[where]
    levels[where] = (max(slots or 0, 1), write, read)
    best = search.adjoint_best_cost([1] * (steps - 1), [1] * steps, levels, initial_level=where)
    result = run(loop(steps, levels) | {"initial_state": f"level{where}"})
    assert result.makespan is not None
    if where == 1:
        assert result.makespan == best
        assert result.optimal_within
    else:
        assert result.makespan >= best
        assert result.makespan <= run(loop(steps, levels)).makespan  # type: ignore[operator]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 6), st.integers(0, 2), COSTS, COSTS)
def test_disk_revolve_equals_exhaustive_search(steps: int, slots: int, write: float, read: float) -> None:
    expected = search.adjoint_best_cost([2] * (steps - 1), [1] * steps, [(slots, 0, 0), (steps, write, read)])
    result = run(loop(steps, [(slots, 0, 0), (None, write, read)], 2), "disk-revolve")
    assert result.makespan == expected
    once = run(loop(steps, [(slots, 0, 0), (None, write, read)], 2), "disk-revolve", one_read=True) if slots else result
    assert once.makespan >= expected  # type: ignore[operator]


# --- the recurrences as they are printed ------------------------------------------------------------------------------


def hierarchical(steps: int, levels: list[tuple[int, float, float]], forward: float) -> float:
    """Evaluate the recurrence of h-revolve entry by entry."""

    @cache
    def live(k: int, l: int, m: int) -> float:  # noqa: E741
        if l == 0:
            return 0
        if k < 0:
            return inf
        below = live(k - 1, l, levels[k - 1][0] if k else 0)
        return min(below, levels[k][1] + stored(k, l, m)) if m else below

    @cache
    def stored(k: int, l: int, m: int) -> float:  # noqa: E741
        if l == 0:
            return 0
        below = live(k - 1, l, levels[k - 1][0] if k else 0)
        ahead = (j * forward + live(k, l - j, m - 1) + levels[k][2] + stored(k, j - 1, m) for j in range(1, l + 1))
        return min(below, *ahead)

    return live(len(levels) - 1, steps - 1, levels[-1][0])


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 4), COSTS, COSTS), min_size=1, max_size=3).filter(
        lambda levels: any(level[0] for level in levels)
    ),
    st.integers(1, 18),
    st.sampled_from([0, 1, 3]),
)
def test_tables_equal_the_plain_recurrence(levels: list[tuple[int, float, float]], steps: int, forward: float) -> None:
    """Levels in any order: the optimum within the class; the executed plan costs what the table says."""
    expected = hierarchical(steps, levels, forward) + 2 * steps
    document = loop(steps, list(levels), forward, 2)
    assert run(document).makespan == expected
    problem = make_problem(remat.load(document))
    assert value(TimeLoop.of(problem, "h-revolve")) == expected


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 3), COSTS, COSTS, COSTS, COSTS, st.integers(1, 14), st.sampled_from([1, 3]))
def test_disks_read_once_equal_the_plain_recurrence(
    slots: int, write: float, read: float, disk_write: float, disk_read: float, steps: int, forward: float
) -> None:
    """States before the split become live only after the single disk read, so the first level is rewritten."""
    assume(write + read <= disk_write + disk_read)  # levels are used from quick to slow

    def memory(advances: int) -> float:
        return hierarchical(advances + 1, [(slots, write, read)], forward)

    @cache
    def live(l: int) -> float:  # noqa: E741
        ahead = (j * forward + live(l - j) + disk_read + memory(j - 1) for j in range(1, l + 1))
        return min(memory(l), min((disk_write + rest for rest in ahead), default=inf))

    document = loop(steps, [(slots, write, read), (None, disk_write, disk_read)], forward, 0)
    assert run(document, "disk-revolve", one_read=True).makespan == live(steps - 1)


def test_lowest_level_is_revolve() -> None:
    for slots in (1, 2, 5, 30):
        top = tables(TimeLoop.of(make_problem(remat.load(loop(200, [(slots, 0, 0)]))), "h-revolve"))[-1]
        assert top.live.tolist() == [advances(n, slots) for n in range(1, 201)]


def test_middle_splits_are_optimal() -> None:
    for n, slots in product(range(2, 120), range(2, 9)):
        m = middle_split(n, slots)
        assert m + advances(n - m, slots - 1) + advances(m, slots) == advances(n, slots)


# --- capacities, order among the algorithms ---------------------------------------------------------------------------


def check_capacities(sizes: range) -> None:
    for n in sizes:
        costs = []
        for cap in range(1, 6):
            result = run(loop(n, [(1 + n % 3, 0, 0), (cap, 2, 1)], 2, 1))
            costs.append(result.makespan)
        assert costs == sorted(costs, reverse=True)  # type: ignore[type-var]


def test_levels_hold_what_they_can() -> None:
    check_capacities(range(2, 61, 7))


@pytest.mark.slow
def test_levels_hold_what_they_can_thoroughly() -> None:
    check_capacities(range(2, 201, 3))


@pytest.mark.parametrize("n", [1, 2, 3, 17, 60])
def test_exact_ones_are_never_worse(n: int) -> None:
    document = loop(n, [(2, 0, 0), (None, 3, 2)], 1, 4)
    best = run(document).makespan
    assert best == run(document, "disk-revolve").makespan
    for name in ALL:
        assert run(document, name).makespan >= best  # type: ignore[operator]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("where", ["level0", "level1", "level2"])
def test_given_x0_is_used_or_discarded(name: str, where: str) -> None:
    for n in (1, 2, 3, 25):
        document = loop(n, [(2, 1, 1), (None, 2, 2), (3, 9, 9)])
        free = run(document, name).makespan
        assert run(document | {"initial_state": where}, name).makespan <= free  # type: ignore[operator]


def test_x0_in_the_only_level() -> None:
    for n, makespan in ((1, 1), (2, 3), (3, 6)):
        assert run(loop(n, [(1, 5, 0)]) | {"initial_state": "level0"}).makespan == makespan


def test_a_single_step_needs_no_slot() -> None:
    for name in ("h-revolve", "multistage"):
        assert run(loop(1, [(0, 0, 0), (0, 1, 1)]), name).makespan == 1


# --- what cannot be done ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_unequal_steps_are_refused(name: str) -> None:
    document = loop(3, [(1, 0, 0), (None, 1, 1)])
    times = [{"forward_time": 1}, {"forward_time": 2}, {}]
    with pytest.raises(remat.OptionError, match=f"{name} needs steps of equal forward time"):
        remat.solve(document | {"steps": times}, algorithm=name)
    with pytest.raises(remat.OptionError, match=f"{name} needs states of equal size"):
        remat.solve(document | {"steps": [{}, {"state_size": 3}, {}]}, algorithm=name)


@pytest.mark.parametrize("name", ALL)
def test_asynchronous_levels_are_refused(name: str) -> None:
    document = loop(3, [(1, 0, 0), (None, 1, 1)])
    document["storage"][1]["channel"] = "dma"
    with pytest.raises(remat.OptionError, match="needs synchronous levels; transfers of 'level1'"):
        remat.solve(document, algorithm=name)


@pytest.mark.parametrize("name", TWO)
def test_two_levels_are_asked_for(name: str) -> None:
    with pytest.raises(remat.OptionError, match="needs 2 storage levels; the machine has 1"):
        remat.solve(loop(3, [(1, 0, 0)]), algorithm=name)


# Five steps of 1 (backwards of 0), one slot in memory, disk writes of 2 and reads of 1. By the period:
#   1   F1-F4; x0 .. x3 written, each read once                                          4 + 8 + 4 = 16
#   2   F1-F4, F3, F1; x0 and x2 written, each read twice                                6 + 4 + 4 = 14
#   3   F1-F4, F1, F2; x0 and x3 written; x3 read once, x0 twice; x1 in memory           6 + 4 + 3 = 13
#   4   F1-F4 and t(4, 2) = 4 more; x0 written, read twice                               8 + 2 + 2 = 12
#   5   F1-F4, F3, F1; x0 written, read twice; x2 in memory                              6 + 2 + 2 = 10
def test_the_default_period_of_two_levels_takes_least_time() -> None:
    document = loop(5, [(1, 0, 0), (None, 2, 1)], 1, 0)
    times = [run(document, "two-level", period=period).makespan for period in range(1, 6)]
    assert times == [16, 14, 13, 12, 10]
    assert run(document, "two-level").makespan == 10


@examples(
    12,
    60,
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_no_period_of_a_short_loop_is_better_than_the_default(
    steps: int, slots: int, write: int, read: int, slower: int, slowest: int
) -> None:
    document = loop(steps, [(slots, write, read), (None, write + slower, read + slower + slowest)], 2, 1)
    best = run(document, "two-level").makespan
    assert best == min(run(document, "two-level", period=period).makespan for period in range(1, steps + 1))


def test_small_disks_are_refused() -> None:
    document = loop(30, [(1, 0, 0), (3, 1, 1)])
    with pytest.raises(remat.OptionError, match="use h-revolve"):
        remat.solve(document, algorithm="disk-revolve")
    with pytest.raises(remat.OptionError, match="the least period is 10"):
        remat.solve(document, algorithm="two-level", options={"period": 9})
    assert run(document, "two-level", period=10).makespan == run(document, "two-level").makespan


def test_a_disk_too_small_for_periodic_checkpoints_is_named() -> None:
    refused = remat.solve(loop(30, [(1, 0, 0), (3, 1, 1)]), algorithm="periodic-disk-revolve")
    assert refused.columns is None
    least = refused.least_budget
    assert least is not None
    assert least.memory == 2
    name = refused.machine.memories[2].name
    found = remat.solve(loop(30, [(1, 0, 0), (3, 1, 1)]), algorithm="periodic-disk-revolve", budget={name: least.size})
    assert found.peak_memory[name] == least.size


def test_the_disk_that_holds_x0_needs_room_for_the_checkpoints_too() -> None:
    document = loop(4, [(1, 0, 0), (1, 0, 0)])
    document["initial_state"] = document["storage"][1]["name"]
    least = remat.solve(document, algorithm="periodic-disk-revolve").least_budget
    assert least == remat.LeastBudget(2, None, True, 2)
    budget = {document["storage"][1]["name"]: 2}
    assert remat.solve(document, algorithm="periodic-disk-revolve", budget=budget).columns is not None


@pytest.mark.parametrize("name", ["h-revolve", "multistage"])
def test_no_slot_is_infeasible(name: str) -> None:
    answer = remat.solve(loop(5, [(0, 0, 0), (0, 1, 1)]), algorithm=name)
    assert answer.scope is not None
    assert answer.least_budget is not None
    assert answer.least_budget.size == 1
    assert remat.solve(loop(5, [(0, 0, 0), (0, 1, 1)]), algorithm=name, budget=1).report is not None


def test_one_memory_is_one_level() -> None:
    document = {key: item for key, item in loop(40, []).items() if key != "storage"}
    for name in ("h-revolve", "multistage"):
        result = remat.solve(document, algorithm=name, budget=5)
        assert result.makespan == advances(40, 3) + 40
        assert result.peak_memory["memory"] <= 5


def test_sizes_in_bytes_and_bandwidths() -> None:
    document = loop(40, [(None, 0, 0), (None, 0, 0)]) | {
        "units": {"time": "s", "memory": "B"},
        "state_size": "2GiB",
        "storage": [
            {"name": "ram", "capacity": "7GiB"},
            {"name": "disk", "capacity": "9GiB", "bandwidth": "1GiB/s"},
        ],
    }
    result = remat.solve(document, algorithm="h-revolve")
    assert result.makespan == run(loop(40, [(3, 0, 0), (4, 2, 2)])).makespan
    assert isinstance(result.makespan, int)
    assert result.peak_memory["ram"] == 3 * 2**31


def test_tables_stop_when_asked() -> None:
    answer = remat.solve(loop(20_000, [(10, 0, 0), (10, 2, 2)]), algorithm="h-revolve", time_limit=0.01)
    assert answer.report is None
    assert answer.termination == "time limit"
