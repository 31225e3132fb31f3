"""Conversion of ordered runs to a forward and a backward graph, with the values passed between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from remat.bridges.torch.joint import BOUNDARY, Joint, Task
from remat.bridges.torch.recording import Role, TorchError


@dataclass(frozen=True, slots=True)
class Line:
    """A copy of a node.

    Attributes
    ----------
    name : str
        Unique in its part; those of reruns end in ``__2``, ``__3``...
    node : str
    reads : tuple of (str, str)
        Nodes that it reads, and the lines that stand for them.
    run : str
        The task that it runs; empty for views, and for items of a result.
    from_mask : bool
    """

    name: str
    node: str
    reads: tuple[tuple[str, str], ...]
    run: str = ""
    from_mask: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A graph: inputs, lines, and the names of its results."""

    inputs: tuple[str, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str | None, ...]

    @property
    def runs(self) -> tuple[str, ...]:
        """The tasks that run, in order."""
        return tuple(line.run for line in self.lines if line.run)


@dataclass(frozen=True, slots=True)
class Emitted:
    """Forward and backward.

    Attributes
    ----------
    forward, backward : Part
        The forward returns its outputs, the `saved` tensors, and the sizes; the backward takes the sizes, the saved
        tensors, and the tangents.
    saved : tuple of str
        Nodes whose tensors are passed from the forward to the backward.
    opaque : tuple of str
        Inputs that are no tensors; they are passed after the saved tensors.
    sizes : tuple of str
        Numbers that are passed for every order of the runs.
    """

    forward: Part
    backward: Part
    saved: tuple[str, ...]
    opaque: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()


def emit(joint: Joint, runs: Iterable[str]) -> Emitted:
    """Make the two graphs of a schedule.

    Parameters
    ----------
    joint : Joint
    runs : iterable of str
        Tasks in the order of the schedule.
    """
    order = list(runs)
    if order.count(BOUNDARY) != 1:
        raise TorchError(f"a schedule runs {BOUNDARY} exactly once, not {order.count(BOUNDARY)} times")
    turn = order.index(BOUNDARY)
    nodes, recording = joint.recording.nodes, joint.recording
    tangents = tuple(node.name for node in nodes if node.role is Role.TANGENT)
    late = _Half(joint, [*joint.sizes, *joint.opaque, *tangents], takes_more=True)
    for name in order[turn + 1 :]:
        late.run(joint.tasks[name])
    gradients = [None if name is None else late.line_of(name) for name in recording.gradients]
    early = _Half(joint, [node.name for node in nodes if node.role is Role.INPUT])
    for name in order[:turn]:
        early.run(joint.tasks[name])
    outputs = [None if name is None else early.line_of(name) for name in recording.outputs]
    behind = _needed(joint, late.lines, gradients)
    saved = tuple(name for name in late.taken if name in behind[1])
    forward = [*outputs, *(early.line_of(name) for name in (*saved, *joint.opaque, *joint.sizes))]
    inputs = tuple(node.name for node in nodes if node.role is Role.INPUT)
    return Emitted(
        Part(inputs, _needed(joint, early.lines, forward)[0], tuple(forward)),
        Part((*joint.sizes, *saved, *joint.opaque, *tangents), behind[0], tuple(gradients)),
        saved,
        joint.opaque,
        joint.sizes,
    )


@dataclass
class _Half:
    """One of the graphs under construction; `there` has the latest line for each node that is not a view."""

    joint: Joint
    given: list[str]
    takes_more: bool = False
    lines: list[Line] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    there: dict[str, str] = field(default_factory=dict)
    views: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.there.update((name, name) for name in self.given)
        self.used.update((name, 1) for name in self.given)

    def run(self, task: Task) -> None:
        """Copy a task's node, followed directly by items and sizes of its result, so that these do not keep it."""
        if task.from_mask:
            read, mask, made = self.joint.mask_parts(task.node)
            operands = tuple((name, self.line_of(name)) for name in (read, mask))
            self.there[made] = self._add(task.node, operands, task.name, from_mask=True)
            return
        line = self._copy(task.node, task.name)
        self.there[task.node] = line
        for item in self.joint.items.get(task.node, ()):
            self.there[item] = self._add(
                item, tuple((read, self.there[read]) for read in self.joint.nodes[item].inputs)
            )
        for wait in self.joint.waits_of(task.node):
            self.line_of(wait)
        for size in self.joint.sizes_of(task.node):
            if size not in self.there:
                self.there[size] = self._copy(size, "")

    def line_of(self, name: str) -> str:
        """Return the current line of a node; each view of a line is created once."""
        if name in self.there or not self.joint.is_view(name):
            if name not in self.there:
                self._bring(name)
            return self.there[name]
        key = (name, tuple(self.line_of(read) for read in self.joint.nodes[name].inputs))
        if key not in self.views:
            self.views[key] = self._copy(name, "")
        return self.views[key]

    def _bring(self, name: str) -> None:
        if self.joint.nodes[name].role is Role.CONSTANT:
            self.there[name] = self._add(name, ())
            return
        if not self.takes_more:
            raise TorchError(f"the schedule reads {self.joint.describe(name)} before it runs it")
        self.taken.append(name)
        self.used[name] = 1
        self.there[name] = name

    def _copy(self, name: str, run: str) -> str:
        return self._add(name, tuple((read, self.line_of(read)) for read in self.joint.nodes[name].inputs), run)

    def _add(self, node: str, reads: tuple[tuple[str, str], ...], run: str = "", *, from_mask: bool = False) -> str:
        count = self.used[node] = self.used.get(node, 0) + 1
        name = node if count == 1 else f"{node}__{count}"
        self.lines.append(Line(name, node, reads, run, from_mask))
        return name


def _needed(joint: Joint, lines: list[Line], outputs: Iterable[str | None]) -> tuple[tuple[Line, ...], set[str]]:
    """Drop unread lines, except effects and random draws; also return all names that are read."""
    read = {name for name in outputs if name is not None}
    left: list[Line] = []
    for line in reversed(lines):
        node = joint.nodes[line.node]
        acts = bool(line.run) and not line.from_mask and (node.effect or node.random)
        if acts or line.name in read:
            left.append(line)
            read.update(name for _, name in line.reads)
    return tuple(reversed(left)), read
