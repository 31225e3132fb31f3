"""Algorithms for several processors on drawn instances: no claim that another one refutes, and no error."""

import copy

import pytest

import remat
from remat.plugin.proposal import ALL_SCHEDULES
from remat_algorithms.parallel.placement.tarnawski_latency import ONCE_STRAIGHT
from tests.algorithms.parallel import drawn
from tests.oracles import placements, referee

ON_GRAPHS = ("tarnawski-latency", "dag-list-memory", "keep-all", "offload-exact")
ON_STREAMS = ("tarnawski-dp", "tarnawski-ip", "placement-replicated", "placement-bound")
ON_TREES = (
    "all-to-all",
    "dag-list-memory",
    "liu",
    "mem-booking",
    "memory-aware",
    "par-deepest-first",
    "par-inner-first",
    "par-subtrees",
    "proportional",
)
ON_PIPELINES = (
    "1f1b",
    "adapipe",
    "gpipe",
    "optpipe",
    "pipe-exact",
    "pipe-plan",
    "pipe-search",
    "pipeoffload",
    "piper",
    "tarnawski-dp",
    "tessel",
    "varuna",
)


def put_to_the_test(make, seed, names):
    """Solve an instance drawn from a seed; return the number of schedules found."""
    document = make(seed)
    if not drawn.loads(document):
        return 0
    verdict = drawn.solve_all(document, drawn.budget_of(seed, document), names)
    assert not verdict.wrong, verdict.wrong
    return len(verdict.found)


def graphs(seed):
    return put_to_the_test(drawn.graph, seed, ON_GRAPHS + ON_STREAMS)


def trees(seed):
    return put_to_the_test(drawn.tree, seed, ON_TREES)


def pipelines(seed):
    return put_to_the_test(drawn.pipeline, seed, ON_PIPELINES)


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_claims_on_graphs(first):
    assert sum(map(graphs, range(first, first + 20))) > 10


@pytest.mark.parametrize("first", range(0, 30, 15))
def test_claims_on_trees(first):
    assert sum(map(trees, range(first, first + 15))) > 30


@pytest.mark.parametrize("first", range(0, 4, 2))
def test_claims_on_pipelines(first):
    assert sum(map(pipelines, range(first, first + 2))) > 2


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 3_000, 50))
def test_claims_on_graphs_often(first):
    assert sum(map(graphs, range(first, first + 50))) > 30


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_400, 50))
def test_claims_on_trees_often(first):
    assert sum(map(trees, range(first, first + 50))) > 200


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_400, 20))
def test_claims_on_pipelines_often(first):
    assert sum(map(pipelines, range(first, first + 20))) > 30


# --- streams, against all placements ----------------------------------------------------------------------------------


def known_to_the_oracle(document):
    """Whether all inputs are parameters, all tasks run, values have one origin, and there is little to try."""
    if "stream" not in document or not drawn.loads(document):
        return False
    made = [value for task in document["tasks"] for value in task["writes"]]
    few = len(document["tasks"]) < 4 and len(document["machine"]["processors"]) < 4
    placed = all(isinstance(place, dict) and place["memory"] == "any" for place in document["inputs"])
    every = all(task.get("required") is not False for task in document["tasks"])
    static = any("static" in memory for memory in document["machine"]["memories"])
    in_place = any("in_place" in task for task in document["tasks"])
    return few and placed and every and not static and not in_place and len(set(made)) == len(made)


def streams(seed):
    """Compare bounds and proofs with what the best of all placements takes; return whether there is one."""
    document = drawn.graph(seed)
    if not known_to_the_oracle(document):
        return 0
    budget = drawn.budget_of(seed, document)
    limited = copy.deepcopy(document)
    if budget is not None:
        home = limited["machine"]["processors"][0]["memory"]
        next(memory for memory in limited["machine"]["memories"] if memory["name"] == home)["capacity"] = budget
    again, two = placements.least(limited, again=True), placements.least(limited, samples=2)
    times = [float(time) for time in (again, two) if time is not None]
    of_class = {
        "placements of each task on one processor": placements.least(limited),
        "contiguous placements": placements.least(limited, contiguous=True),
        ALL_SCHEDULES: min(times, default=None),
    }
    for name in ON_STREAMS:
        try:
            result = remat.solve(
                copy.deepcopy(document), algorithm=name, budget=budget, options=drawn.WORK.get(name, {})
            )
        except remat.RematError:
            continue
        if times:
            assert result.status != "infeasible", name
        for bound in result.bounds:
            best = of_class.get(bound.scope)
            assert best is None or bound.value <= float(best) * (1 + 1e-9), (name, bound)
        if result.makespan is None and result.scope in of_class:
            assert of_class[result.scope] is None, name
    return bool(times)


def test_bounds_of_streams():
    assert sum(map(streams, [*range(300), 8481])) > 3


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 9_000, 400))
def test_bounds_of_streams_often(first):
    assert sum(map(streams, range(first, first + 400))) > 3


# --- what was wrong ---------------------------------------------------------------------------------------------------


def graph_of(tasks, sizes, **rest):
    """Return a graph of tasks (name, time, reads, writes)."""
    listed = [dict(zip(("id", "time", "reads", "writes"), task, strict=True)) for task in tasks]
    values = [{"id": value, "size": size} for value, size in sizes.items()]
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "tasks": listed,
        "values": values,
    } | rest


def latency(document, budget=None):
    result = remat.solve(
        document, algorithm="tarnawski-latency", options=drawn.WORK["tarnawski-latency"], budget=budget
    )
    if result.makespan is not None:
        verdict = referee.check(document, result.to_dict(), budget)
        assert verdict.ok, verdict.violations
    return result


def test_inputs_go_after_their_last_use():
    document = graph_of(
        [("t0", 3, ["x"], ["a"]), ("t1", 2, ["a"], ["b"])],
        {"x": 6, "y": 5, "a": 2, "b": 6},
        inputs=["x", "y"],
        outputs=["b"],
    )
    assert latency(document, 11).makespan == 5
    assert latency(document | {"pinned_inputs": ["y"]}, 13).makespan == 5
    assert latency(document | {"pinned_inputs": ["x"]}, 14).makespan == 5


def machine_of(memories, processors, links):
    return {
        "memories": [{"name": name} | ({} if size is None else {"capacity": size}) for name, size in memories.items()],
        "processors": [{"name": name, "memory": memory} for name, memory in processors.items()],
        "links": [{"source": source, "target": target, "bandwidth": rate} for source, target, rate in links],
    }


def test_parameters_that_could_be_copied_are_no_proof_over_all_schedules():
    """One copy of the parameters, read by tasks that are tied to processors of two memories."""
    machine = machine_of({"m": 20, "n": 20}, {"p": "m", "q": "n"}, [("m", "n", 1), ("n", "m", 1)])
    document = graph_of([("t0", 3, ["w"], []), ("t1", 2, ["w"], [])], {"w": 4}, machine=machine)
    document["inputs"] = [{"value": "w", "memory": "any"}]
    document["tasks"][0]["on"], document["tasks"][1]["on"] = ["p"], ["q"]
    result = latency(document)
    assert (result.status, result.scope) == ("unknown", ONCE_STRAIGHT)


def test_steps_follow_what_they_wait_for_where_times_are_rounded():
    """A copy takes half a unit next to times of 2^52: its zero-time reader starts at the same instant."""
    machine = machine_of({"m": None, "n": None}, {"p": "m", "q": "n"}, [("m", "n", 2), ("n", "m", 1)])
    tasks = [("t0", 2**52 + 2, ["x"], ["a"]), ("t1", 0, ["x", "a"], ["b"])]
    document = graph_of(tasks, {"x": 3, "a": 1, "b": 3}, machine=machine, inputs=["x"], pinned_inputs=["x"])
    document["tasks"][1]["on"] = ["q"]
    assert latency(document).makespan is not None


def test_what_comes_by_way_of_another_memory_is_dropped_there():
    """Two hops take no time next to one of 2^52, from a memory without a processor."""
    links = [("m", "a", 1), ("a", "m", 1), ("a", "c", 1), ("c", "a", 1)]
    machine = machine_of({"m": None, "a": None, "c": None}, {"p": "m"}, links)
    for link in machine["links"][:3]:
        del link["bandwidth"]
    document = graph_of([("t0", 2**52 + 6, ["x", "y"], ["b"])], {"x": 4, "y": 4, "b": 5}, machine=machine)
    document |= {"inputs": ["x", {"value": "y", "memory": "c"}], "outputs": ["x"]}
    assert latency(document).makespan is not None


def test_what_no_link_reaches_is_not_placed_there():
    machine = machine_of({"m": 20, "n": 20, "far": 20}, {"p": "m", "q": "n"}, [("m", "n", 1), ("n", "m", 1)])
    document = graph_of([("t0", 3, ["x"], ["a"])], {"x": 4, "a": 1}, machine=machine)
    assert latency(document | {"inputs": ["x"], "outputs": [{"value": "a", "memory": "far"}]}).makespan is None
    assert latency(document | {"inputs": [{"value": "x", "memory": "far"}]}).makespan is None
    assert latency(document | {"inputs": [{"value": "x", "memory": "n"}]}).makespan == 3


def test_collectives_are_refused_before_anything_begins():
    machine = machine_of({"m": 20, "n": 20}, {"p": "m", "q": "n"}, [("m", "n", 1), ("n", "m", 1)])
    document = graph_of([("t0", 3, [], ["a"])], {"a": 1, "b": 1}, machine=machine)
    parts = [{"reads": [], "writes": ["b"]}, {"reads": [], "writes": ["b"]}]
    document["tasks"].append({"id": "gather", "time": 2, "parts": parts})
    with pytest.raises(remat.OptionError, match="collective"):
        latency(document)


def stream_of(copies, capacity, tasks=3):
    memories = {f"m{k}": capacity for k in range(3)}
    links = [(one, other, None) for one in memories for other in memories if one != other]
    machine = machine_of(memories, {f"p{k}": f"m{k}" for k in range(3)}, links)
    for link in machine["links"]:
        del link["bandwidth"]
    document = graph_of([(f"t{k}", 4, ["w"], []) for k in range(tasks)], {"w": 6}, machine=machine, stream=2)
    return document | {"inputs": [{"value": "w", "memory": "any", "copies": copies}]}


@pytest.mark.parametrize("name", ON_STREAMS)
def test_tasks_that_share_parameters_hold_them_once(name):
    """Three tasks read one parameter of several copies: each memory holds it once, and a third copy does not fit."""
    for copies in (1, 2, 3):
        document = stream_of(copies, 7)
        document["machine"]["memories"][2]["capacity"] = 1
        result = remat.solve(document, algorithm=name, options=drawn.WORK.get(name, {}))
        assert result.status != "infeasible", (copies, result.notes)
        assert result.lower_bound <= 12 / min(copies, 2)


def test_a_trip_to_the_host_in_vain_is_none():
    """Layers that recompute one by one, all ahead of the backward, make what waited at the host."""
    sizes = ((1, 5, 2, 1), (5, 6, 1, 3), (6, 5, 1, 1), (1, 1, 6, 0), (2, 8, 2, 2), (2, 6, 4, 0))
    parameters, workspaces = (2, 0, 1, 0, 0, 1), ((0, 0), (2, 2), (3, 0), (0, 0), (1, 2), (0, 0))
    keys = ("forward_time", "backward_time", "saved_size", "output_size")
    layers = [
        dict(zip(keys, own, strict=True))
        | {"parameter_size": size, "forward_workspace": work[0], "backward_workspace": work[1]}
        for own, size, work in zip(sizes, parameters, workspaces, strict=True)
    ]
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "layers": layers,
        "micro_batches": 2,
        "cluster": {
            "devices": [{"name": "g", "count": 2}],
            "levels": [{"latency": 1}],
            "host": {"bandwidth": 3},
        },
    }
    result = remat.solve(document, algorithm="pipe-plan", budget=25, options={"moves": 100, "zoo": False})
    assert result.makespan is not None
