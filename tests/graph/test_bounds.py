"""Bounds that hold for every schedule: by hand, and against every schedule of tiny graphs."""

import random

import pytest
from hypothesis import given, settings

import remat
from remat.graph.bounds import makespan_bound, memory_bounds, needed_tasks, no_recompute_time
from remat.instance import load
from remat.instance.lowering import lower, machine_of
from tests.instance.documents import chains, trees
from tests.oracles import lowering, referee, search
from tests.verifier.judges import Case

PLENTY = 10**9


def dag(tasks, sizes, **more):
    document = {"schema": "remat.instance/1", "kind": "dag", "units": {"time": "unit", "memory": "unit"}}
    values = [{"id": name, "size": size} for name, size in sizes.items()]
    return document | {"values": values, "tasks": [{"writes": []} | task for task in tasks]} | more


def names(graph, mask):
    return {name for name, chosen in zip(graph.tasks, mask, strict=True) if chosen}


ALTERNATIVES = dag(
    [
        {"id": "plain", "time": 2, "writes": ["x"], "required": False},
        {"id": "saving", "time": 3, "writes": ["x", "s"], "required": False},
        {"id": "slow", "time": 9, "writes": ["z"], "required": False},
        {"id": "quick", "time": 4, "writes": ["z"], "required": False},
        {"id": "idle", "time": 100, "required": False},
        {"id": "use", "time": 1, "reads": ["x", "z"], "writes": ["w"]},
        {"id": "last", "time": 5, "reads": ["s"], "writes": ["out"], "required": False},
    ],
    {"x": 1, "s": 1, "z": 1, "w": 1, "out": 1},
)


def test_needed_tasks_by_hand():
    graph = Case(ALTERNATIVES).graph
    needed = needed_tasks(graph)
    # z has two producers: none of them is forced, and the bound counts the time of the cheaper one.
    assert names(graph, needed.forced) == {"use"}
    assert names(graph, needed.once) == {"use", "plain", "quick"}
    assert needed.packed_time == 6
    assert no_recompute_time(graph) == 7
    assert makespan_bound(graph, Case(ALTERNATIVES).machine) == 7


def test_an_output_forces_its_only_producer_and_what_that_reads():
    case = Case(ALTERNATIVES | {"outputs": ["out"]})
    needed = needed_tasks(case.graph)
    # `last` reads s, which only `saving` writes, which makes x as well.
    assert names(case.graph, needed.forced) == {"use", "last", "saving"}
    assert names(case.graph, needed.once) == {"use", "last", "saving", "quick"}
    assert no_recompute_time(case.graph, needed) == 13
    assert makespan_bound(case.graph, case.machine) == 13


def test_inputs_need_no_producer():
    case = Case(ALTERNATIVES | {"inputs": ["x", "z"]})
    assert names(case.graph, needed_tasks(case.graph).once) == {"use"}
    assert no_recompute_time(case.graph) == 1


def test_producers_that_are_shared_count_once():
    tasks = [
        {"id": "both", "time": 5, "writes": ["a", "b"], "required": False},
        {"id": "a only", "time": 4, "writes": ["a"], "required": False},
        {"id": "b only", "time": 4, "writes": ["b"], "required": False},
        {"id": "use", "time": 1, "reads": ["a", "b"]},
    ]
    case = Case(dag(tasks, {"a": 1, "b": 1}))
    # 4 for one of them is certain, another 4 is not: `both` makes the two for 5.
    assert makespan_bound(case.graph, case.machine) == 5
    assert search.chain_best(case.document, PLENTY) == 6


def test_who_writes_back_what_it_reads_does_not_make_it():
    tasks = [
        {"id": "dear", "time": 9, "writes": ["v"], "required": False},
        {"id": "cheap", "time": 2, "writes": ["v"], "required": False},
        {"id": "turn", "time": 3, "reads": ["v"], "writes": ["v"]},
    ]
    case = Case(dag(tasks, {"v": 1}))
    assert makespan_bound(case.graph, case.machine) == no_recompute_time(case.graph) == 5


def test_a_chosen_producer_of_an_output_is_not_idle():
    tasks = [
        {"id": "first", "time": 9, "writes": ["a"], "required": False},
        {"id": "there", "time": 1, "reads": ["a"], "writes": ["b"]},
        {"id": "and back", "time": 1, "reads": ["b"], "writes": ["a"], "required": False},
        {"id": "out", "time": 3, "writes": ["z"], "required": False},
        {"id": "dear out", "time": 4, "writes": ["z"], "required": False},
    ]
    case = Case(dag(tasks, dict.fromkeys("abz", 1), outputs=["z"]))
    assert names(case.graph, needed_tasks(case.graph).once) == {"first", "there", "out"}


def test_where_everything_is_evidently_forced():
    case = Case(
        {"schema": "remat.instance/1", "kind": "tree", "parent": [1, -1], "output_size": [1, 1], "time": [3, 4]}
    )
    needed = needed_tasks(case.graph)
    assert needed.forced.all()
    assert needed.packed_time == 0
    assert no_recompute_time(case.graph, needed) == 7


def machine(count):
    return {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m", "count": count}]}


def test_several_processors_share_the_work_in_the_bound():
    diamond = [
        {"id": "a", "time": 4, "writes": ["a"]},
        {"id": "b", "time": 5, "reads": ["a"], "writes": ["b"]},
        {"id": "c", "time": 6, "reads": ["a"], "writes": ["c"]},
        {"id": "d", "time": 1, "reads": ["b", "c"], "writes": ["d"]},
    ]
    sizes = dict.fromkeys("abcd", 1)
    for count, bound in ((1, 16), (2, 11), (3, 11)):
        case = Case(dag(diamond, sizes, machine=machine(count)))
        assert makespan_bound(case.graph, case.machine) == bound
    wide = [{"id": f"t{i}", "time": 3} for i in range(5)]
    case = Case(dag(wide, {}, machine=machine(2)))
    # Five runs of 3 on two processors: half of 15, rounded up to a multiple of 3.
    assert repr(makespan_bound(case.graph, case.machine)) == "9"
    slow = machine(1)
    slow["processors"].append({"name": "slow", "memory": "m", "speed": 0.5})
    case = Case(dag(wide, {}, machine=slow) | {"schema": "remat.instance/2"})
    assert makespan_bound(case.graph, case.machine) == 12


def test_the_path_counts_parallel_tasks_at_their_fastest():
    tasks = [
        {"id": "a", "time": 8, "writes": ["v"], "parallel": {"max": 4, "alpha": 0.5}},
        {"id": "b", "time": 1, "reads": ["v"]},
    ]
    case = Case(dag(tasks, {"v": 1}, machine=machine(9)))
    assert makespan_bound(case.graph, case.machine) == 5


def test_float_times_add_up_in_order():
    case = Case(dag([{"id": f"t{i}", "time": 0.1} for i in range(10)], {}))
    assert no_recompute_time(case.graph) == sum([0.1] * 10)
    assert no_recompute_time(Case(dag([{"id": "t", "time": 0.5, "required": False}], {})).graph) == 0


def bound_of(tasks, sizes, **more):
    case = Case(dag(tasks, sizes, **more))
    (bound,) = memory_bounds(case.graph, case.machine)
    return None if bound is None else (bound.size, None if bound.task is None else case.graph.tasks[bound.task])


SIZES = {"i": 10, "u": 4, "v": 3}


@pytest.mark.parametrize(
    ("task", "more", "size"),
    [
        ({"reads": ["i"], "writes": ["u"]}, {}, 14),
        ({"reads": ["i"], "writes": ["u"], "workspace": 5}, {}, 19),
        ({"reads": ["i"], "writes": ["u"]}, {"static_memory": 100}, 114),
        # In place, the output takes the input's bytes; not those of a pinned one.
        ({"reads": ["i"], "writes": ["u"], "in_place": True, "workspace": 1}, {}, 11),
        ({"reads": ["i"], "writes": ["u"], "in_place": True}, {"pinned_inputs": ["i"]}, 14),
        # A pinned input adds to the bytes that the task itself holds.
        ({"writes": ["u", "v"]}, {"pinned_inputs": ["i"]}, 17),
        ({"reads": ["i"], "writes": ["i"]}, {}, 20),
    ],
)
def test_memory_of_one_task(task, more, size):
    missing = [name for name in SIZES if name != "i" and name not in task["writes"]]
    others = [{"id": "other", "time": 1, "writes": missing, "required": False}] if missing else []
    tasks = [{"id": "t", "time": 1} | task, *others]
    assert bound_of(tasks, SIZES, inputs=["i"], **more) == (size, "t")


def test_memory_at_the_start_and_at_the_end():
    tasks = [{"id": "t", "time": 1, "reads": ["i"], "writes": ["u"]}, {"id": "s", "time": 1, "writes": ["v"]}]
    assert bound_of(tasks, SIZES, inputs=["i", "u", "v"]) == (17, None)
    # The task's own 17 bytes explain more than the residency's.
    tasks[0]["workspace"] = 3
    assert bound_of(tasks, SIZES, inputs=["i", "u", "v"]) == (17, "t")
    tasks = [{"id": name, "time": 1, "writes": [name]} for name in SIZES]
    assert bound_of(tasks, SIZES, outputs=["i", "u", "v"]) == (17, None)
    assert bound_of([{"id": "t", "time": 1}], {}, inputs=[]) == (0, "t")
    assert bound_of([{"id": "t", "time": 1, "required": False}], {}) is None


def test_each_memory_has_its_own_bound():
    both = {
        "memories": [{"name": "m"}, {"name": "n"}, {"name": "empty"}],
        "processors": [{"name": "p", "memory": "n"}],
    }
    tasks = [{"id": "t", "time": 1, "reads": ["u"], "writes": ["v"]}]
    more = {"machine": both, "inputs": ["u", {"value": "i", "memory": "m"}], "static_memory": 7}

    def bounds():
        case = Case(dag(tasks, SIZES, **more))
        found = memory_bounds(case.graph, case.machine)
        return {
            memory.name: bound and (bound.size, bound.task)
            for memory, bound in zip(case.machine.memories, found, strict=True)
        }

    assert bounds() == {"n": (14, 0), "m": (10, None), "empty": None}
    # With processors in two memories nobody knows where a task will run.
    both["processors"].append({"name": "q", "memory": "m"})
    assert bounds() == {"n": (11, None), "m": (10, None), "empty": None}


# --------------------------------------------------------------------------- against every schedule there is


CONFINED = {
    "by name": ({"on": ["cpu"]}, {"on": ["gpu"]}),
    "by type": ({"time": {"slow": 1}}, {"time": {"fast": 1}}),
}


@pytest.mark.parametrize(("here", "there"), CONFINED.values(), ids=CONFINED)
def test_a_task_that_runs_in_one_memory_only_must_fit_there(here, there):
    """b reads and writes 5 bytes each and takes 4: it needs 14 in ram, where a need not be."""
    tasks = [
        {"id": "a", "time": 1, "reads": [], "writes": ["x"]} | there,
        {"id": "b", "time": 1, "reads": ["x"], "writes": ["y"], "workspace": 4} | here,
    ]
    processors = [
        {"name": "gpu", "memory": "vram", "type": "fast"},
        {"name": "cpu", "memory": "ram", "type": "slow"},
    ]
    ends = ("vram", "ram"), ("ram", "vram")
    machine = {
        "memories": [{"name": "vram", "capacity": 100}, {"name": "ram"}],
        "processors": processors,
        "links": [{"source": source, "target": target} for source, target in ends],
    }
    head = {"schema": "remat.instance/3", "kind": "dag", "tasks": tasks, "machine": machine}
    document = head | {"values": [{"id": name, "size": 5} for name in "xy"]}
    result = remat.solve(document, budget={"ram": 13}, time_limit=2)
    assert (result.status, result.least_budget.size, result.least_budget.task) == ("infeasible", 14, 1)
    assert remat.solve(document, budget={"ram": 14}, time_limit=2).report is not None
    del tasks[1][next(iter(here))]
    tasks[1]["time"] = 1
    assert remat.solve(document, budget={"ram": 13}, time_limit=2).report is not None


def draw_dag(chance):
    """Draw a tiny task graph with alternatives, in-place and non-recomputable tasks, pinned inputs."""
    sizes = {f"v{i}": chance.choice((0, 1, 2, 3, 5)) for i in range(chance.randint(2, 5))}
    inputs = chance.sample(list(sizes), chance.randint(0, 2))
    available, tasks = list(inputs), []
    for i in range(chance.randint(1, 5)):
        task = {"id": f"t{i}", "time": chance.randint(0, 4), "required": chance.random() < 0.35}
        task["reads"] = chance.sample(available, min(len(available), chance.choice((0, 1, 2))))
        task["writes"] = chance.sample(list(sizes), chance.choice((1, 1, 2)))
        task |= {"workspace": chance.choice((0, 0, 2)), "in_place": chance.random() < 0.3}
        task["recomputable"] = chance.random() < 0.85
        available += [name for name in task["writes"] if name not in available]
        tasks.append(task)
    rest = [name for name in sizes if name not in available]
    if rest:
        tasks.append({"id": "rest", "time": 1, "writes": rest, "required": False})
    return dag(
        tasks,
        sizes,
        inputs=inputs,
        pinned_inputs=[name for name in inputs if chance.random() < 0.3],
        outputs=chance.sample(available, min(len(available), chance.choice((0, 1, 2)))),
        static_memory=chance.choice((0, 0, 3)),
    )


@pytest.mark.parametrize("chunk", range(4))
def test_no_schedule_beats_the_bounds(chunk):
    chance = random.Random(f"bounds {chunk}")
    tight_time = tight_memory = schedules = 0
    for _ in range(300):
        case = Case(draw_dag(chance))
        best = search.chain_best(case.document, PLENTY)
        if best is None:
            continue
        schedules += 1
        bound = makespan_bound(case.graph, case.machine)
        assert bound <= best
        tight_time += bound == best
        least = search.chain_least_budget(case.document)
        (memory,) = memory_bounds(case.graph, case.machine)
        assert memory is None or memory.size <= least
        tight_memory += memory is not None and memory.size == least
    # Bounds that never bind would pass, too.
    assert tight_time > 0.8 * schedules
    assert tight_memory > 0.5 * schedules


@settings(max_examples=40, deadline=None)
@given(chains())
def test_with_plenty_of_memory_a_chain_takes_the_no_recompute_time(document):
    document = {key: value for key, value in document.items() if key != "machine"}
    document["stages"] = [stage | {"repeat": 1} for stage in document["stages"][:3]]
    graph, machine = lower(load(document)), machine_of(load(document))
    reference = no_recompute_time(graph)
    assert reference == pytest.approx(search.chain_best(document, PLENTY))
    assert reference == pytest.approx(referee.no_recompute_time(lowering.lower(document)))
    assert makespan_bound(graph, machine) <= reference * (1 + 1e-12)
    (bound,) = memory_bounds(graph, machine)
    assert bound.size <= search.chain_least_budget(document)


@settings(max_examples=40, deadline=None)
@given(trees())
def test_bounds_of_trees_equal_the_oracle(document):
    document = {key: value for key, value in document.items() if key not in ("machine", "parallel")}
    graph, machine = lower(load(document)), machine_of(load(document))
    total = sum(document.get("time", [1] * len(document["parent"])))
    assert no_recompute_time(graph) == pytest.approx(total)
    assert makespan_bound(graph, machine) == pytest.approx(total)
    (bound,) = memory_bounds(graph, machine)
    assert bound.size <= search.chain_least_budget(document)


@pytest.mark.parametrize(
    "tasks",
    [
        # The only required task writes back what it reads: someone must make it first.
        [("t0", [], ["v"], False, 2), ("t1", ["v"], ["v"], True, 3)],
        # The cheapest producers wait for each other; the dear one can run first.
        [("t0", [], ["a"], False, 9), ("t1", ["a"], ["b"], True, 1), ("t2", ["b"], ["a"], False, 1)],
    ],
)
def test_what_is_chosen_to_run_once_can_run(tasks: list[tuple[str, list[str], list[str], bool, int]]) -> None:
    values = sorted({name for _, reads, writes, _, _ in tasks for name in (*reads, *writes)})
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "values": [{"id": name, "size": 1} for name in values],
        "tasks": [
            {"id": name, "reads": reads, "writes": writes, "required": required, "time": time}
            for name, reads, writes, required, time in tasks
        ],
    }
    result = remat.solve(document, algorithm="keep-all")
    assert result.report is not None
    assert result.makespan == result.no_recompute_time == tasks[0][4] + tasks[1][4]


def test_a_producer_that_a_later_choice_makes_redundant_does_not_count() -> None:
    # x is read first, and its cheapest producer does not write s, which the cheapest producer of y needs.
    tasks = [
        {"id": "plain", "time": 1, "reads": [], "writes": ["x"], "required": False},
        {"id": "saving", "time": 1, "reads": [], "writes": ["x", "s"], "required": False},
        {"id": "loss", "time": 0, "reads": ["x"], "writes": ["g"]},
        {"id": "fast", "time": 2, "reads": ["g", "s"], "writes": ["y"], "required": False},
        {"id": "slow", "time": 9, "reads": ["g", "x"], "writes": ["y"], "required": False},
        {"id": "last", "time": 0, "reads": ["y"], "writes": []},
    ]
    case = Case(dag(tasks, {"x": 1, "s": 1, "g": 1, "y": 1}))
    assert no_recompute_time(case.graph) == 3


def test_whole_times_of_copies_add_up_exactly_beyond_int64() -> None:
    layers = [{"forward_time": 2**59 + 1, "backward_time": 2**59 + 1}] * 2
    cluster = {"devices": [{"name": "gpu", "count": 2}], "levels": [{"devices": 2}, {}]}
    document = {"kind": "pipeline", "layers": layers, "micro_batches": 6, "cluster": cluster, "copies": 2}
    result = remat.solve(remat.load({"schema": "remat.instance/3", **document}), algorithm="1f1b")
    assert result.no_recompute_time == 24 * (2**59 + 1)
    assert result.recompute_time == 0
