"""`dag-offload-best` against exhaustive search, and against the algorithms that it asks for starts."""

import math
import random

import pytest

import remat
from remat.generate.layered import layered_dag
from remat.plugin import ALL_SCHEDULES, Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.plans.search_state import Search
from remat_algorithms.joint.dag_offload_best import starts
from remat_algorithms.joint.dag_offload_best.dag_offload_best import DagOffloadBestOptions, solve
from remat_algorithms.joint.dag_offload_best.local_search import _handed
from remat_algorithms.joint.dag_offload_best.model import Runs, Setting
from remat_algorithms.joint.dag_offload_best.offload_headroom import Rates, room_of
from remat_algorithms.joint.dag_offload_best.offload_priorities import taste_of_steps
from remat_algorithms.joint.dag_offload_best.starts import INDIVIDUALS, PROGRAMS
from remat_algorithms.offload.catalogue import ALGORITHMS as OFFLOAD
from remat_algorithms.offload.swaps.gap_selection import Choice
from tests.algorithms.offload.small_chains import any_machine
from tests.oracles.offloading import least_makespan

LITTLE = {"iterations": 30}
NAME = "dag-offload-best"
STATES = 20_000


def graph(draw):
    """Draw the training graph of two or three forward tasks; some write a second value, or read two."""
    count = draw.randint(2, 3)
    values = {"x0": draw.randint(1, 3)}
    forward, backward = [], []
    for k in range(1, count + 1):
        reads = [f"x{k - 1}", *(["x0"] if k > 1 and draw.random() < 0.4 else [])]
        saved = [f"s{k}"] if draw.random() < 0.4 else []
        values |= {name: draw.randint(1, 5) for name in (f"x{k}", *saved)}
        forward.append({"id": f"F{k}", "time": draw.randint(1, 5), "reads": reads, "writes": [f"x{k}", *saved]})
        after = [f"y{k}"] if k < count else [f"x{k}"]
        own = [f"x{k}"] if draw.random() < 0.5 else []
        values[f"y{k - 1}"] = draw.randint(1, 5)
        read = [*dict.fromkeys([*reads, *own, *saved, *after])]
        backward.insert(0, {"id": f"B{k}", "time": draw.randint(1, 6), "reads": read, "writes": [f"y{k - 1}"]})
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "tasks": forward + backward,
        "values": [{"id": name, "size": size} for name, size in values.items()],
        "inputs": ["x0"],
        "outputs": ["y0"],
        "machine": any_machine(draw),
    }


def drawn(seed):
    """Return a small graph, and a budget between the largest need of a task and that of keeping all."""
    draw = random.Random(seed)
    document = graph(draw)
    keep = remat.solve(document, algorithm="keep-all")
    low, high = keep.memory_bounds["device"].size, keep.peak_memory["device"]
    return document, draw.randint(low, high)


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(1000, 1500), marks=pytest.mark.slow)])
def test_no_bound_is_above_the_optimum_and_no_schedule_below(seeds):
    met = settled = 0
    for seed in seeds:
        document, budget = drawn(seed)
        least = least_makespan(document, budget, recompute=True, states=STATES)
        if least is not None and math.isnan(least):
            continue
        result = remat.solve(document, algorithm=NAME, budget=budget, options=LITTLE)
        if least is None:
            assert result.makespan is None, seed
            continue
        settled += 1
        assert result.lower_bound is None or result.lower_bound <= float(least) * (1 + 1e-12), seed
        if result.makespan is not None:
            assert result.makespan >= float(least) * (1 - 1e-12), seed
            equal = result.makespan <= float(least) * (1 + 1e-12)
            met += equal
            assert equal or result.optimal_within != ALL_SCHEDULES, seed
    assert settled >= len(seeds) // 2
    assert met >= 0.85 * settled


@pytest.mark.parametrize("seeds", [range(100, 104), pytest.param(range(2000, 2200), marks=pytest.mark.slow)])
def test_nobody_who_searches_little_is_quicker(seeds):
    """For any small number of rounds."""
    others = [entry for entry in OFFLOAD if entry.accepts("dag") and entry.name not in PROGRAMS]
    asked = 0
    for seed in seeds:
        document, budget = drawn(seed)
        rounds = (0, 1, 30)[seed % 3]
        best = remat.solve(document, algorithm=NAME, budget=budget, options={"iterations": rounds})
        searching = {"swapadvisor": {"iterations": min(INDIVIDUALS, rounds)}, "dag-auto": {"iterations": rounds}}
        for name in [*(entry.name for entry in others), "dag-auto"]:
            try:
                other = remat.solve(document, algorithm=name, budget=budget, options=searching.get(name, {}))
            except remat.OptionError:
                continue
            if other.makespan is not None:
                asked += 1
                assert best.makespan is not None, (seed, name)
                assert best.makespan <= other.makespan * (1 + 1e-12), (seed, name)
    assert asked > len(seeds)


def test_without_a_way_back_it_is_dag_auto():
    document, budget = drawn(3)
    document["machine"]["links"].pop()
    here = remat.solve(document, algorithm=NAME, budget=budget, options={"iterations": 20, "reorder": False})
    there = remat.solve(document, algorithm="dag-auto", budget=budget, options={"iterations": 20})
    assert here.makespan == there.makespan


def test_the_listed_order_may_be_kept():
    document, budget = drawn(5)
    result = remat.solve(document, algorithm=NAME, budget=budget, options=LITTLE | {"reorder": False})
    assert result.makespan is not None
    runs = [result.graph.tasks[task] for task in result.columns.runs.tolist()]
    assert list(dict.fromkeys(runs)) == [task["id"] for task in document["tasks"]]


def test_algorithms_for_other_orders_are_not_asked_if_the_listed_order_is_kept(monkeypatch):
    document = dict(layered_dag(nodes=12, seed=4)) | {"machine": any_machine(random.Random(0))}
    known = remat.solve(document, algorithm="dag-order-exact")
    problem = make_problem(remat.load(document), budget=known.peak_memory["device"])
    names = []
    asked = starts.asked

    def noted(entry, *rest, **given):
        names.append(entry.name)
        return asked(entry, *rest, **given)

    monkeypatch.setattr(starts, "asked", noted)
    for reorder in (True, False):
        names.clear()
        solve(problem, DagOffloadBestOptions(iterations=0, reorder=reorder), Context())
        assert ("dag-order-greedy" in names) is reorder


def interrupted(problem, steps, **options):
    """Return the proposal of a solve that is interrupted at the beginning and knows a schedule."""
    context = Context()
    context.best_steps, context.interrupted = steps, True
    return solve(problem, DagOffloadBestOptions(**options), context)


@pytest.mark.parametrize("seed", [5, 19, 25])
def test_the_search_starts_from_a_known_schedule(seed):
    document, budget = drawn(seed)
    problem = make_problem(remat.load(document), budget=budget)
    known = remat.solve(document, algorithm=NAME, budget=budget, options=LITTLE)
    alone = interrupted(problem, None).makespan
    assert alone is None or alone > known.makespan
    assert interrupted(problem, known.columns).makespan == known.makespan
    assert interrupted(problem, known.columns, iterations=1).makespan == alone  # the answer depends on the seed only


def test_a_known_schedule_in_another_order_is_none_of_the_listed_order():
    document = dict(layered_dag(nodes=12, seed=4)) | {"machine": any_machine(random.Random(0))}
    known = remat.solve(document, algorithm="dag-order-exact")
    problem = make_problem(remat.load(document), budget=known.peak_memory["device"])
    assert interrupted(problem, None).makespan is None
    assert interrupted(problem, known.columns).makespan == known.makespan
    assert interrupted(problem, known.columns, reorder=False).makespan is None


def test_room_that_links_make():
    """Links free as many bytes at a run as they can send before it and return after it."""
    document, _ = drawn(7)
    setting = Setting(make_problem(remat.load(document), budget=20))
    model = setting.model
    assert room_of(model, Rates(0.0, 0.0)) == [0] * model.stages
    room = room_of(model, Rates(1e-3, 1e-3))
    assert room[0] == room[-1] == 0 < max(room)
    alone, roomier = Search(model, 20, 0), Search(model.lent(room), 20, 0)
    runs, stages = model.tables.first, range(model.stages)
    levels = zip(alone.memory(runs, stages), roomier.memory(runs, stages), room, strict=True)
    assert all(level - more == rest for level, rest, more in levels)


def test_a_schedule_is_read_as_a_taste():
    """The parameters read from a plan reproduce its choice of values to offload."""
    some = 0
    for seed in range(100, 112):
        document, budget = drawn(seed)
        setting = Setting(make_problem(remat.load(document), budget=budget))
        choice = setting.choice(Runs(tuple(setting.listed)))
        assert choice is not None
        for _, attempt in setting.plans(choice, range(9)):
            if attempt is not None:
                plan, taste = attempt.plan(), attempt.taste()
                assert plan is not None
                read = taste_of_steps(plan.outcome.steps, setting.reads, len(setting.maker), setting.device)
                assert read.kept.tolist() == taste.kept.tolist()
                some += taste.kept.any()
    assert some


def updated(draw):
    """Draw a graph with parameters at the host, whose processor may update them in place or out of place."""
    document = graph(draw)
    document["schema"] = "remat.instance/2"
    machine = document["machine"]
    machine["memories"][1]["capacity"] = None
    machine["processors"].append({"name": "cpu", "memory": "host", "speed": draw.choice([0.25, 0.5, 1])})
    document["inputs"], document["outputs"] = ["x0"], ["y0"]
    for number in range(1, sum(task["id"][0] == "F" for task in document["tasks"]) + 1):
        tasks = {task["id"]: task for task in document["tasks"]}
        old, new, gradient = f"w{number}", draw.choice([f"w{number}", f"n{number}"]), f"g{number}"
        size = draw.randint(1, 3)
        document["values"] += [{"id": name, "size": size} for name in dict.fromkeys([old, new, gradient])]
        tasks[f"F{number}"]["reads"].append(old)
        tasks[f"B{number}"]["reads"].append(old)
        tasks[f"B{number}"]["writes"].append(gradient)
        update = {"id": f"U{number}", "time": draw.randint(0, 4), "reads": [gradient, old], "writes": [new]}
        document["tasks"].append(update)
        document["inputs"].append({"value": old, "memory": "host"})
        document["outputs"].append({"value": new, "memory": "host"})
    return document


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(100, 300), marks=pytest.mark.slow)])
def test_what_the_helper_hands_back_still_runs(seeds):
    """Every update runs once, wherever the walk lets it run: all rounds give schedules that the verifier takes."""
    updates = 0
    for seed in seeds:
        draw = random.Random(seed)
        document = updated(draw)
        setting = Setting(make_problem(remat.load(document)))
        runs = Runs(tuple(setting.listed))
        for _ in range(12 if setting.movable else 0):
            runs = _handed(setting, runs, draw.choice(setting.movable))
            choice = setting.choice(runs)
            assert isinstance(choice, Choice)
            assert sorted(choice.order.tasks) == sorted(setting.listed)
            # A plan's own runs are those of the processor alone.
            runs = Runs(tuple(task for task in runs.tasks if task not in runs.helped), runs.helped)
        updates += len(setting.movable)
        low = remat.solve(document, algorithm=NAME, options={"iterations": 0}).peak_memory["device"]
        result = remat.solve(document, algorithm=NAME, budget={"device": draw.randint(low // 2, low)}, options=LITTLE)
        assert result.makespan is None or result.report.ok
    assert updates


def one_way(links, *, capacity=None, processors=("gpu",), **rest):
    """Return two tasks in a row, whose input begins and whose output ends in the host."""
    homes = {"gpu": "device", "cpu": "host"}
    machine = {
        "memories": [{"name": "device", "capacity": capacity}, {"name": "host"}],
        "processors": [{"name": name, "memory": homes[name]} for name in processors],
        "links": [{"source": source, "target": target, "bandwidth": 1} for source, target in links],
    }
    tasks = [
        {"id": "t1", "time": 2, "reads": ["i"], "writes": ["v"]},
        {"id": "t2", "time": 2, "reads": ["v"], "writes": ["w"]},
    ]
    values = [{"id": name, "size": 3} for name in "ivw"]
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values, "machine": machine}
    return document | {"inputs": ["i"], "outputs": ["w"]} | rest


INTO, OUT = ("host", "device"), ("device", "host")
IN_HOST = {"inputs": [{"value": "i", "memory": "host"}]}


def test_links_in_one_direction_carry_what_must_cross_them():
    result = remat.solve(one_way([INTO], **IN_HOST), algorithm=NAME)
    assert result.makespan == 3 + 2 + 2
    result = remat.solve(one_way([OUT], outputs=[{"value": "w", "memory": "host"}]), algorithm=NAME)
    assert result.makespan == 2 + 2 + 3
    too_small = remat.solve(one_way([INTO], capacity=5, **IN_HOST), algorithm=NAME)
    assert too_small.columns is None


def test_an_update_runs_where_its_state_lies():
    """No link leads back from the host: only a processor there can change values that must end there."""
    state = {"value": "o", "memory": "host"}
    document = one_way([OUT], processors=("gpu", "cpu"), inputs=["i", state], outputs=["w", {**state, "value": "n"}])
    document["values"] += [{"id": name, "size": 1} for name in "on"]
    document["tasks"].append({"id": "update", "time": 1, "reads": ["v", "o"], "writes": ["n"]})
    result = remat.solve(document, algorithm=NAME)
    assert result.report.ok
    assert result.makespan == 2 + 3 + 1


@pytest.mark.parametrize("links", [[], [OUT]])
def test_a_required_transfer_without_a_route_is_a_proof(links):
    result = remat.solve(one_way(links, **IN_HOST), algorithm=NAME)
    assert (result.status, result.scope) == ("infeasible", ALL_SCHEDULES)
    assert "task 't1' reads 'i' in 'device', but no link leads there from 'host'" in result.notes
