"""Builders make the instance that the document makes, and refuse wrong arguments by their names."""

import contextlib
import io
import random
import re

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import remat
from remat import InstanceError
from remat.instance import digest, instance_document
from remat.instance.adjoint import Step
from remat.instance.chain import Stage
from remat.instance.cluster import ClusterModel
from remat.instance.layers import Layer
from remat.instance.lowering import lower
from remat.instance.tasks import Task, Value
from tests.building.builder_calls import builder_call, is_column
from tests.instance import documents
from tests.test_calls import keywords_of

KINDS = {
    "chain": documents.chains() | documents.chains(trained=True, sharded=True),
    "adjoint": documents.adjoints(),
    "dag": documents.dags() | documents.annotated().map(lambda pair: pair[1]),
    "tree": documents.trees(),
    "pipeline": documents.pipelines(),
    "join": documents.joins(),
}
FEW = settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate])
SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(st.data(), SEEDS)
def test_builders_and_documents_give_equal_digests(kind, data, seed):
    expected, build, arguments = builder_call(data.draw(KINDS[kind]), random.Random(seed))
    assert digest(build(**arguments)) == digest(expected)


WRONG = [np.int64(-1), -0.5, float("nan"), float("inf"), -np.inf, "8 bananas", "3 parsecs", "-2GB", "", b"8", True]
WRONG += [np.True_, object(), 2**63, 10**400, 1j, np.array([[1, 2]]), np.datetime64("2020"), {1: 2}, {("a", "b"): 1}]
WRONG_COLUMNS = [
    lambda count: np.ones((count, 2)), lambda count: np.ones(count, dtype=bool), lambda count: np.full(count, np.nan),
    lambda count: np.full(count, -1), lambda count: np.array([object()] * count), lambda count: [1] * (count + 1),
    lambda count: np.ones(count + 1), lambda count: [[1]] * count, lambda count: np.full(count, 2**63, np.uint64),
    lambda count: np.zeros((1, count, 1)), lambda count: {1}, lambda count: np.full(count, 1j),
]  # fmt: skip
NUMBERS = ("forward_time", "backward_time", "output_size", "saved_size", "forward_workspace", "time", "size")
NUMBERS += ("state_size", "adjoint_size", "workspace", "repeat", "static_memory", "input_size", "loss_time")


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(st.data(), SEEDS)
def test_wrong_arguments_are_instance_errors_that_name_them(kind, data, seed):
    draw = random.Random(seed)
    _, build, arguments = builder_call(data.draw(KINDS[kind]), draw)
    key = draw.choice([key for key in arguments if key in NUMBERS] or ["static_memory"])
    given = arguments.get(key)
    if is_column(given) and draw.random() < 0.4:
        arguments[key] = named = draw.choice(WRONG_COLUMNS)(len(given))
        # A column may determine the number of entries of the others; a single column may have any number.
        columns = [name for name in arguments if name in NUMBERS and is_column(arguments[name])]
        if len(named) > len(given) and columns == [key]:
            return
        with pytest.raises(InstanceError):
            build(**arguments)
        return
    if is_column(given) and len(given):
        entries = list(given)
        index, wrong = draw.randrange(len(entries)), draw.choice(WRONG)
        entries[index] = wrong
        arguments[key], named = entries, f"{key}[{index}]"
    else:
        arguments[key], named = draw.choice(WRONG), key
    with pytest.raises(InstanceError) as caught:
        build(**arguments)
    assert caught.value.path == named or caught.value.path.startswith(key)


@pytest.mark.parametrize("kind", KINDS)
@settings(FEW, max_examples=8)
@given(st.data(), SEEDS)
def test_whatever_an_argument_is_there_is_an_instance_or_an_instance_error(kind, data, seed):
    draw = random.Random(seed)
    _, build, arguments = builder_call(data.draw(KINDS[kind]), draw)
    for _ in range(8):
        key, odd = draw.choice(keywords_of(kind)), draw.choice([*WRONG, *ODD, *EMPTY])
        count = len(arguments[key]) if is_column(arguments.get(key)) else 2
        given = draw.choice([odd, [odd] * count, draw.choice(WRONG_COLUMNS)(count)])
        with contextlib.suppress(InstanceError):
            build(**arguments | {key: given})


@FEW
@given(st.data(), SEEDS)
def test_documents_of_numpy_are_documents(data, seed):
    draw = random.Random(seed)
    document = data.draw(documents.documents)
    assert digest(remat.load(numpy_document(document, draw))) == digest(remat.load(document))


def numpy_document(node, draw):
    """A document with some of its numbers, texts and lists as numpy's."""
    if isinstance(node, dict):
        return {key: numpy_document(value, draw) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        if node and set(map(type, node)) in ({int}, {float}) and draw.random() < 0.5:
            return np.array(node)
        return draw.choice([list, tuple])(numpy_document(entry, draw) for entry in node)
    makers = {int: np.int64, float: np.float64, str: np.str_, bool: np.bool_}
    if type(node) not in makers or draw.random() >= 0.3:
        return node
    made = makers[type(node)](node)
    return made if made.item() == node else node  # numpy takes zeros off the end of a text


ODD = [np.array([[1]]), np.datetime64("2020"), object(), {1, 2}, np.complex64(1), {1: 2}, np.array(["a", 1], object)]

EMPTY = [None, [], (), {}, np.array([]), np.array(None), np.array("3"), range(3), iter([1]), nx.DiGraph(), ..., type]


@FEW
@given(st.data(), SEEDS)
def test_whatever_a_document_of_python_has_is_an_instance_or_an_instance_error(data, seed):
    draw = random.Random(seed)
    document = data.draw(documents.documents)
    key = draw.choice(sorted(document))
    with contextlib.suppress(InstanceError):
        remat.load(document | {key: draw.choice(ODD)})


def test_models_take_numbers_of_numpy_and_raise_instance_errors():
    stages = [{"forward_time": np.float32(1.5), "backward_time": 2, "output_size": np.int64(8)}]
    assert remat.ChainInstance(input_size=np.int64(85), stages=stages).input_size == 85
    with pytest.raises(InstanceError, match=r"\$\.input_size: -1 is negative"):
        remat.ChainInstance(input_size=np.int64(-1), stages=stages)


def graph_of(seed, count=12):
    draw = random.Random(seed)
    edges = [(source, target) for target in range(count) for source in range(target) if draw.random() < 0.3]
    nodes = [draw.choice([str, lambda k: (k, "node"), lambda k: k])(k) for k in range(count)]
    graph = nx.DiGraph()
    for node in nodes:
        graph.add_node(node, seconds=draw.choice([1, 0.5, np.float32(2)]), bytes=draw.choice([3, "2kB", np.int64(5)]))
    graph.add_edges_from((nodes[source], nodes[target]) for source, target in edges)
    return graph, nodes, edges


@FEW
@given(SEEDS)
def test_graphs_pairs_and_arrays_give_equal_instances(seed):
    graph, nodes, edges = graph_of(seed)
    times = [graph.nodes[node]["seconds"] for node in nodes]
    sizes = [graph.nodes[node]["bytes"] for node in nodes]
    names = [str(node) for node in nodes]
    of_graph = remat.dag(graph, time="seconds", size="bytes", outputs=nodes[-1:])
    of_pairs = remat.dag(edges, time=times, size=sizes, names=names, outputs=[len(nodes) - 1])
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    of_array = remat.dag(pairs, time=times, size=sizes, names=names, outputs=names[-1:])
    assert digest(of_graph) == digest(of_pairs) == digest(of_array)
    reads = {task.id: set(task.reads) for task in of_graph.tasks}
    assert reads == {str(node): {str(other) for other in graph.pred[node]} for node in nodes}
    assert digest(remat.load(instance_document(of_graph))) == digest(of_graph)


@FEW
@given(SEEDS)
def test_nodes_may_be_values(seed):
    graph, nodes, _ = graph_of(seed)
    both = nx.DiGraph()
    for node in nodes:
        both.add_node(("run", node), seconds=graph.nodes[node]["seconds"])
        both.add_node(("made", node), bytes=graph.nodes[node]["bytes"], is_value=True)
        both.add_edge(("run", node), ("made", node))
        both.add_edges_from((("made", other), ("run", node)) for other in graph.pred[node])
    one = remat.dag(both, time="seconds", size="bytes", values="is_value")
    two = remat.dag(both, time="seconds", size="bytes", values=[("made", node) for node in nodes])
    assert digest(one) == digest(two)
    plain = lower(remat.dag(graph, time="seconds", size="bytes"))
    found = lower(one)
    assert found.reads.to_lists() == plain.reads.to_lists()
    assert found.size.tolist() == plain.size.tolist()
    assert found.time.tolist() == plain.time.tolist()


EDGES = [(0, 1), (1, 2)]
G = nx.DiGraph([("a", "b")])
LISTS = {"reads": [[], [0]], "writes": [[0], [1]], "time": [1, 2], "size": [5, 6]}
CALLS = [
    (remat.dag, {"graph": EDGES, "time": [1, 2, -3], "size": 1}, "time[2]: -3"),
    (remat.dag, {"graph": EDGES, "time": 1, "size": np.array([1, 2.5, 3])}, "size[1]: 2.5"),
    (
        remat.dag,
        {"graph": EDGES, "time": 1, "size": 1, "size_unit": "MiB"},
        "size_unit: 'MiB' is none of B, unit; multiply the sizes by 1,048,576",
    ),
    (remat.dag, {"graph": sparse.coo_array(np.eye(2)), "time": 1, "size": 1}, "graph: a sparse matrix of shape (2, 2)"),
    (remat.dag, {"graph": [(0, 1), (1, 0)], "time": 1, "size": 1}, "graph: the graph has a cycle of 2 tasks: 't0' -> "),
    (remat.dag, {"graph": nx.DiGraph([("a", "a")]), "time": 1, "size": 1}, "graph: the graph has a cycle of 1 task: "),
    (remat.dag, {"reads": [[0]], "writes": [[0]], "time": 1, "size": [1]}, "reads[0]: the graph has a cycle of 1 task"),
    (
        remat.dag,
        {"graph": np.array(EDGES + EDGES).T, "time": 1, "size": 1},
        "graph: an array of shape (2, 4), with",
    ),
    (remat.dag, {"graph": [[0, 1, 2], [1, 2, 3]], "time": 1, "size": 1}, "graph: one sequence of 3 sources and one of"),
    (
        remat.dag,
        {"graph": np.eye(3, dtype=int), "time": 1, "size": 1},
        "graph: an array of shape (3, 3), such as",
    ),
    (remat.dag, {"graph": {0: [1]}, "time": 1, "size": 1}, "graph: a mapping; give networkx.DiGraph(graph)"),
    (remat.dag, {"graph": EDGES, "time": None, "size": 1}, "time: None is not a time"),
    (
        remat.dag,
        {"graph": EDGES, "time": 1, "size": 1, "outputs": {2: "hots"}, "machine": remat.device(9, link=1)},
        "outputs[0].memory: unknown memory 'hots'; did you mean 'host'?",
    ),
    (
        remat.chain,
        {"forward_time": [1, None], "backward_time": 1, "output_size": 1},
        "forward_time[1]: there is no",
    ),
    (remat.adjoint, {"steps": 3, "storage": [None]}, "storage[0]: expected a dict, not None"),
    (remat.dag, {"graph": [(0, 1), (0, 1)], "time": 1, "size": 1}, "graph[1]: 0 is listed twice"),
    (remat.dag, {"graph": [(0, 1, 2)], "time": 1, "size": 1}, "graph[0]: a list of 3 is not a pair"),
    (
        remat.dag,
        {"graph": [("a", "b")], "time": 1, "size": 1},
        "graph[0]: ('a', 'b') is not a pair of node numbers; build",
    ),
    (remat.dag, {"graph": sparse.csr_array(np.eye(2)), "time": 1, "size": 1}, "graph: a sparse matrix of shape (2, 2)"),
    (
        remat.dag,
        {"graph": EDGES, "time": 1, "size": 1, "outputs": "t1"},
        "outputs: expected a sequence of values; write",
    ),
    (remat.tree, {"parent": G, "output_size": 1}, "parent: a graph; give the number of each node's parent"),
    (
        remat.adjoint,
        {"steps": 3, "storage": [{"name": "disk", "bandwith": 3}]},
        "storage[0].bandwith: unknown key; did you mean 'bandwidth'?",
    ),
    (
        remat.machine,
        {"memories": [{"name": "a", "capacty": 1}], "processors": {"p": "a"}},
        "memories[0].capacty: unknown key; did you mean 'capacity'?",
    ),
    (remat.dag, {"graph": [(0, 9)], "time": [1, 1], "size": 1}, "graph[0]: (0, 9) is out of range"),
    (remat.dag, {"graph": G, "time": "t", "size": 1}, "time['a']: node 'a' has no attribute 't'"),
    (remat.dag, {"graph": G, "time": {"a": 1}, "size": 1}, "time['b']"),
    (remat.dag, {"graph": nx.Graph([("a", "b")]), "time": 1, "size": 1}, "graph: the graph is undirected"),
    (remat.dag, {"graph": nx.DiGraph([(1, "1")]), "time": 1, "size": 1}, "graph: nodes 1 and '1' have the same name"),
    (remat.dag, {"graph": EDGES, "time": 1, "size": 1, "names": ["a", "b", "a"]}, "names[2]: 'a' comes twice"),
    (remat.dag, {"graph": EDGES, "time": 1, "size": 1, "outputs": ["t9"]}, "outputs[0]: 't9' is not a value"),
    (remat.dag, {"graph": EDGES, "time": 1, "size": 1, "inputs": []}, ""),
    (remat.dag, {"graph": EDGES, "time": 1, "size": 2**61}, "the sizes of the graph add up"),
    (remat.dag, {"reads": [[], [0]], "writes": [[0], [7]], "time": 1, "size": [1, 1]}, "writes[1][0]: 7"),
    (remat.dag, {"reads": [[], [0]], "writes": [[0]], "time": 1, "size": [1, 1]}, "writes: 1 rows"),
    (remat.dag, {"reads": (np.array([0, 2, 1]), np.array([0])), "writes": [[0], []], "time": 1, "size": [1]}, "reads"),
    (
        remat.dag,
        {"reads": [[]], "writes": [[]], "time": 1, "size": [1], "values": []},
        "values: only nodes of a net",
    ),
    (
        remat.dag,
        {"reads": 3.5, "writes": [[]], "time": 1, "size": [1]},
        "reads: expected a sequence or an array",
    ),
    (
        remat.dag,
        {"graph": EDGES, "time": 1, "size": 1, "names": [["a"], "b", "c"]},
        "names[0]: a list of 1 is not a name",
    ),
    (remat.join, {"chains": np.array("x")}, "chains: expected a sequence of chains"),
    (remat.dag, {"reads": [[]], "time": 1, "size": [1]}, "writes: give a graph, or both reads and writes"),
    (remat.chain, {"forward_time": [1, 2], "backward_time": [1], "output_size": 1}, "backward_time: 1 entries"),
    (remat.chain, {"forward_time": 1, "backward_time": 1, "output_size": 1}, "forward_time: the number of"),
    (remat.chain, {"forward_time": [1], "backward_time": "3 moons", "output_size": 1}, "backward_time: '3 moons'"),
    (remat.chain, {"forward_time": [], "backward_time": 1, "output_size": 1}, "forward_time: there are no entries"),
    (remat.chain, {"forward_time": [1], "backward_time": 1, "output_size": 1, "time_unit": "h"}, "time_unit: 'h'"),
    (remat.tree, {"parent": [-1, 5], "output_size": 1}, "parent[1]: 5 is not a node number"),
    (remat.tree, {"parent": [-1, 0], "output_size": -4}, "output_size: -4 is negative"),
    (remat.adjoint, {"steps": 3, "forward_time": [1, 2]}, "steps: 3, and forward_time has 2 entries"),
    (remat.adjoint, {"steps": 3, "storage": [{"name": "ram", "slots": -2}]}, "storage[0].slots"),
    (remat.adjoint, {}, "steps: give the number of steps"),
    (remat.join, {"chains": [{"forward_time": [1, "x"], "backward_time": 1, "output_size": 1}]}, "chains[0].forward"),
    (remat.join, {"chains": [remat.adjoint(3)]}, "chains[0]"),
    (remat.pipeline, {"forward_time": [1, 1], "backward_time": 1, "devices": 0, "micro_batches": 2}, "devices: 0"),
    (
        remat.pipeline,
        {"forward_time": [1], "backward_time": 1, "devices": ["x"], "micro_batches": 2},
        "devices[0]: 'x'",
    ),
    (
        remat.pipeline,
        {"forward_time": [1], "backward_time": 1, "devices": 1, "micro_batches": 2, "link": -1},
        "link: -1",
    ),
    (remat.machine, {"memories": {"a": -1}, "processors": {"p": "a"}}, "memories[0].capacity: -1"),
    (remat.machine, {"memories": {"a": 1}, "processors": {"p": "b"}}, "processors[0].memory: unknown memory 'b'"),
    (remat.machine, {"memories": {"a": {"size": 1}}, "processors": {"p": "a"}}, "memories[0].size"),
    (remat.machine, {"memories": {"a": 1}, "processors": {"p": {"memory": "a", "speed": 0}}}, "processors[0].speed: 0"),
    (remat.dag, {**LISTS, "on": ["gpu", None]}, "on[0][0]: unknown processor 'gpu'; the machine has"),
    (remat.dag, {**LISTS, "on": ["gpu"]}, "on: 1 entries, and 2 are expected"),
    (remat.dag, {**LISTS, "time": {"a100": 1}}, "time['t0']: there is no entry for it; a mapping has one for each row"),
    (remat.dag, {**LISTS, "reads": [[], ["v"]]}, "reads[1][0]: 'v' is not a value; "),
    (remat.dag, {**LISTS, "parts": [[{"reads": [0]}], None]}, "parts[0]: a collective reads and writes in its parts"),
    (remat.dag, {**LISTS, "parallel": {"max": 0}}, "parallel[0].max: 0"),
    (remat.dag, {**LISTS, "stream": 0}, "stream: 0"),
    (remat.dag, {**LISTS, "origin": [None, {"modul": "a"}]}, "origin[1].modul: unknown key; an origin has module, op"),
    (remat.dag, {**LISTS, "origin": [None, {"op": 3}]}, "origin[1].op: 3 is not a text"),
    (remat.dag, {**LISTS, "origin": [3, None]}, "origin[0]: expected a dict, or the name of a module, not 3"),
    (remat.dag, {**LISTS, "origin": ["a"]}, "origin: 1 entries, and 2 are expected"),
    (remat.dag, {"graph": [(0, 1)], "time": 1, "size": 1, "parts": [None, [{}]]}, "parts[1]: a collective reads"),
    (remat.adjoint, {"steps": 9, "slots": 3}, "slots: remat.adjoint has no such argument; write storage="),
    (remat.pipeline, {"layers": 8}, "layers: remat.pipeline has no such argument; the columns have an entry for each"),
    (remat.dag, {**LISTS, "colour": 3}, "colour: remat.dag has no such argument; its arguments are graph, time"),
    (remat.device, {"capacity": "8 bananas"}, "capacity: '8 bananas'"),
    (remat.device, {"capacity": 8, "host": 64}, "link: a host needs a link"),
]


@pytest.mark.parametrize(("build", "arguments", "text"), [call for call in CALLS if call[2]])
def test_errors_name_argument_index_and_value(build, arguments, text):
    with pytest.raises(InstanceError) as caught:
        build(**arguments)
    assert str(caught.value).startswith(text)


def test_other_objects_are_no_instances():
    with pytest.raises(InstanceError, match=r"not '?networkx\.[\w.]+DiGraph'?; build an instance with remat\.chain"):
        remat.load(nx.DiGraph())


def test_machines_work_in_the_units_of_the_instance():
    machine = remat.device("1MB", host="1GB", link="12GB/s", latency="1us")
    arguments = {"forward_time": [1, 2], "backward_time": 2, "output_size": 8, "machine": machine}
    milliseconds = remat.chain(**arguments, time_unit="ms")
    assert milliseconds.machine is not None
    assert milliseconds.machine.links[0].bandwidth == 12_000_000
    named = remat.machine(
        memories={"device": np.int64(10**6), "host": "1GB"},
        processors={"gpu": "device"},
        links={pair: {"bandwidth": "12GB/s", "latency": "1us"} for pair in (("device", "host"), ("host", "device"))},
    )
    assert digest(remat.chain(**arguments | {"machine": named}, time_unit="ms")) == digest(milliseconds)


DEVICES = {
    "memories": {"big": {"capacity": "16GB", "static": "1GB"}, "small": "4GB"},
    "processors": {"gpu0": {"memory": "big", "type": "a100"}, "gpu1": {"memory": "small", "type": "t4"}},
    "links": {("big", "small"): "12GB/s", ("small", "big"): "12GB/s"},
}


def devices_document(**more):
    """The document of a graph on two devices."""
    machine = {
        "memories": [{"name": "big", "capacity": "16GB", "static": "1GB"}, {"name": "small", "capacity": "4GB"}],
        "processors": [
            {"name": "gpu0", "memory": "big", "type": "a100"},
            {"name": "gpu1", "memory": "small", "type": "t4"},
        ],
        "links": [{"source": a, "target": b, "bandwidth": "12GB/s"} for a, b in (("big", "small"), ("small", "big"))],
    }
    values = [{"id": name, "size": size} for name, size in (("x", 120), ("g0", 4), ("g1", 4), ("sum", 4), ("y", 2))]
    return {"schema": "remat.instance/3", "kind": "dag", "machine": machine, "values": values, "inputs": ["x"]} | more


@pytest.mark.parametrize("by_name", [False, True])
def test_tasks_have_types_processors_and_parts(by_name):
    tasks = [
        {"id": "left", "time": {"a100": 3, "t4": 9}, "reads": ["x"], "writes": ["g0"], "on": ["gpu0"]},
        {"id": "right", "time": {"a100": 4}, "reads": ["x"], "writes": ["g1"], "origin": {"module": "right.conv"}},
        {
            "id": "reduce", "time": 6, "busy": True,
            "parts": [{"reads": ["g0"], "writes": ["sum"]}, {"reads": ["g1"], "writes": ["sum"]}],
        },
        {"id": "end", "time": 1, "reads": ["sum"], "writes": ["y"], "on": ["gpu0", "gpu1"]},
    ]  # fmt: skip
    document = devices_document(tasks=tasks, outputs=[{"value": "y", "memory": "big"}])
    names, times = ["left", "right", "reduce", "end"], {"a100": [3, 4, None, None], "t4": np.array([9, 0, 0, 0])}
    parts = [{"reads": ["g0"], "writes": ["sum"]}, {"reads": [2], "writes": [np.int64(3)]}]
    built = remat.dag(
        reads=[["x"], ["x"], [], ["sum"]] if by_name else [[0], [0], [], [3]],
        writes=[["g0"], ["g1"], [], ["y"]] if by_name else [[1], [2], [], [4]],
        time=[{"a100": 3, "t4": 9}, {"a100": times["a100"][1]}, 6, np.int64(1)],
        size={"x": 120, "g0": 4, "g1": np.int32(4), "sum": 4, "y": 2},
        names=names,
        on=["gpu0", None, None, ("gpu0", "gpu1")],
        parts={"left": None, "right": None, "reduce": parts, "end": None} if by_name else [None, None, parts, None],
        busy=[False, False, True, False],
        origin=[None, {"module": "right.conv"}, None, None],
        outputs={"y": "big"},
        machine=remat.machine(**DEVICES),
    )
    assert digest(built) == digest(remat.load(document))
    assert built.tasks[1].origin.module == "right.conv"


def test_streams_and_times_by_type_are_built_from_graphs_and_lists():
    tasks = [
        {"id": "0", "time": {"a100": 3, "t4": 9}, "writes": ["0"]},
        {"id": "1", "time": {"a100": 4, "t4": 9}, "reads": ["0"], "writes": ["1"]},
    ]
    values = [{"id": "0", "size": 8}, {"id": "1", "size": 4}]
    expected = digest(remat.load(devices_document(tasks=tasks, values=values, inputs=[], stream=4)))
    graph = nx.DiGraph([(0, 1)])
    shared = {"size": [8, 4], "machine": remat.machine(**DEVICES), "stream": 4}
    times = {"a100": [3, 4], "t4": 9}
    lists = {"reads": [[], [0]], "writes": [[0], [1]], "names": ["0", "1"], "value_names": ["0", "1"]}
    assert digest(remat.dag(**lists, time=times, **shared)) == expected
    by_node = {0: {"a100": 3, "t4": 9}, 1: {"a100": 4, "t4": 9}}
    assert digest(remat.dag(graph, time=times, **shared)) == digest(remat.dag(graph, time=by_node, **shared))
    nx.set_node_attributes(graph, by_node, "cost")
    assert digest(remat.dag(graph, time="cost", **shared)) == digest(remat.dag(graph, time=times, **shared))
    assert remat.dag(graph, time=times, **shared).tasks[1].time == {"a100": 4, "t4": 9}


def test_times_by_type_do_not_tell_the_number_of_nodes_of_an_edge_list():
    """Two types, three nodes: the size of each node tells their number, and so do the edges."""
    times = {"a100": [3, 4, 5], "t4": 9}
    machine = remat.machine(**DEVICES)
    for size in ([8, 4, 2], 8):
        built = remat.dag([(0, 1), (0, 2)], time=times, size=size, machine=machine)
        assert [task.time for task in built.tasks] == [{"a100": one, "t4": 9} for one in (3, 4, 5)]


def test_origins_are_modules_or_dicts():
    lists = {"reads": [[], [0]], "writes": [[0], [1]], "time": [1, 2], "size": [5, 6]}
    built = remat.dag(**lists, origin=["stem", {"module": "head", "op": "add"}])
    assert [(task.origin.module, task.origin.op) for task in built.tasks] == [("stem", ""), ("head", "add")]
    assert [row.module for row in remat.solve(built).decisions] == ["stem", "head"]
    assert {task.origin.module for task in remat.dag(**lists, origin={"module": "all"}).tasks} == {"all"}
    assert {task.origin.module for task in remat.dag(**lists, origin="all").tasks} == {"all"}
    bare = remat.dag(**lists, origin=[None, None], on=[None, "processor"])
    assert [task.origin.module for task in bare.tasks] == ["", ""]
    graph = nx.DiGraph([("a", "b")])
    nx.set_node_attributes(graph, {"a": "stem", "b": "head"}, "layer")
    assert [task.origin.module for task in remat.dag(graph, time=1, size=1, origin="layer").tasks] == ["stem", "head"]


def test_a_text_is_an_attribute_or_one_size_for_all():
    graph = nx.DiGraph([("a", "b")])
    assert remat.dag(graph, time="2s", size="8MB") == remat.dag(graph, time=2, size=8_000_000)
    nx.set_node_attributes(graph, 5, "8MB")
    assert [task.size for task in remat.dag(graph, time=2, size="8MB").tasks] == [5, 5]


def test_edges_may_be_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"source": [0, 0, 1], "target": [1, 2, 2], "weight": 1})
    columns = {"time": [1, 2, 3], "size": pandas.Series([4, 5, 6])}
    built = remat.dag(frame[["source", "target"]], **columns)
    assert digest(built) == digest(remat.dag([(0, 1), (0, 2), (1, 2)], **columns))
    with pytest.raises(InstanceError, match="graph: an array of shape"):
        remat.dag(frame, **columns)


@pytest.mark.parametrize("form", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
def test_rows_of_a_sparse_matrix_of_any_format_are_tasks(form):
    reads = sparse.csr_array(np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]])).asformat(form)
    built = remat.dag(reads=reads, writes=sparse.eye_array(3, format=form), time=1, size=[1, 2, 3])
    assert [task.reads for task in built.tasks] == [(), ("v0",), ("v0", "v1")]
    assert [task.writes for task in built.tasks] == [("v0",), ("v1",), ("v2",)]


@pytest.mark.parametrize(
    "size",
    [33.2 * 1e6, np.float64(33.2) * 1e6, [33.2 * 1e6] * 3, np.full(3, 33.2) * 1e6, [33.2 * 1e6, "33.2MB", 33_200_000]],
)
def test_floats_that_are_whole_except_for_rounding_are_sizes(size):
    dag = remat.dag(reads=[[0], [1]], writes=[[1], [2]], time=1, size=size, value_names=["a", "b", "c"])
    assert [value.size for value in dag.values] == [33_200_000] * 3
    tree = remat.tree([-1, 0, 0], output_size=size, machine=remat.device(3 * 33.2 * 1e6))
    assert list(tree.output_size) == [33_200_000] * 3
    chain = remat.chain(forward_time=1, backward_time=1, output_size=size, length=3)
    assert [stage.output_size for stage in chain.stages] == [33_200_000] * 3
    assert remat.solve(tree, algorithm="liu", budget="100%").peak_memory["device"] == 3 * 33_200_000


def test_sizes_of_documents_are_exact():
    text = '{"schema": "remat.instance/1", "kind": "tree", "parent": [-1], "output_size": [7.0]}'
    assert remat.load(io.StringIO(text)).output_size == (7,)
    with pytest.raises(InstanceError, match="not a whole number"):
        remat.load(io.StringIO(text.replace("7.0", "7.000000000000001")))


def test_a_pair_of_lists_is_a_pair_of_csr_arrays():
    rows = remat.dag(reads=[[], [0], [0, 1]], writes=[[0], [1], [2]], time=[1, 2, 3], size=[5, 6, 7])
    pair = remat.dag(reads=([0, 0, 1, 3], [0, 0, 1]), writes=((0, 1, 2, 3), [0, 1, 2]), time=[1, 2, 3], size=[5, 6, 7])
    assert digest(pair) == digest(rows)
    assert remat.dag(reads=([], [0]), writes=([0], [1]), time=[1, 2], size=[1, 1]).tasks[1].reads == ("v0",)


@pytest.mark.parametrize("kind", [*KINDS])
def test_help_explains_every_argument(kind):
    explained = getattr(remat, kind).__doc__.partition("Parameters\n")[2].partition("\nReturns\n")[0]
    listed = re.findall(r"^(\w[\w, ]*)(?: : .*)?$", explained, re.MULTILINE)
    named = {name.strip() for line in listed for name in line.split(",")}
    assert set(keywords_of(kind)) - named == set()
    assert "**" not in explained


CALLED = {
    "chain": ({"name": "names", "backward_reads": "stage_backward_reads"}, {"stages": "", "loss": "loss_time"}),
    "adjoint": ({}, {"steps": "steps"}),
    "dag": ({"id": "names", "writes": "writes"}, {"tasks": "time", "values": "size"}),
    "tree": ({}, {}),
    "pipeline": ({"name": "names", "backward_reads": "layer_backward_reads"}, {"layers": "", "cluster": "devices"}),
    "join": ({}, {"loss": "loss_time"}),
}
"""Arguments for fields of a row and of an instance that have another name; empty for those that only documents have."""

ROWS = {"chain": Stage, "dag": Task, "pipeline": Layer, "adjoint": Step}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_document_is_an_argument(kind):
    (of_rows, of_instances), known = CALLED[kind], {*keywords_of(kind), "", "schema_", "kind", "units"}
    instance = getattr(remat, f"{kind.capitalize()}Instance")
    fields = {of_instances.get(key, key) for key in instance.model_fields}
    if kind in ROWS:
        fields |= {of_rows.get(key, key) for key in ROWS[kind].model_fields}
    if kind == "dag":
        fields |= set(Value.model_fields) - {"id", "shape", "dtype"}  # value_names, and annotations
    if kind == "pipeline":  # the machine follows from the cluster
        fields |= set(ClusterModel.model_fields)
    assert fields - known == set()


def test_ratios_are_a_column_of_values():
    """In every form of a graph; a scalar is for all values, and None is the link's ratio."""
    tasks = [
        {"id": "t0", "time": 1, "writes": ["t0"]},
        {"id": "t1", "time": 1, "reads": ["t0"], "writes": ["t1"]},
    ]
    common = {"schema": "remat.instance/3", "kind": "dag", "tasks": tasks}
    digests = {}
    for name, ratios in (("one", [0.25, None]), ("all", [0.5, 0.5]), ("none", [None, None])):
        values = [{"id": f"t{k}", "size": 4, "ratio": ratio} for k, ratio in enumerate(ratios)]
        digests[name] = digest(remat.load(common | {"values": values}))
    graph = nx.DiGraph([("t0", "t1")])
    nx.set_node_attributes(graph, {"t0": 0.25, "t1": None}, "packs")
    lists = {"reads": [[], ["t0"]], "writes": [["t0"], ["t1"]], "value_names": ["t0", "t1"]}
    for ratio, name in (([np.float64(0.25), None], "one"), (np.array([0.5, 0.5]), "all"), (0.5, "all")):
        assert digest(remat.dag([(0, 1)], time=1, size=[4, 4], ratio=ratio)) == digests[name]
        assert digest(remat.dag(**lists, time=1, size=[4, 4], ratio=ratio)) == digests[name]
    assert digest(remat.dag(graph, time=1, size=4, ratio="packs")) == digests["one"]
    assert digest(remat.dag(**lists, time=1, size=4, ratio={"t0": 0.25, "t1": None})) == digests["one"]
    assert digest(remat.dag(**lists, time=1, size=4)) == digests["none"]
    with pytest.raises(InstanceError, match=r"^ratio\[1\]: 1.5 is out of range; it is more than 0 and at most 1$"):
        remat.dag([(0, 1)], time=1, size=4, ratio=[None, 1.5])
    with pytest.raises(InstanceError, match=r"^ratio: 1 entries, and 2 are expected$"):
        remat.dag([(0, 1)], time=1, size=[4, 4], ratio=[0.5])


def test_tensors_and_origins_are_columns():
    common = {"forward_time": [4, 4], "backward_time": 4, "parameter_size": 8, "devices": 2, "micro_batches": 2}
    shared = remat.pipeline(**common, tensor=[{"2": {"forward_time": 2, "backward_time": 3}}, None])
    assert [[one.backward_time for one in layer.tensor.values()] for layer in shared.layers] == [[3], []]
    built = remat.chain(forward_time=[1, 2], backward_time=2, output_size=4, origin=[[{"module": "stem"}], None])
    assert [[one.module for one in stage.origin] for stage in built.stages] == [["stem"], []]


def test_a_join_takes_the_units_of_its_chains():
    branch = remat.chain(forward_time=[1, 2], backward_time=2, output_size=8, time_unit="ms", size_unit="unit")
    plain = {"forward_time": [1, 2], "backward_time": 2, "output_size": 8}
    named = {"time_unit": "ms", "size_unit": "unit"}
    expected = digest(remat.join([plain, plain], **named))
    assert digest(remat.join([branch, plain])) == digest(remat.join([plain, branch])) == expected
    with pytest.raises(InstanceError, match=r"chains\[0\]: it counts in ms and unit, and the join in s and unit"):
        remat.join([branch], time_unit="s")


def test_devices_of_a_pipeline_are_a_number_capacities_or_dicts():
    common = {"forward_time": [1, 2], "backward_time": 2, "micro_batches": 2, "link": "1GB/s"}
    number = remat.pipeline(**common, devices=2, memory="8GB")
    listed = remat.pipeline(**common, devices=[{"name": "gpu", "count": np.int64(2), "memory": 8e9}])
    assert digest(number) == digest(listed)
    capacities = remat.pipeline(**common, devices=["8GB", None])
    assert [device.memory for device in capacities.cluster.devices] == [8_000_000_000, None]
    assert capacities.cluster.types == ["gpu", "gpu"]
    typed = remat.pipeline(
        forward_time={"a": [1, 2], "b": np.array([3, 4])}, backward_time=1, devices=[{"name": "a"}, {"name": "b"}],
        micro_batches=2,
    )  # fmt: skip
    assert [layer.forward_time for layer in typed.layers] == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]


def test_what_is_built_can_be_shown_and_saved(tmp_path):
    built = remat.chain(forward_time=[1, 2], backward_time=2, output_size=[4, 3], input_size=4)
    assert str(built) == repr(built) == "ChainInstance('(unnamed)', length 2)"
    built.save(tmp_path / "chain.json.gz")
    assert digest(remat.load(tmp_path / "chain.json.gz")) == digest(built)
