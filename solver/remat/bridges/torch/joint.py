"""The rules of a joint graph: which nodes are tasks or views, which tasks are recomputable, and their precedence.

A value is a storage: views are folded into their base and recreated for each reader. An operator with several outputs
writes several values. Inputs, parameters and buffers lie outside the graph and are not values.

The following rules make the order of runs safe; values of size zero (`...:done`) add precedence where data does not:

- the task `@backward` takes no time, reads the forward's results and writes the tangents; runs before it form the
  forward graph, runs after it the backward graph;
- an operator that writes into a buffer runs exactly once, before `@backward`, after all readers of the buffer; the
  readers are not recomputed, except batch normalisation in training, whose outputs do not depend on its statistics;
- operators that draw random numbers run once, in program order, so that each draws the same numbers;
- collectives run once, in program order, so that all processes run them in the same order;
- dropout may be recomputed from its mask;
- the forward's results are computed once and stay until the end, since the caller holds them.

A size that is not fixed is a number, which takes no memory. The task that creates a tensor also provides its sizes, so
readers of a size run after this task. The forward passes its sizes to the backward.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from remat.bridges.torch.recording import OPAQUE, WAIT, Node, Recording, Role, TorchError

BOUNDARY = "@backward"
FROM_MASK = "@mask"
DONE = ":done"


@dataclass(frozen=True, slots=True)
class Task:
    """A unit of execution: a node that is no view, the boundary, or dropout from its mask.

    Attributes
    ----------
    name, node : str
        `node` is empty for the boundary.
    reads, writes : tuple of str
        Values, including those of size zero.
    phase : str
    again : bool
        Whether it may run more than once.
    once : bool
        Whether it must run exactly once.
    from_mask : bool
    """

    name: str
    node: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    phase: str
    again: bool = True
    once: bool = False
    from_mask: bool = False


class Joint:
    """A recorded joint graph with classified nodes.

    Attributes
    ----------
    recording : Recording
    nodes : dict of str to Node
    values : dict of str to int
        Bytes of each value that a task or the boundary makes.
    owned : dict of str to tuple of str
        The values whose storage a node's tensors use; inputs have none.
    maker : dict of str to str
        For each CALL that is a task, and the ITEMs of one, the task's node.
    size_of : dict of str to str
        Sizes that are read off the result of a task, and its node; all others follow from inputs and from these.
    sizes : tuple of str
        Sizes that the forward passes to the backward.
    opaque : tuple of str
        Inputs that are no tensors.
    tasks : dict of str to Task
        In the order of the program, effects of the forward right before the boundary.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.nodes = {node.name: node for node in recording.nodes}
        self.values: dict[str, int] = {}
        self.owned: dict[str, tuple[str, ...]] = {}
        self.maker: dict[str, str] = {}
        self.size_of: dict[str, str] = {}
        self._given: set[int] = set()
        self._value_of: dict[int, str] = {}
        self._written: dict[str, tuple[str, ...]] = {}
        for node in recording.nodes:
            self._place(node)
        self.items: dict[str, tuple[str, ...]] = {}
        for name, call in self.maker.items():
            if name != call:
                self.items[call] = (*self.items.get(call, ()), name)
        self._kinds()
        self.sizes = tuple(self._early_sizes())
        self.opaque = tuple(node.name for node in recording.nodes if node.operator == OPAQUE)
        self.tasks = {task.name: task for task in self._order()}

    # ------------------------------------------------------------------------------------- storages

    def _place(self, node: Node) -> None:
        """Find the values of a node's tensors, and whether the node makes them or views them."""
        held = [tensor for tensor in node.tensors if tensor is not None]
        if node.role in (Role.INPUT, Role.CONSTANT):
            self._given.update(tensor.storage for tensor in held)
        new: list[str] = []
        if node.role in (Role.TANGENT, Role.CALL):
            for index, tensor in enumerate(node.tensors):
                if tensor is not None and tensor.storage not in self._value_of and tensor.storage not in self._given:
                    name = f"{node.name}.{index}" if node.several else node.name
                    self._value_of[tensor.storage] = name
                    self.values[name] = self.recording.storages[tensor.storage]
                    new.append(name)
        owned = (self._value_of.get(tensor.storage) for tensor in held)
        self.owned[node.name] = tuple(dict.fromkeys(name for name in owned if name is not None))
        if node.role is Role.CALL and (new or node.effect or not held):
            self.maker[node.name] = node.name
            self._written[node.name] = tuple(new)
        elif node.role is Role.ITEM and node.inputs[0] in self.maker:
            self.maker[node.name] = self.maker[node.inputs[0]]
        elif node.role is Role.SIZE:
            made = next((self.maker[name] for name in self.bases(node.inputs) if name in self.maker), None)
            if made is not None:
                self.size_of[node.name] = made

    def with_sizes(self, recording: Recording) -> Joint:
        """Return the same graph with the sizes of another recording; the recordings must agree in all else."""
        made = copy.copy(self)
        made.recording = recording
        made.nodes = {node.name: node for node in recording.nodes}
        made.values = dict.fromkeys(self.values, 0) | {
            name: recording.storages[storage] for storage, name in self._value_of.items()
        }
        return made

    def is_view(self, name: str) -> bool:
        """Whether a node is only a view of another node's result, or a size that follows from others."""
        if self.nodes[name].role is Role.SIZE:
            return name not in self.size_of
        return self.nodes[name].role in (Role.CALL, Role.ITEM) and name not in self.maker

    def waits_of(self, task: str) -> tuple[str, ...]:
        """Return the waits for the result of a collective; they run directly after it."""
        return self._waits.get(task, ())

    @cached_property
    def _waits(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for node in self.recording.nodes:
            if node.operator == WAIT and self.is_view(node.name) and self.nodes[node.inputs[0]].collective:
                found[node.inputs[0]] = (*found.get(node.inputs[0], ()), node.name)
        return found

    def sizes_of(self, task: str) -> tuple[str, ...]:
        """Return the sizes that are read off the result of a task's node."""
        return tuple(size for size, made in self.size_of.items() if made == task)

    def bases(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the nodes behind these nodes and their views, each as often as it is read."""
        waiting = list(names)[::-1]
        while waiting:
            name = waiting.pop()
            if self.is_view(name):
                waiting.extend(reversed(self.nodes[name].inputs))
            else:
                yield name

    def _values_read(self, names: Iterable[str]) -> tuple[str, ...]:
        read = (value for name in names for value in self.owned[name])
        through = (value for base in self.bases(names) for value in self.owned[base])
        return tuple(dict.fromkeys((*read, *through)))

    # ------------------------------------------------------------------------------------- forward and backward

    def _kinds(self) -> None:
        """Separate the tasks of the forward from those of the backward."""
        late: set[str] = set()
        for node in self.recording.nodes:
            if node.role is Role.TANGENT or late.intersection(node.inputs) or (node.backward and node.random):
                late.add(node.name)
        wanted: set[str] = set()
        waiting = [name for name in self.recording.outputs if name is not None]
        calls = (node for node in self.recording.nodes if node.role is Role.CALL and (node.effect or node.random))
        waiting += [node.name for node in calls if node.name not in late]
        while waiting:
            name = waiting.pop()
            if name in late:
                raise TorchError(f"the forward returns {self.describe(name)}, which the backward computes")
            if name not in wanted:
                wanted.add(name)
                waiting.extend(self.nodes[name].inputs)
        self.forward = {name for name in self._written if name in wanted}

    def _early_sizes(self) -> Iterator[str]:
        """Yield the sizes that are known at the end of the forward."""
        known: set[str] = set()
        for node in self.recording.nodes:
            if node.role is Role.INPUT and node.operator == "size":
                known.add(node.name)
            elif node.role is Role.SIZE:
                made = self.size_of.get(node.name)
                needs = {name for name in self.bases(node.inputs) if self.nodes[name].role in (Role.SIZE, Role.TANGENT)}
                if made in self.forward if made is not None else known >= needs:
                    known.add(node.name)
        yield from known

    def describe(self, name: str) -> str:
        """Return the user's name of an operator."""
        node = self.nodes[name]
        return f"{node.operator or node.name} ({node.module or node.source or node.name})"

    # ------------------------------------------------------------------------------------- effects

    def _mutated(self) -> dict[int, list[str]]:
        """Return, for each storage that is written, the tasks that write it, in order."""
        found: dict[int, list[str]] = {}
        for name in self._written:
            for target in self.nodes[name].mutates:
                if self.owned[target]:
                    raise TorchError(
                        f"{self.describe(name)} writes into an intermediate result; this cannot be planned"
                    )
                for tensor in self.nodes[target].tensors:
                    if tensor is not None:
                        found.setdefault(tensor.storage, []).append(name)
        return found

    def _size_order(self) -> Iterator[tuple[str, str]]:
        """Yield precedence pairs of tasks: the task whose result shows a size, and a task that needs the size."""
        for name in self._written if self.size_of else ():
            for base in self.bases(self.nodes[name].inputs):
                if base in self.size_of:
                    yield self.size_of[base], name

    def _storages_read(self, name: str) -> set[int]:
        inputs = self.nodes[name].inputs
        held = (t for read in (*inputs, *self.bases(inputs)) for t in self.nodes[read].tensors)
        return {tensor.storage for tensor in held if tensor is not None}

    def _effect_order(self) -> tuple[list[tuple[str, str]], set[str]]:
        """Return precedence pairs of tasks, and the tasks that run only once."""
        pairs: list[tuple[str, str]] = []
        fixed: set[str] = set()
        readers: dict[int, list[str]] = {}
        mutated = self._mutated()
        for name in self._written:
            for storage in self._storages_read(name) & mutated.keys():
                readers.setdefault(storage, []).append(name)
        for storage, writers in mutated.items():
            pairs += pairwise(writers)
            for name in readers.get(storage, ()):
                if name in writers:
                    continue
                if name not in self.forward and any(writer in self.forward for writer in writers):
                    raise TorchError(
                        f"{self.describe(name)} reads in the backward a buffer that the forward overwrites; "
                        "this cannot be planned"
                    )
                pairs += [(name, writer) for writer in writers]
                if not self._only_statistics(name, storage):
                    fixed.add(name)
        fixed.update(writer for writers in mutated.values() for writer in writers)
        fixed.update(self._wanted_statistics(mutated))
        return pairs, fixed

    def _only_statistics(self, name: str, storage: int) -> bool:
        """Whether a task uses a buffer only as running statistics."""
        node = self.nodes[name]
        others = [read for read in node.inputs if read not in node.statistics]
        held = (t for read in (*others, *self.bases(others)) for t in self.nodes[read].tensors if t is not None)
        return bool(node.statistics) and storage not in {tensor.storage for tensor in held}

    def _wanted_statistics(self, mutated: Iterable[int]) -> Iterator[str]:
        """Yield normalisations whose new statistics would differ in a rerun, and are wanted by other operators.

        A rerun after the buffer was overwritten makes other new statistics; the next call of the same normalisation
        takes these, and hands on its own.
        """
        stale, overwritten = set[str](), set(mutated)
        for name in self._written:
            node = self.nodes[name]
            held = (t for read in (*node.statistics, *self.bases(node.statistics)) for t in self.nodes[read].tensors)
            old = any(tensor is not None and tensor.storage in overwritten for tensor in held)
            if not old and not stale.intersection(self.bases(node.statistics)):
                continue
            renewed = {item for item in self.items.get(name, ()) if self.nodes[item].item in node.renewed}
            if self._wanted(renewed):
                yield name
            else:
                stale |= renewed

    def _wanted(self, renewed: set[str]) -> bool:
        """Whether an operator other than a normalisation or a buffer update depends on new statistics."""
        for reader in self._written:
            node = self.nodes[reader]
            read = renewed.intersection(self.bases(node.inputs))
            if read and not node.mutates and not read <= set(node.statistics):
                return True
        ends = (*self.recording.outputs, *self.recording.gradients)
        return not renewed.isdisjoint(self.bases(end for end in ends if end is not None))

    # ------------------------------------------------------------------------------------- order

    def _order(self) -> list[Task]:
        """List the tasks, with values of size zero that enforce additional precedence."""
        pairs, fixed = self._effect_order()
        pairs += self._size_order()
        random = [name for name in self._written if self.nodes[name].random]
        shared = [name for name in self._written if self.nodes[name].collective]
        fixed.update((*random, *shared))
        fixed.update(name for name in self._written if self.nodes[name].effect)
        returned = self.returned
        fixed.update(name for name in self._written if returned.intersection(self._written[name]))
        for alike in (random, shared):
            ahead = [name for name in alike if name in self.forward]
            behind = [name for name in alike if name not in self.forward]
            pairs += [*pairwise([*ahead, BOUNDARY]), *pairwise([BOUNDARY, *behind])]
        effects = [name for name in self._written if name in self.forward and self.nodes[name].effect]
        pairs += [(name, BOUNDARY) for name in effects]
        first = [name for name in self._written if name in self.forward and name not in effects]
        last = [name for name in self._written if name not in self.forward]
        plain = {name: self._task(name, fixed) for name in (*first, *effects, *last)}
        boundary = self._boundary()
        listed = [plain[n] for n in (*first, *effects)] + [boundary] + [plain[n] for n in last]
        ordered = _with_order(listed, pairs)
        self.values.update({v: 0 for task in ordered for v in task.writes if v not in self.values})
        return [made for task in ordered for made in (task, *self._from_mask(task))]

    def _task(self, name: str, fixed: set[str]) -> Task:
        node = self.nodes[name]
        return Task(
            name,
            name,
            self._values_read(node.inputs),
            self._written[name],
            "forward" if name in self.forward else "backward",
            again=name not in fixed,
            once=name in fixed and not self._written[name],
        )

    def _boundary(self) -> Task:
        outputs = [name for name in self.recording.outputs if name is not None]
        tangents = [
            name for node in self.recording.nodes if node.role is Role.TANGENT for name in self.owned[node.name]
        ]
        return Task(BOUNDARY, "", self._values_read(outputs), tuple(tangents), "loss", again=False, once=True)

    def _from_mask(self, task: Task) -> Iterator[Task]:
        """Yield the alternative of dropout: its result from its input and its mask."""
        node = self.nodes.get(task.node)
        if node is None or node.dropout is None or not 0 < node.dropout < 1:
            return
        parts = {self.nodes[item].item: item for item in self.items.get(node.name, ())}
        if parts.keys() >= {0, 1} and not self.returned.intersection(self.owned[parts[0]]):
            mask = self.owned[parts[1]]
            reads = tuple(dict.fromkeys((*self._values_read(node.inputs), *mask)))
            yield Task(task.name + FROM_MASK, node.name, reads, self.owned[parts[0]], task.phase, from_mask=True)

    @cached_property
    def keep_all(self) -> tuple[str, ...]:
        """The order without recomputation."""
        return tuple(task.name for task in self.tasks.values() if not task.from_mask)

    @cached_property
    def returned(self) -> frozenset[str]:
        """Results of the forward. The caller holds them afterwards, so recomputation would free nothing."""
        return frozenset(self._values_read([name for name in self.recording.outputs if name is not None]))

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """Values that must be resident at the end: gradients, and the forward's results, which its caller holds."""
        ends = (*self.recording.outputs, *self.recording.gradients)
        return self._values_read([name for name in ends if name is not None])

    def outputs(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield place and values of the forward's results."""
        for place, name in enumerate(self.recording.outputs):
            if name is not None:
                yield place, self._values_read([name])

    def gradients(self) -> Iterator[tuple[int, Node, tuple[str, ...]]]:
        """Yield place, node and gradient values of each input that has a gradient."""
        inputs = [node for node in self.recording.nodes if node.role is Role.INPUT]
        for place, (node, name) in enumerate(zip(inputs, self.recording.gradients, strict=False)):
            if name is not None:
                yield place, node, self._values_read([name])

    def mask_parts(self, name: str) -> tuple[str, str, str]:
        """Return input, mask and output of a dropout node."""
        parts = {self.nodes[item].item: item for item in self.items[name]}
        return self.nodes[name].inputs[0], parts[1], parts[0]


def _with_order(tasks: list[Task], pairs: list[tuple[str, str]]) -> list[Task]:
    """Add values of size zero for pairs that the data does not order."""
    place = {task.name: index for index, task in enumerate(tasks)}
    maker = {value: index for index, task in enumerate(tasks) for value in task.writes}
    before: list[int] = []
    for task in tasks:
        mine = 0
        for value in task.reads:
            index = maker[value]
            mine |= before[index] | 1 << index
        before.append(mine)
    reads: dict[int, list[str]] = {}
    writes: set[int] = set()
    for first, second in dict.fromkeys(pairs):
        one, two = place[first], place[second]
        if one >= two:
            raise TorchError(f"{first} must run before {second}, but depends on it; this cannot be planned")
        if not before[two] >> one & 1:
            writes.add(one)
            reads.setdefault(two, []).append(first + DONE)
    return [
        replace(
            task,
            reads=(*task.reads, *reads.get(index, ())),
            writes=(*task.writes, task.name + DONE) if index in writes else task.writes,
        )
        for index, task in enumerate(tasks)
    ]
