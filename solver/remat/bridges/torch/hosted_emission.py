"""Forward and backward graph of a host-ordered program, with its copies and waits as calls."""

from __future__ import annotations

from typing import Any

from remat.bridges.torch import transfers
from remat.bridges.torch.capture import Captured
from remat.bridges.torch.host_updates import delivery
from remat.bridges.torch.host_updates.delivery import leaving
from remat.bridges.torch.interpreter import from_mask, mask_scale
from remat.bridges.torch.joint import BOUNDARY, Task
from remat.bridges.torch.recording import Role, TorchError
from remat.bridges.torch.shim import fx, torch
from remat.solving.host_order.program import Copy, Operation, Program, Run, Wait


def build_program(captured: Captured, program: Program, updates: int | None = None) -> tuple[Any, Any]:
    """Return the graph modules of forward and backward.

    Parameters
    ----------
    captured : Captured
    program : Program
    updates : int, optional
        The number of the optimizer at the host, which then receives the offloaded gradients.

    Notes
    -----
    An offloaded value is an argument of the wait that frees its bytes, so that it lives until then. Values that are at
    the host between forward and backward are passed as their buffers.
    """
    host = program.machine.memories[1].capacity
    return _Emitter(captured, program, host, updates).build()


class _Half:
    """A graph under construction: the latest node of each original that is no view, and of each buffer."""

    def __init__(self, captured: Captured) -> None:
        self.captured, self.joint = captured, captured.joint
        self.graph = fx.Graph()
        self.made: dict[str, Any] = {}
        self.away: dict[str, Any] = {}
        self.views: dict[tuple[Any, ...], Any] = {}
        self.acts: set[Any] = set()

    def placeholder(self, name: str, meta: Any) -> Any:
        """Add an input."""
        node = self.graph.placeholder(name)
        node.meta = dict(meta)
        return node

    def node(self, name: str) -> Any:
        """Return the node for a node of the joint graph; each view of a node is created once."""
        if not self.joint.is_view(name):
            if name not in self.made:
                self.made[name] = self._missing(name)
            return self.made[name]
        reads = [self.node(read) for read in self.joint.nodes[name].inputs]
        key = (name, *reads)
        if key not in self.views:
            self.views[key] = self._copy(name)
        return self.views[key]

    def _missing(self, name: str) -> Any:
        if self.joint.nodes[name].role is Role.CONSTANT:
            return self._copy(name)
        return self.bring(name)

    def bring(self, name: str) -> Any:
        """Return a node that this graph did not make."""
        raise TorchError(f"the schedule reads {self.joint.describe(name)} before it runs it")

    def buffer(self, value: str) -> Any:
        """Return the node of the buffer in which a value is at the host."""
        return self.away[value]

    def _copy(self, name: str) -> Any:
        original = self.captured.by_name[name]
        copy = self.graph.node_copy(original, lambda read: self.node(read.name))
        copy.meta = {key: value for key, value in original.meta.items() if key != "recompute"}
        return copy

    def run(self, task: Task) -> None:
        """Add a run of a task."""
        if task.from_mask:
            read, mask, made = self.joint.mask_parts(task.node)
            scale = mask_scale(self.captured, read, task.node)
            self.made[made] = self.graph.call_function(from_mask, (self.node(read), self.node(mask), scale))
            self.made[made].meta = dict(self.captured.by_name[made].meta)
            return
        original = self.joint.nodes[task.node]
        self.made[task.node] = copy = self._copy(task.node)
        if original.effect or original.random:
            self.acts.add(copy)
        for item in self.joint.items.get(task.node, ()):
            self.made[item] = self._copy(item)

    def call(self, function: Any, *arguments: Any) -> Any:
        """Add a call that stays, whether its result is read or not."""
        node = self.graph.call_function(function, arguments)
        self.acts.add(node)
        return node

    def finish(self, outputs: list[Any]) -> Any:
        """Return the module without unused nodes."""
        self.graph.output(tuple(outputs))
        for node in reversed(list(self.graph.nodes)):
            if node.op in ("call_function", "get_attr") and not node.users and node not in self.acts:
                self.graph.erase_node(node)
        self.forget_unread()
        self.graph.lint()
        return fx.GraphModule(self.captured.graph, self.graph)

    def forget_unread(self) -> None:
        """Remove unused inputs where possible."""


class _Late(_Half):
    """The backward, whose inputs come from the forward."""

    def __init__(self, captured: Captured, early: _Half) -> None:
        super().__init__(captured)
        self.early = early
        self.taken: dict[Any, Any] = {}
        tangents = [node.name for node in self.joint.recording.nodes if node.role is Role.TANGENT]
        for name in tangents:
            self.made[name] = self.placeholder(name, captured.by_name[name].meta)
        self.first = self.made[tangents[0]]

    def _take(self, node: Any) -> Any:
        with self.graph.inserting_before(self.first):
            taken = self.placeholder(node.name, node.meta)
        self.taken[taken] = node
        return taken

    def forget_unread(self) -> None:
        for taken in [taken for taken in self.taken if not taken.users]:
            del self.taken[taken]
            self.graph.erase_node(taken)

    def bring(self, name: str) -> Any:
        return self._take(self.early.node(name))

    def buffer(self, value: str) -> Any:
        if value not in self.away:
            self.away[value] = self._take(self.early.away[value])
        return self.away[value]


class _Emitter:
    def __init__(self, captured: Captured, program: Program, host: int | None, updates: int | None) -> None:
        self.captured, self.program, self.host, self.updates = captured, program, host, updates
        self.leaving = {} if updates is None else {one.value: one for one in leaving(captured)}
        joint = captured.joint
        self.names: dict[str, list[str]] = {}
        tangents = (node.name for node in joint.recording.nodes if node.role is Role.TANGENT)
        for name in (*joint.maker, *tangents):
            for value in joint.owned[name]:
                if not (joint.nodes[name].role is Role.CALL and joint.nodes[name].several):
                    self.names.setdefault(value, []).append(name)

    def build(self) -> tuple[Any, Any]:
        captured = self.captured
        recording = captured.joint.recording
        early = _Half(captured)
        for node in recording.nodes:
            if node.role is Role.INPUT:
                early.made[node.name] = early.placeholder(node.name, captured.by_name[node.name].meta)
        operations = list(enumerate(self.program.operations))
        tasks = self.program.graph.tasks
        turn = next(k for k, one in operations if isinstance(one, Run) and tasks[one.task] == BOUNDARY)
        for place, one in operations[:turn]:
            self._add(early, place, one)
        outputs = [None if name is None else early.node(name) for name in recording.outputs]
        late = _Late(captured, early)
        for place, one in operations[turn + 1 :]:
            self._add(late, place, one)
        left = {place for one in self.leaving.values() for place, _ in one.parameters}
        gradients = [
            None if name is None or place in left else late.node(name) for place, name in enumerate(recording.gradients)
        ]
        backward = late.finish(gradients)
        return early.finish([*outputs, *late.taken.values()]), backward

    def _add(self, half: _Half, place: int, one: Operation) -> None:
        values, tasks = self.program.graph.values, self.program.graph.tasks
        match one:
            case Run():
                half.run(self.captured.joint.tasks[tasks[one.task]])
            case Copy() if values[one.value] in self.leaving:
                going = self.leaving[values[one.value]]
                gradient = self.captured.recording.gradients[going.parameters[0][0]]
                assert gradient is not None
                half.call(delivery.leave, half.node(gradient), self.updates, [name for _, name in going.parameters])
            case Copy():
                value = values[one.value]
                names = self.names.get(value, [])
                if len(names) != 1:
                    raise TorchError(f"{value} is in {len(names)} tensors, and one is copied")
                if one.source == 0:
                    node = half.node(names[0])
                    half.away[value] = buffer = half.call(transfers.offload, node, self.host)
                    buffer.meta = {"val": self._like(node)}
                else:
                    node = half.made[names[0]] = half.call(transfers.reload, half.buffer(value), self.host)
                    node.meta = dict(self.captured.by_name[names[0]].meta)
            case Wait():
                self._wait(half, one)

    def _like(self, node: Any) -> Any:
        """Return the metadata of a buffer for the compiler."""
        val = node.meta["val"]
        with val.fake_mode:
            return torch.empty(val.untyped_storage().nbytes(), dtype=torch.uint8, device="cpu")

    def _wait(self, half: _Half, one: Wait) -> None:
        values, operations = self.program.graph.values, self.program.operations
        copied = [values[operation.value] for k in one.copies if isinstance(operation := operations[k], Copy)]
        waited = [value for value in copied if value not in self.leaving]
        gone = [values[value] for value, memory in one.drop if memory == 0]
        buffers = [half.buffer(value) for value in dict.fromkeys(waited)]
        names = [name for value in gone for name in self.names.get(value, ())]
        held = [half.node(name) for name in names]
        half.call(transfers.wait, buffers, held, self.host)
        left = [name for value in copied if value in self.leaving for _, name in self.leaving[value].parameters]
        if left:
            half.call(delivery.wait, held, self.updates, left)
        for name in names:
            half.made.pop(name)
        for value, memory in one.drop:
            if memory:
                half.call(transfers.release, half.buffer(values[value]), self.host)
                half.away.pop(values[value])
