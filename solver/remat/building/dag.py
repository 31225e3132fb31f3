"""`remat.dag`: a task graph from a networkx graph, from edges, or from arrays of what tasks read and write."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast

import numpy as np

from remat.building import arrays
from remat.building.columns import entries, is_scalar, sequence_of
from remat.building.common import Column, Common, Rule, build, builder, head, units_of
from remat.building.edges import Edges, attribute, by_name, edges_of
from remat.building.task_fields import (
    FIELDS,
    by_type,
    divided,
    fields,
    is_one_for_all,
    lists_of,
    named_parts,
    origins,
    types_of,
    written_by,
)
from remat.errors import InstanceError
from remat.graph.names import Names, NumberedNames
from remat.graph.taskgraph import BoolArray, Ragged
from remat.instance.column_parser import can_all_run
from remat.instance.columns import FLAGS, OPTIONAL, GraphColumns, Tasks, Values, given_energies
from remat.instance.fields import LONGEST_NAME
from remat.instance.native import native
from remat.messages import brief
from remat.units import Units

if TYPE_CHECKING:
    from remat.instance.dag import DagInstance

Lists: TypeAlias = Any
"""One list of indices for each task: a pair of CSR arrays (start, items), a sparse matrix, or a list of lists."""

Places: TypeAlias = Any
"""Values, by index, name or node; or a mapping from values to their memories."""

_RULES: tuple[Rule, ...] = (
    (r"^\$\.tasks\[(\d+)\]\.(\w+)", r"\2[\1]"),
    (r"^\$\.values\[(\d+)\]\.(\w+)", r"\2[\1]"),
)

_GRAPH_RULES: tuple[Rule, ...] = ((r"^\$\.tasks\[\d+\]\.(?:reads|writes)\b.*", "graph"), *_RULES)


class DagArguments(Common, total=False):
    """Arguments of `remat.dag` in addition to those of every builder.

    Attributes
    ----------
    workspace : column
        Bytes that a task needs while it runs, in addition to its reads and writes.
    in_place : column of bool
        The outputs of a task may take the space of inputs that it frees at its end. Default: False.
    required : column of bool
        The task runs at least once. Default: True. False: only if a schedule needs its values.
    recomputable : column of bool
        The task may run more than once. Default: True.
    once : column of bool
        The task runs exactly once. Default: False.
    phase : column of str
        ``forward``, ``loss`` or ``backward``.
    energy : column
        Energy of one run of each task, in any one unit. Like `time`, it may be given by type of processor.
    ratio : column
        Bytes that a link with compression sends for each byte of a value, with one entry for each value like `size`.
        Default, and for None: the link's ratio.
    on : column
        Names of the processors on which a task may run: a name, a list of names, or None for any.
    parallel : column of dict
        How a task may run on several processors: ``{"max": 4, "alpha": 0.9}``, or None.
    parts : column of list of dict
        The parts of a collective, each with `reads`, `writes` and `memory`; None for other tasks. Its rows of the
        arguments `reads` and `writes` are empty.
    busy : column of bool
        Whether a collective also occupies its processors.
    origin : column of str or dict
        Where a task comes from: a module of the program, or ``{"module": "layer3.conv2", "op": "conv", "source":
        "net.py:9"}``. Decisions name the module.
    stream : int
        All tasks run for one sample after the other, without end; so many samples are checked step by step.
    """

    workspace: Column
    in_place: Column
    required: Column
    recomputable: Column
    once: Column
    phase: Column
    energy: Column
    ratio: Column
    on: Column
    parallel: Column
    parts: Column
    busy: Column
    origin: Column
    stream: int


@builder(DagArguments)
def dag(
    graph: Any = None,
    *,
    time: Column,
    size: Column,
    reads: Lists = None,
    writes: Lists = None,
    names: Sequence[str] | None = None,
    value_names: Sequence[str] | None = None,
    values: str | Collection[Hashable] | None = None,
    inputs: Places = None,
    pinned_inputs: Sequence[Any] = (),
    outputs: Places = (),
    **more: Unpack[DagArguments],
) -> DagInstance:
    """Build a task graph: from a graph, or from what tasks read and write.

    Parameters
    ----------
    graph : networkx.DiGraph, sequence of pairs, or (edges, 2) array, optional
        An edge runs from the producer to the consumer. Every node is a task that writes one value, which its
        successors read; with `values`, nodes are tasks or values. Names are ``str(node)``. In pairs and arrays,
        nodes are numbers from 0.
    time : column
        Time of each task: a number for all, a sequence or array, a mapping of node to time, or the name of an attribute
        of a networkx graph. If it depends on the type of the processor: a mapping of type to column.
    size : column
        Size of each value, or of the value of each task. With `reads` and `writes`, a mapping of name to size is
        possible.
    reads, writes : lists, optional
        Instead of a graph: indices or names of the values that each task reads and writes.
    names, value_names : sequence of str, optional
        Names of tasks and values. Default: t0, t1, ... and v0, v1, ...
    values : str or collection, optional
        Which nodes of a networkx graph are values: their collection, or an attribute that is true for them.
    inputs : places, optional
        Values that are present at the start. Default: all that no task writes.
    pinned_inputs : sequence, optional
        Inputs that may not be freed.
    outputs : places
        Values that must be present at the end.
    **more
        See `remat.building.dag.DagArguments` and `remat.building.common.Common`.

    Returns
    -------
    DagInstance

    Raises
    ------
    remat.InstanceError
        Names the argument, the index and the value.

    Examples
    --------
    >>> import remat
    >>> remat.dag([(0, 1), (0, 2), (1, 3), (2, 3)], time=1, size=[8, 4, 4, 2]).tasks[3].reads
    ('t1', 't2')
    """
    given = dict(more)
    own = {key: given.pop(key) for key in ("workspace", *FLAGS, "phase", "energy", "origin", *FIELDS) if key in given}
    document = head("dag", given)
    if "stream" in given:
        document["stream"] = native(given["stream"])
    shape = _shape_of(graph, (reads, writes), time, size, (names, value_names), values)
    if not len(shape.tasks):
        raise InstanceError("there are no tasks", "graph" if reads is None else "reads")
    shape, ratios = _with_ratios(shape, given.get("ratio"))
    own |= {"time": time, "size": size}
    further = _further(shape, own, types_of(document.get("machine")))
    columns = _columns(shape, own, units_of(document))
    places = _Places(shape)
    made = written_by(further.get("parts", {}))
    document["inputs"] = shape.unwritten(made) if inputs is None else places.listed("inputs", inputs)
    document["outputs"] = places.listed("outputs", outputs)
    document["pinned_inputs"] = [place["value"] for place in places.listed("pinned_inputs", pinned_inputs)]
    rules = _RULES if shape.edges is None else _GRAPH_RULES
    if further or ratios:
        return cast("DagInstance", build(document | lists_of(columns, further, ratios), rules))
    return _built(document, columns, rules)


def _shape_of(graph: Any, lists: tuple[Any, Any], time: Any, size: Any, named: tuple[Any, Any], values: Any) -> _Shape:
    """Return tasks and values from a graph, or from what tasks read and write."""
    (reads, writes), (names, value_names) = lists, named
    if graph is None and values is not None:
        raise InstanceError("only nodes of a networkx graph may be values, and no graph is given", "values")
    if graph is None:
        called = list(size) if value_names is None and isinstance(size, Mapping) else value_names
        return _of_lists(reads, writes, time, size, names, called)
    if reads is not None or writes is not None:
        raise InstanceError("give either a graph, or reads and writes", "writes" if reads is None else "reads")
    if values is None:
        return _of_tasks(graph, time, size, names, value_names)
    return _of_both(graph, values)


def _with_ratios(shape: _Shape, given: Any) -> tuple[_Shape, dict[int, Any]]:
    """Return the ratios of values, and a shape that lists its values if there are any: only listed ones have ratios."""
    ratios = fields("ratio", shape.of_values("ratio", given), len(shape.values))
    return replace(shape, declares=shape.declares and not ratios), ratios


def _further(shape: _Shape, own: dict[str, Any], types: frozenset[str]) -> dict[str, dict[int, Any]]:
    """Take entries that have no column from the arguments, and return them: field -> task -> entry."""
    count, found = len(shape.tasks), dict[str, dict[int, Any]]()
    for key in ("time", "energy"):
        if key in own:
            given = by_type(key, own[key], shape.rows, types)
            column = shape.of_tasks(key, given) if given is own[key] else given
            own[key], found[key] = divided(key, column, count)
    for key in FIELDS:
        if key in own:
            found[key] = fields(key, shape.of_tasks(key, own.pop(key)), count)
    if found.get("parts"):
        found["parts"] = named_parts(found["parts"], shape.values)
    return {key: entries for key, entries in found.items() if entries}


def _columns(shape: _Shape, own: Mapping[str, Any], units: Units) -> GraphColumns:
    count, flags = len(shape.tasks), _flags(shape, own, len(shape.tasks))
    energy = arrays.energies("energy", own["energy"], count) if "energy" in own else None
    origin = None if own.get("origin") is None else origins(shape.of_tasks("origin", own["origin"]), count)
    given = np.zeros(count, dtype=np.int64) if energy is None else given_energies(energy)
    if origin is not None:
        given |= np.array([one is not None for one in origin], dtype=np.int64) << OPTIONAL.index("origin")
    return GraphColumns(
        tasks=shape.tasks,
        values=shape.values,
        time=arrays.times("time", own["time"], count, units),
        size=arrays.sizes("size", shape.of_values("size", own["size"]), len(shape.values), units),
        reads=shape.reads,
        writes=shape.writes,
        declares=np.full(count, shape.declares),
        workspace=arrays.sizes("workspace", shape.of_tasks("workspace", own.get("workspace", 0)), count, units),
        in_place=flags["in_place"],
        required=flags["required"],
        recomputable=flags["recomputable"],
        once=flags["once"],
        given=given,
        listed=0 if shape.declares else len(shape.values),
        phase=_texts("phase", shape.of_tasks("phase", own.get("phase", "")), count),
        energy=energy,
        origin=cast("Any", origin),
    )


def _built(document: dict[str, Any], columns: GraphColumns, rules: tuple[Rule, ...]) -> DagInstance:
    """Read the document with its columns; the models report errors in columns."""
    named = [place if isinstance(place, str) else place["value"] for place in document["inputs"]]
    there = columns.values.find_all(named)
    tasks, values = Tasks(columns), Values(columns)
    if can_all_run(columns, there.tolist()):
        try:
            return cast("DagInstance", build(document | {"tasks": tasks, "values": values}, rules))
        except InstanceError:
            pass
    return cast("DagInstance", build(document | {"tasks": tuple(tasks), "values": tuple(values)}, rules))


@dataclass(frozen=True)
class _Shape:
    """Reads and writes of tasks, and names of tasks and values."""

    tasks: Names
    values: Names
    reads: Ragged
    writes: Ragged
    declares: bool
    edges: Edges | None = None
    task_nodes: Sequence[int] = ()
    value_nodes: Sequence[int] = ()

    def unwritten(self, made: Collection[str]) -> list[str]:
        """Return the values that no task writes, without those that collectives make."""
        absent = np.ones(len(self.values), dtype=bool)
        absent[self.writes.items] = False
        return [name for index in np.flatnonzero(absent).tolist() if (name := self.values[index]) not in made]

    @property
    def rows(self) -> Collection[Hashable]:
        """Names of the tasks in a mapping."""
        if self.edges is None:
            return self.tasks
        return range(self.edges.count) if self.edges.nodes is None else self.edges.nodes

    def of_tasks(self, argument: str, given: Any) -> Any:
        """Return a column of tasks, where it may be an attribute of the graph, or a mapping."""
        if is_one_for_all(argument, given):
            return given
        if self.edges is None:
            return by_name(argument, given, self.tasks)
        return attribute(argument, given, self.edges, self.task_nodes)

    def of_values(self, argument: str, given: Any) -> Any:
        """Return a column of values, where it may be an attribute of the graph, or a mapping."""
        if self.edges is None:
            return by_name(argument, given, self.values)
        return attribute(argument, given, self.edges, self.value_nodes)


def _of_lists(reads: Any, writes: Any, time: Any, size: Any, names: Any, value_names: Any) -> _Shape:
    if reads is None or writes is None:
        raise InstanceError("give a graph, or both reads and writes", "reads" if reads is None else "writes")
    limit = _length("value_names", value_names, _length("size", size, None))
    if limit is None:
        raise InstanceError("a size for all; give value_names, or a size for each value", "size")
    values = _names("value_names", value_names, limit, "v")
    count = _length("names", names, None if isinstance(time, Mapping) else _length("time", time, None))
    read = arrays.ragged("reads", arrays.indices_of("reads", reads, values), count, limit)
    written = arrays.ragged("writes", arrays.indices_of("writes", writes, values), len(read), limit)
    return _Shape(_names("names", names, len(read), "t"), values, read, written, False)


def _length(argument: str, given: Any, otherwise: int | None) -> int | None:
    if given is None or is_scalar(given):
        return otherwise
    if not hasattr(given, "__len__"):
        raise InstanceError(f"expected a sequence or an array, not {brief(given)}", argument)
    return len(given)


def _of_tasks(graph: Any, time: Any, size: Any, names: Any, value_names: Any) -> _Shape:
    if value_names is not None:
        raise InstanceError("the value of a task has the task's name; leave this out", "value_names")
    typed = isinstance(time, Mapping) and any(isinstance(key, str) for key in time)  # nodes are numbers
    count = _length("names", names, _length("time", None if typed else time, _length("size", size, None)))
    edges = edges_of(graph, count)
    reads = edges.predecessors()
    arrays.check_once("graph", reads, edges.count)
    called = _called(edges, range(edges.count)) if names is None else names
    every = _names("names", called, edges.count, "t")
    own = Ragged(np.arange(edges.count + 1, dtype=np.int64), np.arange(edges.count, dtype=np.int64))
    nodes = range(edges.count)
    return _Shape(every, every, reads, own, True, edges, nodes, nodes)


def _of_both(graph: Any, values: Any) -> _Shape:
    """Return the shape of a graph whose nodes are tasks or values."""
    edges = edges_of(graph, None)
    if edges.nodes is None or edges.attributes is None:
        raise InstanceError("only nodes of a networkx graph may be values; otherwise give reads and writes", "values")
    if isinstance(values, str):
        flags = [bool(data.get(values, False)) for data in edges.attributes]
    else:
        try:
            chosen = set(values)
        except TypeError:
            raise InstanceError(f"expected a collection of nodes, not {brief(values)}", "values") from None
        missing = next((node for node in chosen if node not in set(edges.nodes)), None)
        if missing is not None:
            raise InstanceError(f"{brief(missing)} is not a node of the graph", "values")
        flags = [node in chosen for node in edges.nodes]
    is_value: BoolArray = np.array(flags, dtype=bool)
    same = np.flatnonzero(is_value[edges.source] == is_value[edges.target])
    if len(same):
        ends = int(edges.source[same[0]]), int(edges.target[same[0]])
        what = "values" if is_value[ends[0]] else "tasks"
        both = f"nodes {edges.shown(ends[0])} and {edges.shown(ends[1])} are both {what}"
        raise InstanceError(f"{both}; an edge joins a task and a value", "graph")
    position = np.where(is_value, np.cumsum(is_value), np.cumsum(~is_value)) - 1
    tasks, held = np.flatnonzero(~is_value).tolist(), np.flatnonzero(is_value).tolist()
    read = is_value[edges.source]
    reads = Edges(len(tasks), position[edges.source[read]], position[edges.target[read]]).predecessors()
    writes = Edges(len(tasks), position[edges.target[~read]], position[edges.source[~read]]).predecessors()
    names, value_names = _called(edges, tasks), _called(edges, held)
    return _Shape(
        _names("graph", names, len(tasks), "t"),
        _names("graph", value_names, len(held), "v"),
        reads,
        writes,
        False,
        edges,
        tasks,
        held,
    )


def _called(edges: Edges, nodes: Sequence[int]) -> list[str] | None:
    """Return the names of nodes; None where these are numbers."""
    if edges.nodes is None:
        return None
    named: dict[str, int] = {}
    for node in nodes:
        other = named.setdefault(str(edges.nodes[node]), node)
        if other != node:
            raise InstanceError(
                f"nodes {edges.shown(other)} and {edges.shown(node)} have the same name; give names", "graph"
            )
    return list(named)


def _names(argument: str, given: Any, count: int, prefix: str) -> Names:
    if given is None:
        return NumberedNames([(prefix, 0, count)])
    listed = entries(argument, given) if not isinstance(given, str) else [given]
    if len(listed) != count:
        raise InstanceError(f"{len(listed):,} names, and {count:,} are expected", argument)
    seen: set[str] = set()
    for index, name in enumerate(listed):
        at = f"{argument}[{index}]"
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or name in seen:
            twice = isinstance(name, str) and name in seen
            wrong = "comes twice" if twice else f"is not a name, a text of 1 to {LONGEST_NAME} characters"
            raise InstanceError(f"{brief(name)} {wrong}", at)
        seen.add(name)
        if not name.isascii():
            try:
                name.encode()
            except UnicodeEncodeError:
                raise InstanceError("a name that is not valid Unicode text", at) from None
    return Names(listed)


def _flags(shape: _Shape, own: Mapping[str, Any], count: int) -> dict[str, BoolArray]:
    defaults = dict(zip(FLAGS, (False, True, True, False), strict=True))
    found = {
        key: arrays.flags(key, shape.of_tasks(key, own.get(key, default)), count) for key, default in defaults.items()
    }
    wrong = np.flatnonzero(found["once"] & ~found["required"])
    if len(wrong):
        raise InstanceError("a task that runs exactly once is required", f"once[{int(wrong[0])}]")
    return found


def _texts(argument: str, given: Any, count: int) -> tuple[str, ...] | None:
    if isinstance(given, str) and not given:
        return None
    plain = native(given) if is_scalar(given) else entries(argument, given)
    listed = plain if isinstance(plain, list) else [plain] * count
    arrays.check_count(argument, len(listed), count)
    for index, text in enumerate(listed):
        if not isinstance(text, str) or len(text) > LONGEST_NAME:
            raise InstanceError(f"{brief(text)} is not a text", f"{argument}[{index}]")
    return tuple(listed) if any(listed) else None


class _Places:
    """Finds the values that a caller names: by node, by index, or by name."""

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape
        nodes = None if shape.edges is None else shape.edges.nodes
        self._by_node = {} if nodes is None else {nodes[node]: k for k, node in enumerate(shape.value_nodes)}
        self._has_nodes = nodes is not None

    def listed(self, argument: str, given: Any) -> list[dict[str, Any]]:
        """Return the places of a document."""
        if isinstance(given, Mapping):
            return [
                {"value": self._name(argument, key, value)} | ({} if memory is None else {"memory": memory})
                for key, (value, memory) in enumerate(given.items())
            ]
        found = []
        for index, value in enumerate(sequence_of(argument, given, "values")):
            if isinstance(value, Mapping):
                place = dict(value)
                place["value"] = self._name(argument, index, place.get("value"))
                found.append(native(place))
            else:
                found.append({"value": self._name(argument, index, value)})
        return found

    def _name(self, argument: str, index: int, value: Any) -> str:
        names, plain = self._shape.values, native(value)
        try:
            found = self._by_node.get(value)
        except TypeError:
            found = None
        if found is None and not self._has_nodes and type(plain) is int and 0 <= plain < len(names):
            found = plain
        if found is None and isinstance(plain, str):
            found = names.find(plain)
        if found is None:
            raise InstanceError(f"{brief(plain)} is not a value of the graph", f"{argument}[{index}]")
        return names[found]
