"""Random task graphs: series-parallel and order-respecting Erdos-Renyi graphs, with common options.

A shape is a list of predecessors for each task, in topological order. `TaskOptions` give the distribution of times and
sizes, and whether the graph is mirrored into a training graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remat.generate import check
from remat.generate.document import UNITLESS, Document, document
from remat.generate.draw import Draw

MOST_TASKS = 100_000
MOST_PAIRS = 50_000_000
"""Maximum number of pairs of tasks for which an edge is drawn."""

MOST_EDGES = 5_000_000
"""Maximum expected number of edges."""

Predecessors = list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Distribution of times and sizes; all random graphs take these parameters.

    Parameters
    ----------
    min_time, max_time : int
        Range of the times; equal ends give equal times.
    min_size, max_size : int
        Range of the value sizes.
    zero_probability : float
        Probability of each time and size to be 0 instead.
    workspace_probability : float
        Probability that a task has a workspace, with the size of a value.
    multi_output_probability : float
        Probability that a task writes two values instead of one; readers need one or both.
    alternative_probability : float
        Probability that a task has a slower alternative that reads less and writes the same values; then neither is
        required. A task whose values nobody reads has none.
    training : bool
        Whether a loss and a backward task for every task follow, which read what the forward read and the
        gradients of what it wrote.
    seed : int
    """

    min_time: int = 1
    max_time: int = 1000
    min_size: int = 1
    max_size: int = 5000
    zero_probability: float = 0.0
    workspace_probability: float = 0.0
    multi_output_probability: float = 0.0
    alternative_probability: float = 0.0
    training: bool = False
    seed: int = 0

    def draw(self) -> Draw:
        """Return the stream that draws first the shape, then the tasks."""
        return Draw(check.seed(self.seed))


def random_dag(*, nodes: int = 100, edge_probability: float = 0.05, **options: Any) -> Document:
    """Return an order-respecting Erdos-Renyi graph: each earlier task is read with one probability.

    Parameters
    ----------
    nodes : int
        Tasks, at most 10,000; the graph may be disconnected.
    edge_probability : float
    **options
        See `TaskOptions`.
    """
    check.integer("nodes", nodes, minimum=1, maximum=10_000)
    edge = check.probability("edge_probability", edge_probability)
    check_edges(nodes * (nodes - 1) // 2, edge, "edge_probability")
    figures = TaskOptions(**options)
    draw = figures.draw()
    predecessors = [[u for u in range(v) if draw.chance(edge)] for v in range(nodes)]
    return finish("random", f"Random graph, edge probability {edge:g}", predecessors, draw, figures)


def series_parallel_dag(*, nodes: int = 100, series_probability: float = 0.5, **options: Any) -> Document:
    """Return a two-terminal series-parallel graph, grown edge by edge.

    Parameters
    ----------
    nodes : int
        Tasks, at least 2.
    series_probability : float
        Probability that a new task splits an edge; otherwise it is parallel to the edge.
    **options
        See `TaskOptions`.
    """
    check.integer("nodes", nodes, minimum=2, maximum=MOST_TASKS)
    series = check.probability("series_probability", series_probability)
    figures = TaskOptions(**options)
    draw = figures.draw()
    edges = [(0, 1)]
    following = {0: 1}  # the topological order, as a linked list: a new task right after its predecessor
    for node in range(2, nodes):
        index = draw.integer(0, len(edges) - 1)
        u, v = edges[index]
        if draw.chance(series):
            edges[index] = (u, node)
        else:
            edges.append((u, node))
        edges.append((node, v))
        following[node], following[u] = following[u], node
    position = {0: 0}
    node = 0
    while node != 1:
        node = following[node]
        position[node] = len(position)
    predecessors: Predecessors = [[] for _ in range(nodes)]
    for u, v in edges:
        predecessors[position[v]].append(position[u])
    ordered = [sorted(each) for each in predecessors]
    return finish("series_parallel", "Random series-parallel graph", ordered, draw, figures)


def check_edges(pairs: int, edge: float, remedy: str) -> None:
    """Refuse what would take minutes to draw, or gigabytes to hold."""
    if pairs > MOST_PAIRS:
        raise ValueError(f"{pairs:,} pairs of tasks to draw edges for, at most {MOST_PAIRS:,}; use fewer nodes")
    if pairs * edge > MOST_EDGES:
        raise ValueError(f"about {pairs * edge:,.0f} edges, at most {MOST_EDGES:,}; lower {remedy}")


def shuffled(predecessors: Predecessors, draw: Draw) -> Predecessors:
    """Renumber the tasks by a random topological order."""
    successors: list[list[int]] = [[] for _ in predecessors]
    for v, reads in enumerate(predecessors):
        for u in reads:
            successors[u].append(v)
    missing = [len(reads) for reads in predecessors]
    ready = [v for v, count in enumerate(missing) if not count]
    position = [0] * len(predecessors)
    order: list[int] = []
    while ready:
        slot = draw.integer(0, len(ready) - 1)
        ready[slot], ready[-1] = ready[-1], ready[slot]
        node = ready.pop()
        position[node] = len(order)
        order.append(node)
        for v in successors[node]:
            missing[v] -= 1
            if not missing[v]:
                ready.append(v)
    return [sorted(position[u] for u in predecessors[v]) for v in order]


class _Tasks:
    """The tasks and values of a graph, drawn in topological order."""

    def __init__(self, predecessors: Predecessors, draw: Draw, options: TaskOptions) -> None:
        self.predecessors = predecessors
        self.draw = draw
        self.times = check.bounds("min_time", options.min_time, "max_time", options.max_time)
        self.sizes = check.bounds("min_size", options.min_size, "max_size", options.max_size)
        self.zero = check.probability("zero_probability", options.zero_probability)
        self.workspace = check.probability("workspace_probability", options.workspace_probability)
        self.several = check.probability("multi_output_probability", options.multi_output_probability)
        self.alternative = check.probability("alternative_probability", options.alternative_probability)
        self.values: list[Document] = []
        self.tasks: list[Document] = []
        self.size: dict[str, int] = {}
        self.outputs: list[list[str]] = []
        self.time: list[int] = []
        self.reads: list[list[str]] = []

    def value(self, name: str, size: int) -> str:
        """Declare a value and return its name."""
        self.size[name] = size
        self.values.append({"id": name, "size": size})
        return name

    def forward(self, phase: str) -> None:
        """Draw every task of the graph."""
        draw = self.draw
        read = {u for reads in self.predecessors for u in reads}
        for node, before in enumerate(self.predecessors):
            reads = [name for u in before for name in self._some(self.outputs[u])]
            names = [f"v{node}"] if not draw.chance(self.several) else [f"v{node}.0", f"v{node}.1"]
            writes = [self.value(name, draw.size(*self.sizes, self.zero)) for name in names]
            time = draw.size(*self.times, self.zero)
            task: Document = {"id": f"t{node}", "time": time, "reads": reads, "writes": writes}
            if draw.chance(self.workspace):
                task["workspace"] = draw.size(*self.sizes, self.zero)
            if phase:
                task["phase"] = phase
            self.tasks.append(task)
            if node in read and draw.chance(self.alternative):
                task["required"] = False
                fewer = [name for name in reads if draw.chance(0.5)]
                slower = draw.integer(time, 2 * time + 1)
                self.tasks.append({**task, "id": f"t{node}.alternative", "time": slower, "reads": fewer})
            self.outputs.append(writes)
            self.time.append(time)
            self.reads.append(reads)

    def backward(self) -> None:
        """Mirror the graph: a loss, then the backward of every task, last first."""
        gradients: dict[int, list[str]] = {}
        read = {u for reads in self.predecessors for u in reads}
        sinks = [node for node in range(len(self.predecessors)) if node not in read]
        for node in sinks:
            gradients[node] = [self.value(f"g{node}", sum(self.size[name] for name in self.outputs[node]))]
        final = [name for node in sinks for name in self.outputs[node]]
        self.tasks.append({"id": "loss", "time": 0, "reads": final, "writes": [gradients[node][0] for node in sinks]})
        for node in reversed(range(len(self.predecessors))):
            writes = []
            for u in self.predecessors[node]:
                name = self.value(f"g{u}.{node}", sum(self.size[n] for n in self.outputs[u] if n in self.reads[node]))
                gradients.setdefault(u, []).append(name)
                writes.append(name)
            if not writes:  # the gradient of a source's own parameters
                writes = [self.value(f"w{node}", self.draw.size(*self.sizes, self.zero))]
            reads = [*self.reads[node], *gradients[node]]
            task = {"id": f"b{node}", "time": 2 * self.time[node], "reads": reads, "writes": writes}
            self.tasks.append({**task, "phase": "backward"})

    def _some(self, names: list[str]) -> list[str]:
        """Return one or both of a task's values."""
        if len(names) == 1 or self.draw.chance(0.5):
            return names
        return [self.draw.pick(names)]


def finish(family: str, what: str, predecessors: Predecessors, draw: Draw, options: TaskOptions) -> Document:
    """Draw the tasks and values of a shape; return the instance."""
    training = options.training
    tasks = _Tasks(predecessors, draw, options)
    tasks.forward("forward" if training else "")
    if training:
        tasks.backward()
    check.total([*tasks.size.values(), *(task.get("workspace", 0) for task in tasks.tasks)], "lower max_size or nodes")
    seed = options.seed
    return document(
        kind="dag",
        name=f"{family}_n{len(predecessors)}_seed{seed}{'_training' if training else ''}",
        description=f"{what}, {len(tasks.tasks)} tasks, {sum(map(len, predecessors))} edges"
        f"{', mirrored into a training graph' if training else ''}, times {tasks.times[0]} to {tasks.times[1]}, "
        f"sizes {tasks.sizes[0]} to {tasks.sizes[1]}, seed {seed}",
        units=UNITLESS,
        values=tasks.values,
        tasks=tasks.tasks,
    )
