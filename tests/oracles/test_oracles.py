"""The lowering and the searches against the reference values and cases worked by hand."""

import json
import random

import pytest

from tests import places

from . import search
from .lowering import Link, lower, machine
from .placer import with_starts
from .referee import check, no_recompute_time

REFERENCE = places.REFERENCE


def reference(name):
    return json.loads((REFERENCE / f"{name}.json").read_text())


CHAINS = reference("chain")["cases"]
ADJOINTS = reference("adjoint")
TREES = reference("tree")


def named(cases, every=()):
    """Cases by name; those that are only among `every` are slow."""
    fast = [pytest.param(case, id=case["instance"]["name"]) for case in cases]
    more = [case for case in every if case not in cases]
    return fast + [pytest.param(case, id=case["instance"]["name"], marks=pytest.mark.slow) for case in more]


def small(cases, stages):
    return [case for case in cases if len(case["instance"]["stages"]) <= stages]


# --- lowering -----------------------------------------------------------------------------------------------------


def test_the_oracle_lowers_a_chain_as_by_hand():
    stage = {"forward_time": 3, "backward_time": 5, "output_size": 7, "saved_size": 2, "forward_workspace": 1}
    other = stage | {
        "saving_forward_time": 4,
        "saving_workspace": 6,
        "backward_workspace": 8,
        "gradient_size": 9,
        "backward_reads": ["output"],
    }
    document = {
        "kind": "chain",
        "input_size": 10,
        "stages": [stage | {"repeat": 2}, other],
        "loss": {"time": 1, "workspace": 2},
        "in_place": True,
        "input_gradient": False,
        "static_memory": 11,
    }
    graph = lower(document)
    assert graph.values == {
        "x0": 10,
        "x1": 7,
        "x2": 7,
        "x3": 7,
        "s1": 2,
        "s2": 2,
        "s3": 2,
        "y0": 0,
        "y1": 7,
        "y2": 7,
        "y3": 9,
    }
    assert list(graph.tasks) == ["F1", "Fe1", "F2", "Fe2", "F3", "Fe3", "loss", "B3", "B2", "B1"]
    assert all(task.in_place for task in graph.tasks.values())
    forward, saving, loss = graph.tasks["F3"], graph.tasks["Fe3"], graph.tasks["loss"]
    assert (forward.time, forward.reads, forward.writes, forward.workspace) == (3, ("x2",), ("x3",), 1)
    assert (saving.time, saving.reads, saving.writes, saving.workspace) == (4, ("x2",), ("x3", "s3"), 6)
    assert (loss.time, loss.reads, loss.writes, loss.workspace) == (1, ("x3",), ("y3",), 2)
    assert graph.tasks["Fe1"].workspace == 1
    assert set(graph.tasks["B3"].reads) == {"y3", "x3"}
    assert graph.tasks["B3"].workspace == 8
    assert set(graph.tasks["B1"].reads) == {"y1", "x0", "x1", "s1"}
    assert graph.tasks["B1"].writes == ("y0",)
    once = {name for name, task in graph.tasks.items() if task.once}
    assert once == {name for name, task in graph.tasks.items() if task.required} == {"loss", "B1", "B2", "B3"}
    assert graph.inputs == [("x0", "memory")]
    assert graph.outputs == [("y0", "memory")]
    assert graph.static == 11
    # Fe1 and Fe2 must save; x3 comes from the cheaper F3.
    assert no_recompute_time(graph) == 3 + 3 + 3 + 1 + 15


def test_the_oracle_lowers_an_adjoint_as_by_hand():
    document = {"kind": "adjoint", "steps": 3, "forward_time": 2, "backward_time": 3, "state_size": 4}
    document["adjoint_size"] = 5
    graph = lower(document)
    assert graph.values == {"x0": 4, "x1": 4, "x2": 4, "y0": 5, "y1": 5, "y2": 5}
    assert list(graph.tasks) == ["F1", "F2", "loss", "B2", "B1"]
    loss = graph.tasks["loss"]
    assert (loss.time, loss.reads, loss.writes, loss.in_place) == (3, ("x2",), ("y2",), True)
    assert set(graph.tasks["B2"].reads) == {"x1", "y2"}
    assert graph.tasks["B2"].writes == ("y1",)
    alone = lower(document | {"steps": 1})
    assert list(alone.tasks) == ["loss"]
    assert alone.values == {"x0": 4, "y0": 5}


def test_adjoint_lowering_per_step():
    steps = [{"state_size": 1, "forward_time": 9}, {"state_size": 2, "backward_time": 7}, {"adjoint_size": 8}]
    document = {"kind": "adjoint", "steps": steps, "forward_time": 2, "backward_time": 3, "state_size": 4}
    graph = lower(document)
    assert graph.values == {"x0": 1, "x1": 2, "x2": 4, "y0": 1, "y1": 2, "y2": 8}
    assert [graph.tasks[name].time for name in ("F1", "F2", "loss", "B2", "B1")] == [9, 2, 3, 7, 3]
    taped = lower(document | {"tape_size": 6})
    assert taped.values == graph.values | {"x3": 4, "y3": 8, "s1": 6, "s2": 6, "s3": 6}
    assert [taped.tasks[f"Fe{i}"].time for i in (1, 2, 3)] == [9, 2, 2]
    assert taped.tasks["loss"].time == 0
    assert set(taped.tasks["B3"].reads) == {"y3", "s3"}
    assert lower(document | {"tape_size": 6, "tape_time": 5}).tasks["Fe1"].time == 5


def test_storage_becomes_a_machine_as_by_hand():
    document = {"kind": "adjoint", "steps": [{"state_size": 3}, {}], "forward_time": 1, "backward_time": 1}
    document |= {"state_size": 2, "adjoint_size": 5, "tape_size": 7}
    document["storage"] = [
        {"name": "ram", "slots": 4},
        {"name": "disk", "capacity": 100, "write_time": 2, "read_time": 1, "bandwidth": 3, "channel": "bus"},
        {"name": "tape"},
    ]
    built = machine(document)
    assert built.memories == {"working": 3 + 5 + 7, "ram": 12, "disk": 100, "tape": None}
    assert built.processors == {"processor": "working"}
    assert built.link("working", "ram") == Link("working", "ram", None, 0, "processor")
    assert built.link("working", "disk") == Link("working", "disk", 3, 2, "bus")
    assert built.link("disk", "working").duration(3) == 2
    assert built.link("ram", "disk") is None
    assert machine(document, budget=1).memories["ram"] == 1
    assert lower(document).inputs == [("x0", "working")]
    assert lower(document | {"initial_state": "disk"}).inputs == [("x0", "working"), ("x0", "disk")]


def test_dag_and_tree_lowering():
    document = {
        "kind": "dag",
        "values": [{"id": "in", "size": 2}],
        "tasks": [
            {"id": "slow", "time": 3, "reads": ["in"], "size": 4},
            {"id": "fast", "time": 1, "reads": ["in"], "writes": ["slow"], "required": False},
        ],
        "inputs": ["in", {"value": "in", "memory": "far"}],
        "outputs": [{"value": "slow"}],
    }
    graph = lower(document)
    assert graph.values == {"in": 2, "slow": 4}
    assert graph.inputs == [("in", "memory"), ("in", "far")]
    assert graph.outputs == [("slow", "memory")]
    assert no_recompute_time(graph) == 3
    document["tasks"][0] |= {"size": 4, "required": False}
    assert no_recompute_time(lower(document)) == 1

    tree = {"kind": "tree", "parent": [2, 2, -1], "output_size": [1, 2, 3], "workspace": [4, 5, 6]}
    inward, outward = lower(tree), lower(tree | {"orientation": "out", "time": [7, 8, 9]})
    assert inward.tasks["T2"].reads == ("v0", "v1")
    assert inward.tasks["T2"].writes == ("v2",)
    assert inward.outputs == [("v2", "memory")]
    assert inward.inputs == []
    assert outward.tasks["T2"].reads == ("v2",)
    assert outward.tasks["T2"].writes == ("v0", "v1")
    assert outward.inputs == [("v2", "memory")]
    assert outward.outputs == []
    assert [task.time for task in inward.tasks.values()] == [1, 1, 1]
    assert [task.time for task in outward.tasks.values()] == [7, 8, 9]


def test_machines_are_built_as_by_hand():
    given = {
        "memories": [{"name": "device", "capacity": 8}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device", "count": 2}, {"name": "cpu", "memory": "host"}],
        "links": [{"source": "device", "target": "host", "bandwidth": 4}, {"source": "host", "target": "device"}],
    }
    built = machine({"kind": "dag", "machine": given}, budget=5)
    assert built.memories == {"device": 5, "host": None}
    assert built.processors == {"gpu0": "device", "gpu1": "device", "cpu": "host"}
    there, back = built.links
    assert there.channel != back.channel
    assert there.duration(8) == 2
    assert there.duration(6) == 1.5
    assert isinstance(there.duration(8), int)
    assert back.duration(10**9) == 0
    assert machine({"kind": "chain"}).memories == {"memory": None}


# --- chains -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", named(CHAINS))
def test_time_without_recompute(case):
    assert no_recompute_time(lower(case["instance"])) == case["time_without_recompute"]


@pytest.mark.parametrize("case", named(small(CHAINS, 12)))
def test_persistent_optima_equal_published_ones(case):
    for budget in case["budgets"]:
        assert search.persistent_best(case["instance"], budget["budget"]) == budget["opt_persistent"]


@pytest.mark.parametrize("case", named(small(CHAINS, 4), small(CHAINS, 5)))
def test_exhaustive_optima_equal_published_ones(case):
    for budget in case["budgets"]:
        found = search.chain_best(case["instance"], budget["budget"])
        # The reference keeps outputs and saved values together; on these chains that costs nothing.
        assert found == budget["opt_exhaustive"]
    least = search.chain_least_budget(case["instance"])
    assert least == min(budget["budget"] for budget in case["budgets"] if budget["feasible"])


@pytest.mark.parametrize("case", named(small(CHAINS, 4)))
def test_the_schedules_found_are_what_they_claim(case):
    for budget in case["budgets"]:
        if budget["feasible"]:
            document, size = case["instance"], budget["budget"]
            steps = with_starts(document, search.chain_best_steps(document, size), size)
            report = check(document, steps, size)
            assert report.violations == []
            assert report.peaks["memory"] <= size
            assert report.makespan == search.chain_best(document, size)
            assert report.recompute_time == report.makespan - case["time_without_recompute"]


def random_graph(chance):
    """A small graph with alternatives, in-place tasks, pinned inputs and tasks that run only once."""
    values = [f"v{i}" for i in range(5)]
    tasks = []
    for i, name in enumerate([*values, chance.choice(values[1:])]):
        before = [value for value in values if value < name] + ["in"]
        tasks.append(
            {
                "id": f"t{i}",
                "time": chance.randint(0, 5),
                "reads": chance.sample(before, min(len(before), chance.randint(1, 2))),
                "writes": [name],
                "workspace": chance.randint(0, 3),
                "in_place": chance.random() < 0.4,
                "required": i < 5 and chance.random() < 0.6,
                "once": chance.random() < 0.2,
                "recomputable": chance.random() < 0.8,
            }
        )
    return {
        "kind": "dag",
        "values": [{"id": name, "size": chance.randint(0, 5)} for name in ["in", *values]],
        "tasks": tasks,
        "inputs": ["in"],
        "pinned_inputs": ["in"] if chance.random() < 0.5 else [],
        "outputs": [chance.choice(values)],
    }


def test_optima_of_random_graphs_are_consistent():
    for seed in range(60):
        document = random_graph(random.Random(seed))
        least = search.chain_least_budget(document)
        assert least is not None
        assert search.chain_best(document, least - 1) is None
        fastest = search.chain_best(document, 10**6)
        for budget in (least, least + 1, least + 3):
            steps = with_starts(document, search.chain_best_steps(document, budget), budget)
            report = check(document, steps, budget)
            assert report.violations == []
            assert report.makespan == search.chain_best(document, budget) >= fastest
            if budget == least:
                assert report.peaks["memory"] == least


# --- the lecture's adjoint, l = 5 ---------------------------------------------------------------------------------

LECTURE = {"kind": "adjoint", "steps": 6, "forward_time": 1, "backward_time": 0, "state_size": 1}


def with_checkpoints(kept):
    """Steps that keep these states on the first sweep, and recompute the others from the nearest one."""
    steps, resident = [], {0}
    for back in range(5, -1, -1):
        if back not in resident:
            state = max(index for index in resident if index <= back)
            for index in range(state, back):
                keep = index in kept
                steps.append({"run": f"F{index + 1}", "drop": [] if keep else [f"x{index}"]})
                resident.add(index + 1)
                if not keep:
                    resident.discard(index)
        if back == 5:
            steps.append({"run": "loss", "drop": ["x5"]})
        else:
            steps.append({"run": f"B{back + 1}", "drop": [f"x{back}", f"y{back + 1}"]})
        resident.discard(back)
    return steps


@pytest.mark.parametrize(("strategy", "kept"), [("store_all", range(6)), ("recompute_all", [0]), ("hybrid", [0, 2])])
def test_the_lectures_strategies(strategy, kept):
    report = check(LECTURE, with_starts(LECTURE, with_checkpoints(set(kept))))
    expected = ADJOINTS["slides_example"][strategy]
    assert report.violations == []
    assert report.peaks == {"memory": expected["peak"]}
    assert report.recompute_time == expected["recompute"]


def test_the_lectures_optima():
    for peak, recompute in ADJOINTS["slides_example"]["exact_peak_optimum"].items():
        found = search.chain_best(LECTURE, int(peak))
        assert found == (None if recompute is None else 5 + recompute)
    for slots, recompute in ADJOINTS["slides_example"]["slots_optimum"].items():
        assert search.adjoint_best_advances(6, int(slots)) == 5 + recompute
    for point in ADJOINTS["points"]["slides_exact_memory"]:
        if point["l"] <= 5:
            found = search.chain_best(LECTURE | {"steps": point["l"] + 1}, point["peak"])
            assert found == (point["l"] + point["min_recompute"] if point["feasible"] else None)


# --- adjoints with levels -----------------------------------------------------------------------------------------


def test_advances_equal_published_ones():
    points = [point for point in ADJOINTS["points"]["revolve"] if point["n"] <= 6]
    assert len(points) >= 4
    for point in points:
        assert search.adjoint_best_advances(point["n"], point["snapshots"]) == point["advances"]
    assert search.adjoint_best_advances(8, 1) == 8 * 7 // 2
    assert search.adjoint_best_advances(8, 2) == 14  # r = 3: 3 * 8 - beta(3, 2)
    assert search.adjoint_best_advances(3, 0) is None


def test_costs_of_levels_equal_published_ones():
    points = ADJOINTS["points"]
    for point in points["hrevolve"]:
        n = point["l"] + 1
        if n <= 7:
            levels = list(zip(point["slots"], point["write"], point["read"], strict=True))
            found = search.adjoint_best_cost([point["uf"]] * (n - 1), [point["ub"]] * n, levels)
            assert found == point.get("exhaustive", point["optimal"])
    for point in points["disk_revolve"]:
        if point["l"] <= 5:
            levels = [(point["c"], 0, 0), (point["l"] + 1, point["wd"], point["rd"])]
            found = search.adjoint_best_cost([point["uf"]] * point["l"], [point["ub"]] * (point["l"] + 1), levels)
            assert found == point["optimal"]
    for point in points["revolve_1d"]:
        if point["l"] <= 5:
            # x0 on the disk, which takes nothing else.
            found = search.adjoint_best_cost(
                [point["uf"]] * point["l"],
                [point["ub"]] * (point["l"] + 1),
                [(point["c"], 0, 0), (1, 10**6, point["rd"])],
                initial_level=1,
            )
            assert found == point["opt1"]
    for point in points["heterogeneous_time"]:
        if point["l"] <= 6:
            assert search.adjoint_best_cost(point["uf"], point["ub"], [(point["c"], 0, 0)]) == point["optimal"]


# --- trees and orders ---------------------------------------------------------------------------------------------


def test_peaks_of_trees_equal_published_ones():
    for case in TREES["trees"]:
        tree = case["instance"]
        arguments = tree["parent"], tree["output_size"], tree["workspace"]
        if len(tree["parent"]) <= 9:
            assert search.tree_best_postorder(*arguments) == case["best_postorder_peak"]
            assert search.tree_best_traversal(*arguments) == case["optimal_peak"]
            # The same through the lowering: a tree is a graph in which everything runs once.
            assert search.dag_best_order_peak(tree) == case["optimal_peak"]
    for case in TREES["closed_form"]:
        assert search.tree_best_traversal(case["parent"], case["f"], case["m"]) == case["peak"]


def test_tree_reversed_has_the_same_peak():
    for case in TREES["trees"]:
        if len(case["instance"]["parent"]) <= 7:
            assert search.dag_best_order_peak(case["instance"] | {"orientation": "out"}) == case["optimal_peak"]


def test_post_order_is_not_optimal():
    # The family T_1 with two branches: root, then u <- v <- w in each branch.
    parent, f = [-1, 0, 1, 2, 0, 4, 5], [0, 60, 1, 120, 60, 1, 120]
    case = TREES["adversarial"][0]
    assert search.tree_best_postorder(parent, f, [0] * 7) == case["best_postorder_peak"] == 181
    assert search.tree_best_traversal(parent, f, [0] * 7) == case["optimal_peak"] == 122


def order_document(case):
    """A reference graph as an instance: one output per task, the sinks' stay."""
    sources = {source for source, _ in case["edges"]}
    return {
        "kind": "dag",
        "tasks": [
            {
                "id": str(i),
                "time": 1,
                "size": case["f"][i],
                "workspace": case["m"][i],
                "reads": [str(source) for source, target in case["edges"] if target == i],
            }
            for i in range(case["n"])
        ],
        "outputs": [str(i) for i in range(case["n"]) if i not in sources],
    }


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in TREES["dags"] if case["n"] <= 20])
def test_peaks_of_orders_equal_published_ones(case):
    assert search.dag_best_order_peak(order_document(case)) == case["optimal_peak"]
