"""Bounds of moments: never above the best schedule of their class, for any moments, and mostly equal to it."""

import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.solving.problem_setup import make_problem
from remat.testing import strategies
from remat_algorithms.dag.moments.bounds import Setting
from remat_algorithms.dag.moments.precedence import listed_levels
from remat_algorithms.dag.moments.program_solution import Effort
from tests.algorithms.dag.moments.drawn import (
    best_of_all,
    chained,
    drawn,
    graph,
    in_units,
    machine,
    none_fits,
    setting_of,
    training,
)
from tests.algorithms.offload.machines import two_memories
from tests.oracles import search
from tests.seeds import few


def asked(setting, moments, **more):
    return setting.ask(moments, Effort(**more), stopped=lambda: False)


def compare(document, budget, seed, *, listed, states=None):
    """Compare what some moments say with the best of all schedules; return it, the greatest bound, and whether met."""
    setting = setting_of(document, budget, listed=listed)
    draw = random.Random(seed)
    best = best_of_all(document, budget, setting, listed=listed, states=states)
    if isinstance(best, float) and math.isnan(best):
        return None
    over, bounds = in_units(setting, best), [0.0]
    for count in (1, 2, 3):
        moments = chained(draw, setting, count)
        for more in ({"whole_work": 0, "sweeps": False}, {"whole_work": 0}, {"sweeps": False}):
            bounds.append(asked(setting, moments, **more).bound)
            assert bounds[-1] <= over * (1 + 1e-12)
    assert setting.makespan(max(bounds)) <= (math.inf if best is None else best)
    return over, max(bounds)


def shares_met(seeds, *, host):
    """Compare on drawn documents; count those that need extra time, exact bounds and unknowns."""
    found = []
    for seed in seeds:
        document, budget, listed = drawn(seed, host=host)
        found.append(compare(document, budget, seed, listed=listed, states=2000 if host else None))
    costly = [pair for pair in found if pair is not None and 0 < pair[0] < math.inf]
    return len(costly), sum(bound >= over * (1 - 1e-9) for over, bound in costly), found.count(None)


@pytest.mark.parametrize("count", few(30, 60))
def test_below_every_schedule_in_one_memory(count):
    costly, met, _ = shares_met(range(count), host=False)
    assert costly > count // 6
    assert met > 0.5 * costly


@pytest.mark.parametrize("count", few(16, 40))
def test_below_every_schedule_with_a_memory_behind(count):
    costly, met, given_up = shares_met(range(count), host=True)
    assert given_up < count // 8
    assert costly > count // 4
    assert met > 0.3 * costly


@pytest.mark.slow
@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("part", range(8))
def test_below_every_schedule_thoroughly(host, part):
    costly, _, _ = shares_met(range(1000 + 500 * part, 1500 + 500 * part), host=host)
    assert costly > 80


@settings(max_examples=30, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.dags(largest=6, plain=True, exact=True), st.integers(0, 1000), st.booleans())
def test_below_every_schedule_of_any_graph(document, seed, listed):
    least = make_problem(remat.load(document)).memory_bounds[0]
    sizes = sum(value["size"] for value in document["values"])
    budget = random.Random(seed).randint(least.size if least else 0, max(least.size if least else 0, sizes))
    problem = make_problem(remat.load(document), budget=budget)
    if Setting.of(problem, listed=listed) is not None:
        compare(document, budget, seed, listed=listed)


def test_mostly_equal_to_the_best_schedule_of_training_graphs_at_the_fullest_moment():
    met = []
    for seed in range(24):
        document = training(random.Random(seed), 2 + seed % 3)
        peak = next(iter(remat.solve(document, algorithm="keep-all").peak_memory.values()))
        for budget in range(max(1, peak * 3 // 4), peak):
            setting = setting_of(document, budget, listed=False)
            over = in_units(setting, search.chain_best(document, budget))
            bound = max(
                asked(setting, [moment], relaxed_work=0).bound
                for moment in setting.fullest(3) or setting.facts.order[:1]
            )
            assert bound <= over
            met += [bound == over] * (0 < over < math.inf)
    assert len(met) > 15
    assert sum(met) > 0.8 * len(met)


def with_floats(document):
    """Return the document with times that are no whole numbers, in steps of a tenth."""
    tasks = [task | {"time": task["time"] / 10} for task in document["tasks"]]
    return document | {"tasks": tasks}


@pytest.mark.parametrize("seed", range(12))
def test_times_that_are_no_whole_numbers(seed):
    document = training(random.Random(seed), 3)
    peak = next(iter(remat.solve(document, algorithm="keep-all").peak_memory.values()))
    for budget in range(max(1, peak * 2 // 3), peak):
        best = search.chain_best(with_floats(document), budget)
        setting, whole = (setting_of(each, budget, listed=False) for each in (with_floats(document), document))
        moments = setting.fullest()
        bound = setting.makespan(asked(setting, moments).bound)
        assert bound <= (math.inf if best is None else best)
        assert bound == pytest.approx(whole.makespan(asked(whole, moments).bound) / 10, rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_a_larger_scale_says_the_same(seed):
    """Terabytes and teraflops: sums of exact numbers of any size."""
    draw = random.Random(seed)
    document = graph(draw, 6)
    large = {
        "values": [{**value, "size": value["size"] * 2**40} for value in document["values"]],
        "tasks": [
            {**task, "time": task["time"] * 10**13, "workspace": task.get("workspace", 0) * 2**40}
            for task in document["tasks"]
        ],
        "static_memory": document.get("static_memory", 0) * 2**40,
    }
    budget = draw.randint(5, 20)
    small, big = setting_of(document, budget, listed=True), setting_of(document | large, budget * 2**40, listed=True)
    for moment in small.facts.order[::2]:
        bounds = [each.makespan(asked(each, [moment]).bound) for each in (small, big)]
        assert bounds[1] == bounds[0] * 10**13 or bounds == [math.inf, math.inf]


def test_more_moments_say_more():
    for seed in range(30):
        draw = random.Random(seed)
        document = graph(draw, 6)
        setting = setting_of(document, draw.randint(6, 14), listed=True)
        moments = setting.facts.order[::2]
        bounds = [asked(setting, part).bound for part in (moments[:1], moments[:2], moments)]
        assert bounds == sorted(bounds)


def test_the_fullest_moments_are_apart_and_above_the_budget():
    document = training(random.Random(3), 4)
    setting = setting_of(document, 1, listed=True)
    names = setting.problem.graph.tasks
    places = [setting.facts.place[task] for task in setting.fullest(3)]
    assert len(places) == 3
    assert places == sorted(places)
    peak = remat.solve(document, algorithm="keep-all")
    assert names[setting.fullest()[0]] in str(peak)
    assert setting_of(document, 10**6, listed=True).fullest() == []


def test_moments_at_large_runs_are_where_the_run_itself_and_all_that_is_there_need_most():
    document = training(random.Random(3), 4)
    setting = setting_of(document, 1, listed=True)
    facts, levels = setting.facts, listed_levels(setting.facts)
    chosen = setting.largest(1)
    score = {
        task: levels[place] + sum(facts.size[value] for value in facts.reads[task]) + facts.needs(task)
        for place, task in enumerate(facts.order)
        if not facts.unread[task]
    }
    assert [score[task] for task in chosen] == [max(score.values())]
    assert setting_of(document, 10**6, listed=True).largest(1) == []


def test_what_the_programs_do_not_know_is_refused():
    document = training(random.Random(0), 3)
    problem = make_problem(remat.load(document))
    assert Setting.of(problem, listed=True) is None  # no budget
    two = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m", "count": 2}]}
    with_two = make_problem(remat.load(document | {"machine": two}), budget=5)
    assert Setting.of(with_two, listed=True) is None
    moved = document | {"machine": machine(random.Random(0)), "outputs": [{"value": "b0", "memory": "host"}]}
    elsewhere = make_problem(remat.load(moved), budget={"device": 5})
    assert Setting.of(elsewhere, listed=True) is not None


def ladder(depth, time, size):
    forward = [{"id": f"f{i}", "time": time, "size": size, "reads": [f"f{i - 1}"] if i else []} for i in range(depth)]
    backward = [
        {"id": f"b{i}", "time": time, "size": size, "reads": [f"f{i}", *([f"b{i + 1}"] if i < depth - 1 else [])]}
        for i in reversed(range(depth))
    ]
    tasks = [*forward, *backward]
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "outputs": ["b0"]}


def test_a_quick_link_costs_nothing_and_a_slow_one_as_much_as_no_link():
    document = ladder(12, 10, 8)
    peak = next(iter(remat.solve(document, algorithm="keep-all").peak_memory.values()))
    budget = peak // 2
    alone = setting_of(document, budget, listed=True)
    least = alone.makespan(asked(alone, alone.fullest()).bound)
    found = []
    for bandwidth in (1000, 2, 1, 0.5, 0.001):
        setting = setting_of(document | {"machine": two_memories(bandwidth)}, budget, listed=True)
        found.append(setting.makespan(asked(setting, setting.fullest(), whole_work=0.2).bound))
    assert found[0] == setting.facts.base
    assert found == sorted(found)
    assert found[-1] <= least
    assert found[-1] > 0.9 * (least - alone.facts.base) + alone.facts.base


def test_one_channel_for_both_ways_shares_its_time():
    """a does not fit next to c and leaves before it, on the channel that brings in w."""
    tasks = [
        {"id": "a", "time": 1, "size": 4, "recomputable": False},
        {"id": "b", "time": 2, "size": 1, "reads": ["w"]},
        {"id": "c", "time": 1, "size": 4, "reads": ["b"], "workspace": 9},
        {"id": "d", "time": 1, "size": 1, "reads": ["a", "c"]},
    ]
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "outputs": ["d"]}
    document |= {"inputs": [{"value": "w", "memory": "host"}], "values": [{"id": "w", "size": 8}]}
    found = []
    for channels in (("o", "i"), ("bus", "bus")):
        document |= {"machine": two_memories(1, channels=channels)}
        setting = setting_of(document, 14, listed=True)
        found.append(max(setting.makespan(asked(setting, [task]).bound) for task in setting.facts.order))
        assert found[-1] <= best_of_all(document, 14, setting, listed=True)
    # w comes in (8), b runs, a comes back (4 less 1 that fits), d; and over one channel a leaves (3) before c.
    assert found == [8 + 2 + 3 + 1, 8 + 3 + 1 + 3 + 1]


def test_none_in_any_order():
    document = none_fits()
    setting = setting_of(document, 8, listed=False)
    assert asked(setting, [2]).bound == math.inf
    assert asked(setting, [2], whole_work=0).bound == math.inf
    # With a host behind the device there are schedules, however slow the link is.
    slow = setting_of(document | {"machine": two_memories(0.0001)}, 8, listed=False)
    assert asked(slow, [2]).bound < math.inf


def test_a_program_is_given_up_where_the_solve_stops():
    setting = setting_of(training(random.Random(0), 4), 3, listed=False)
    answer = setting.ask(setting.facts.order[:1], stopped=lambda: True)
    assert (answer.bound, answer.ended) == (0.0, False)
