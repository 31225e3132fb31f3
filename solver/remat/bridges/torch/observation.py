"""`remat.torch.observe`: predicted and measured time and peak of each module, in steps of a training loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.costs import Costs, costs_document, key_of
from remat.bridges.torch.graph_emission import Emitted, Line
from remat.bridges.torch.measure import LiveStorages, clock, microseconds
from remat.bridges.torch.plans import events_of
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import fx, torch
from remat.messages import elided
from remat.solving.external_schedule import schedule_of
from remat.units import Units, format_size, format_time

SHOWN = 12
"""Modules that are shown, those with the longest times first."""
WIDEST = 46
"""Columns of a module's name."""
UNITS = Units("us", "B")


@dataclass
class Row:
    """Time and peak of one module.

    Attributes
    ----------
    module : str
        Empty for operators of no module.
    predicted_time, time : int
        Microseconds of all its operators, recomputation included.
    predicted_peak, peak : int
        The most bytes of activations and gradients while one of its operators runs.
    """

    module: str
    predicted_time: int = 0
    time: int = 0
    predicted_peak: int = 0
    peak: int = 0


@dataclass
class Report:
    """Predicted and measured time and peak, after the observed steps.

    Attributes
    ----------
    rows : list of Row
        One for each module, in the order in which they run.
    total : Row
    costs : dict
        The measured times as a document: `compile(module, budget, costs=report.costs)` plans with them.
    passes : int
        Forward and backward passes of planned graphs that were observed; times are those of all of them.
    """

    rows: list[Row] = field(default_factory=list)
    total: Row = field(default_factory=lambda: Row("all"))
    costs: dict[str, Any] = field(default_factory=dict)
    passes: int = 0

    def __str__(self) -> str:
        """Return a table of the modules with the longest times."""
        head = ("", "planned time", "measured", "planned peak", "measured")
        longest = sorted(self.rows, key=lambda row: -row.time)[:SHOWN]
        lines = [head, *(_shown(row) for row in longest), _shown(self.total)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        left = len(self.rows) - len(longest)
        if left:
            text.insert(-1, f"and {left} modules more")
        return "\n".join((*text, "To plan again with the measured times: costs=report.costs"))


def _shown(row: Row) -> tuple[str, ...]:
    times = (format_time(time, UNITS) for time in (row.predicted_time, row.time))
    return (elided(row.module or "(no module)", WIDEST), *times, *map(format_size, (row.predicted_peak, row.peak)))


@dataclass(frozen=True)
class Graph:
    """A training graph as it runs: the step with its sizes, the order, and the two graphs that were emitted."""

    captured: Captured
    costs: Costs
    runs: Sequence[str]
    emitted: Emitted
    modules: tuple[Any, Any]


class Pass:
    """One forward and its backward, operator by operator."""

    def __init__(self, graph: Graph, arguments: list[Any]) -> None:
        self.graph = graph
        self.live = LiveStorages(part for part in arguments if isinstance(part, torch.Tensor))
        self.taken: list[tuple[Line, float]] = []
        self.levels: list[tuple[Line, int]] = []

    def run(self, half: int, arguments: list[Any]) -> Any:
        """Run the forward (0) or the backward (1)."""
        part = (self.graph.emitted.forward, self.graph.emitted.backward)[half]
        module = self.graph.modules[half]
        self.live.adopt(arguments)
        nodes = list(module.graph.nodes)
        dead = _last_uses(nodes)
        there: dict[Any, Any] = {}
        lines = iter(part.lines)
        for node in nodes:
            if node.op == "output":
                return fx.node.map_arg(node.args[0], there.__getitem__)
            if node.op == "placeholder":
                there[node] = arguments.pop(0)
                continue
            self._step(node, next(lines), module, there, dead)
        return None

    def _step(self, node: Any, line: Line, module: Any, there: dict[Any, Any], dead: dict[Any, list[Any]]) -> None:
        if node.op == "get_attr":
            there[node] = getattr(module, node.target)
            return
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), there.__getitem__)
        begin = clock()
        there[node] = node.target(*args, **kwargs)
        taken = clock() - begin
        self.live.adopt(there[node])
        self.levels.append((line, self.live.now))
        del args, kwargs
        begin = clock()
        for read in dead.get(node, ()):
            there.pop(read, None)
        self.taken.append((line, taken + clock() - begin))
        self.live.sweep()


def _last_uses(nodes: Sequence[Any]) -> dict[Any, list[Any]]:
    """Return, for each node, the nodes whose last reader it is."""
    last: dict[Any, Any] = {}
    for node in nodes:
        last[node] = node
        for read in node.all_input_nodes:
            last[read] = node
    dead: dict[Any, list[Any]] = {}
    for read, node in last.items():
        dead.setdefault(node, []).append(read)
    return dead


class Watch:
    """Observes the passes of a planned module."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []
        self._open: dict[int, list[Pass]] = {}

    def forward(self, graph: Graph, arguments: list[Any]) -> Any:
        """Run a forward."""
        one = Pass(graph, arguments)
        self.passes.append(one)
        self._open.setdefault(id(graph.emitted), []).append(one)
        return one.run(0, arguments)

    def began(self, emitted: Emitted) -> bool:
        """Whether the forward of a backward was observed."""
        return bool(self._open.get(id(emitted)))

    def backward(self, emitted: Emitted, arguments: list[Any]) -> Any:
        """Run the backward of the latest forward."""
        return self._open[id(emitted)].pop().run(1, arguments)

    def fill(self, report: Report) -> None:
        """Compare the prediction with the measurement."""
        rows: dict[str, Row] = {}
        samples: dict[str, list[float]] = {}
        workspace: dict[str, int] = {}
        predicted: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
        for one in self.passes:
            joint, costs = one.graph.captured.joint, one.graph.costs
            alike = id(one.graph.captured), id(one.graph.emitted)
            if alike not in predicted:
                predicted[alike] = list(_predicted(one.graph))
            for module, time, level in predicted[alike]:
                row = rows.setdefault(module, Row(module))
                row.predicted_time += time
                row.predicted_peak = max(row.predicted_peak, level)
            for line, seconds in one.taken:
                node = joint.nodes[line.node]
                rows.setdefault(node.module, Row(node.module)).time += round(seconds * 1e6)
                if line.run:
                    samples.setdefault(key_of(node, from_mask=line.from_mask), []).append(seconds)
                    workspace[key_of(node)] = costs.workspace(node)
            for line, level in one.levels:
                row = rows[joint.nodes[line.node].module]
                row.peak = max(row.peak, level)
        report.rows = list(rows.values())
        report.passes = len(self.passes)
        for row in report.rows:
            report.total.predicted_time += row.predicted_time
            report.total.time += row.time
            report.total.predicted_peak = max(report.total.predicted_peak, row.predicted_peak)
            report.total.peak = max(report.total.peak, row.peak)
        found = {key: (microseconds(taken), workspace.get(key, 0)) for key, taken in samples.items()}
        report.costs = costs_document("the device of training", found)


def _predicted(graph: Graph) -> Iterator[tuple[str, int, int]]:
    """Yield module, microseconds and bytes of each run of the plan."""
    joint = graph.captured.joint
    events = events_of(graph.captured, schedule_of(graph.captured.instance(graph.costs), graph.runs))
    level = 0
    for event in events:
        if event.task is not None:
            task = joint.tasks[event.task]
            level += sum(joint.values.get(value, 0) for value in task.writes)
            node = joint.nodes.get(task.node)
            if node is not None:
                time = int(graph.costs.time(node, from_mask=task.from_mask))
                yield node.module, time, level + graph.costs.workspace(node)
        level -= sum(joint.values.get(value, 0) for value in event.drop)


@contextmanager
def observe(module: Any) -> Iterator[Report]:
    """Compare the predicted time and peak of each module with those of the steps inside a ``with`` block.

    Operators run one by one as planned, each with a clock around it; results are the same. On one thread of the CPU,
    CPU time counts.

    Parameters
    ----------
    module : torch.nn.Module or Backend
        A result of `remat.torch.compile` or `remat.torch.backend`.

    Yields
    ------
    Report
        It is filled at the end of the block.

    Raises
    ------
    TorchError
        If the module has no plan whose operators can be observed.
    """
    planner = getattr(getattr(module, "__dict__", {}).get("_remat"), "planner", module)
    choices = getattr(planner, "choices", None)
    if choices is None:
        raise TorchError("expected a module that remat.torch.compile has compiled, or a backend")
    if choices.inductor or choices.host is not None:
        raise TorchError("steps through Inductor or with a host cannot be observed operator by operator")
    report, watch = Report(), Watch()
    planner.watch = watch
    try:
        yield report
    finally:
        planner.watch = None
    if not watch.passes:
        raise TorchError("no planned graph ran in the block: train the module in it")
    watch.fill(report)


__all__ = ["Report", "Row", "observe"]
