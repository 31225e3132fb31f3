"""The fusion model: a captured step as a graph of groups of operators; Inductor compiles each group to one kernel.

An operator is a library kernel, a reduction, a scatter, or pointwise. Library kernels are matrix products,
convolutions, attention, and all other operators without Inductor code. The rules follow Inductor's lowering and
scheduler:

- kernels of libraries read and write memory; so do reductions and scatters, unless all readers are in the same group;
- a pointwise result is written to memory if a library kernel or the caller reads it, if it is expensive and has several
  readers, or if it depends on many values in memory; otherwise each reader computes it;
- inputs that a convolution reads in another layout are copied at the start of the forward, and kept for its backward;
- operators over the same number of elements form one group if one reads the result of the other, or if both read the
  same value, unless another kernel must run between them.

A group writes the values that other groups read. Each of these values also has an optional task that computes only this
value, from the nearest values in memory. Such a recomputation costs the bytes that it reads and writes. A pointwise
result that only the backward reads has no other task: a schedule computes it in the forward and keeps it, or computes
it in the backward.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import import_module
from math import prod
from typing import Any

from remat.bridges.torch.costs import Costs
from remat.bridges.torch.generated_code import Workspace
from remat.bridges.torch.joint import BOUNDARY, DONE, Joint, Task
from remat.bridges.torch.layout_copies import LAYOUT, layout_copies
from remat.bridges.torch.recording import Role
from remat.bridges.torch.shim import torch
from remat.bridges.torch.symbolic import tensors_in
from remat.bridges.torch.tracing import formula_of, operator_name, values_of

ALONE = "@alone"
FEW_READS, MANY_READS, MANY_OPERATORS = 4, 8, 30
"""Inductor's limits: a pointwise result that exceeds one is written to memory. They are the number of values in memory
on which it depends if it has several readers, the same for a single reader, and its number of operators."""
MANY_READS_CPU, MANY_OPERATORS_CPU = 12, 50
EXPENSIVE = ("exp", "log", "log10", "log1p", "log2", "sigmoid", "tanh")
"""Operators that Inductor does not repeat for each reader on the CPU."""
SCATTERS = ("aten.index_put", "aten._unsafe_index_put", "aten.scatter", "aten.index_add", "aten.scatter_reduce")
ONLINE = "prims.prepare_softmax_online.default"


class Kind(StrEnum):
    """The kind of kernel with which Inductor executes an operator."""

    LIBRARY = "library"
    REDUCTION = "reduction"
    SCATTER = "scatter"
    POINTWISE = "pointwise"


def kind_of(node: Any) -> Kind:
    """Return the kind of an operator of Inductor's joint graph."""
    lowering: Any = import_module("torch._inductor.lowering")
    name, target = operator_name(node), node.target
    if target in lowering.fallbacks or target not in lowering.lowerings or formula_of(node) is not None:
        return Kind.LIBRARY
    if torch.Tag.nondeterministic_seeded in target.tags or name.startswith(SCATTERS):
        return Kind.LIBRARY if torch.Tag.nondeterministic_seeded in target.tags else Kind.SCATTER
    return Kind.REDUCTION if torch.Tag.reduction in target.tags or name == ONLINE else Kind.POINTWISE


@dataclass(frozen=True, slots=True)
class Group:
    """Operators that run as one kernel.

    Attributes
    ----------
    task : Task
        Its values, phase, and how often it may run; `node` is that of its last operator.
    members : tuple of str
        Tasks of the joint graph, in order.
    flops, moved : int
    required : bool
    """

    task: Task
    members: tuple[str, ...]
    flops: int
    moved: int
    required: bool = True


@dataclass
class _Kernel:
    """A group under construction: operators whose results are written, and kernels that run before it."""

    roots: list[str]
    domains: set[tuple[Any, ...]]
    reads: set[str]
    before: set[int] = field(default_factory=set)


class Fusion:
    """The groups of a joint graph.

    Parameters
    ----------
    joint : Joint
    nodes : mapping of str to torch.fx.Node
        By name.
    kept : iterable of str
        Nodes whose values another partition passes to the backward: each gets a value, too.

    Attributes
    ----------
    groups : dict of str to Group
        In an order in which they can run, the boundary included.
    values : dict of str to int
        Bytes of each value that a group writes.
    """

    library: Workspace | None = None
    """Workspace of library kernels on the device, if the device is present."""

    def __init__(self, joint: Joint, nodes: Mapping[str, Any], kept: Iterable[str] = ()) -> None:
        self.joint, self.nodes = joint, nodes
        self.place = {name: index for index, name in enumerate(joint.tasks)}
        self.copies = layout_copies(nodes)
        reads = self.copies.reads
        self.plain = {
            name: replace(task, reads=(*task.reads, *reads.get(task.node, ())))
            for name, task in joint.tasks.items()
            if task.node and not task.from_mask
        }
        self.maker = {value: name for name, task in self.plain.items() for value in task.writes}
        self.wanted = {value for name in kept for value in joint.owned.get(name, ())}
        self._bring_forward()
        self.readers: dict[str, list[str]] = {}
        for name, task in self.plain.items():
            for value in task.reads:
                self.readers.setdefault(value, []).append(name)
        self.kinds = {name: self._kind(name) for name in self.plain}
        self.ends = set(joint.kept) | set(joint.returned)
        self.cpu = any(node.meta["val"].device.type == "cpu" for node in nodes.values() if _is_tensor(node))
        self.base: dict[str, frozenset[str]] = {}
        self.inner: dict[str, frozenset[str]] = {}
        self.written: set[str] = set()
        for name in self.plain:
            self._lower(name)
        self.kernel_of: dict[str, int] = {}
        self.kernels: list[_Kernel] = []
        for name in self.plain:
            if name in self.written:
                self._place(name)
        self._merge_readers()
        self.groups = {group.task.name: group for group in self._groups()}
        self.tasks = {name: group.task for name, group in self.groups.items()}
        sizes = joint.values | self.copies.values
        self.values = {
            value: sizes[value] for group in self.groups.values() for value in group.task.writes if value in sizes
        }

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the joint graph and of the groups."""
        parts = (f"{name}: {' '.join(group.members)}" for name, group in self.groups.items())
        return hashlib.sha256("\n".join((self.joint.recording.fingerprint, *parts)).encode()).hexdigest()

    # ------------------------------------------------------------------------------------- lowering

    def _kind(self, name: str) -> Kind:
        task, node = self.plain[name], self.joint.nodes[self.plain[name].node]
        alone = node.effect or node.random or any(value.endswith(DONE) for value in task.writes)
        return Kind.LIBRARY if alone else kind_of(self.nodes[node.name])

    def _same_half(self, name: str, other: str) -> bool:
        return self.plain[name].phase == self.plain[other].phase

    def _bring_forward(self) -> None:
        """Add the producers of the values that another partition keeps to the forward."""
        waiting = list(self.wanted)
        while waiting:
            maker = self.maker.get(waiting.pop())
            if maker is not None and self.plain[maker].phase != "forward":
                self.plain[maker] = replace(self.plain[maker], phase="forward")
                waiting += self.plain[maker].reads

    def _lower(self, name: str) -> None:
        """Decide whether an operator's result is written; record the values it reads and the operators it includes."""
        task = self.plain[name]
        base: set[str] = {
            f"={read}" for read in self.joint.bases(self.joint.nodes[task.node].inputs) if self._given(read)
        }
        inner: set[str] = {name}
        for value in task.reads:
            maker = self.maker.get(value)
            near = maker is not None and (self._same_half(name, maker) or not self.base[maker])
            if maker is None or maker in self.written or not near:
                base.add(value)
            else:
                base |= self.base[maker]
                inner |= self.inner[maker]
        self.base[name], self.inner[name] = frozenset(base), frozenset(inner)
        if self._is_written(name):
            self.written.add(name)

    def _given(self, read: str) -> bool:
        return self.joint.nodes[read].role in (Role.INPUT, Role.CONSTANT)

    def _is_written(self, name: str) -> bool:
        task = self.plain[name]
        if self.kinds[name] is not Kind.POINTWISE or not task.again or not self.ends.isdisjoint(task.writes):
            return True
        readers = {reader for value in task.writes for reader in self.readers.get(value, ())}
        near = [reader for reader in readers if self._same_half(name, reader)]
        if any(self.kinds[reader] is Kind.LIBRARY for reader in near):
            return True
        many, operators = (MANY_READS_CPU, MANY_OPERATORS_CPU) if self.cpu else (MANY_READS, MANY_OPERATORS)
        if len(self.base[name]) > many:
            return True
        if len(near) < 2:
            return False
        costly = self.cpu and any(self._short(inner) in EXPENSIVE for inner in self.inner[name])
        return costly or len(self.base[name]) > FEW_READS or len(self.inner[name]) > operators

    def _short(self, name: str) -> str:
        return self.joint.nodes[self.plain[name].node].operator.split(".")[1]

    # ------------------------------------------------------------------------------------- kernels

    def _domains(self, name: str) -> set[tuple[Any, ...]]:
        """Return the loops over which an operator can run: over elements, or over the elements after a reduction."""
        node = self.nodes[self.plain[name].node]
        made = tensors_in(node.meta.get("val"))
        phase = self.plain[name].phase
        most = max((part.numel() for part in made), default=0)
        if self.kinds[name] is Kind.POINTWISE:
            return {(phase, "elements", most)}
        if self.kinds[name] is Kind.SCATTER:
            return {(phase, "scatter", name)}
        read = max((part for known in node.all_input_nodes for part in tensors_in(known.meta.get("val"))), key=_numel)
        if _inner(node, read):
            return {(phase, "elements", read.numel()), (phase, "elements", most)}
        return {(phase, "columns", read.numel(), most), (phase, "elements", most)}

    def _place(self, name: str) -> None:
        """Put an operator into the kernel of one that it reads, or into a new one."""
        reads = set(self.base[name])
        makers = {self.maker[value] for value in reads if value in self.maker}
        inputs = {self.kernel_of[maker] for maker in makers if self._same_half(name, maker)}
        before = set(inputs).union(*(self.kernels[index].before for index in inputs))
        if self.kinds[name] is not Kind.LIBRARY:
            domains = self._domains(name)
            for index in sorted(inputs, reverse=True):
                kernel = self.kernels[index]
                others = inputs - {index}
                between = any(index in self.kernels[other].before for other in others)
                if kernel.domains & domains and not between:
                    kernel.roots.append(name)
                    kernel.domains |= domains
                    kernel.reads |= reads
                    self.kernel_of[name] = index
                    self._grow(index, before - {index})
                    return
        else:
            domains = set()
        self.kernel_of[name] = len(self.kernels)
        self.kernels.append(_Kernel([name], domains, reads, before))

    def _grow(self, index: int, more: set[int]) -> None:
        """Note that further kernels run before one, and thus before all that run after it."""
        for kernel in self.kernels:
            if kernel is self.kernels[index] or index in kernel.before:
                kernel.before |= more

    def _merge_readers(self) -> None:
        """Merge kernels over the same elements that read the same values and do not depend on each other."""
        latest: dict[tuple[Any, ...], str] = {}
        for index, kernel in enumerate(self.kernels):
            for key in [(domain, read) for domain in sorted(kernel.domains) for read in sorted(kernel.reads)]:
                other = self.kernel_of[latest.setdefault(key, kernel.roots[0])]
                if other != index:
                    self._merge(other, index)
                if not kernel.roots:
                    break
                latest[key] = kernel.roots[0]

    def _merge(self, one: int, two: int) -> None:
        first, second = self.kernels[one], self.kernels[two]
        if one in second.before or two in first.before:
            return
        self.kernel_of.update(dict.fromkeys(second.roots, one))
        first.roots += second.roots
        first.domains |= second.domains
        first.reads |= second.reads
        second.roots = []
        self._grow(one, set(second.before))
        for kernel in self.kernels:
            if two in kernel.before:
                kernel.before |= {one} | first.before

    # ------------------------------------------------------------------------------------- groups

    def _outputs(self, kernel: _Kernel) -> list[str]:
        """Return the values of a kernel that are read elsewhere."""
        mine = set(kernel.roots).union(*(self.inner[root] for root in kernel.roots))
        found: list[str] = []
        for root in kernel.roots:
            for value in self.plain[root].writes:
                outside = any(reader not in mine for reader in self._final_readers(value, root))
                if outside or value in self.ends or value in self.wanted or self.kinds[root] is Kind.LIBRARY:
                    found.append(value)
        return found

    def _final_readers(self, value: str, maker: str) -> Iterator[str]:
        """Yield the written operators of the same half, and all of the other half, that read a value from memory."""
        waiting = list(self.readers.get(value, ()))
        while waiting:
            reader = waiting.pop()
            if reader in self.written or not self._same_half(reader, maker):
                yield reader
            else:
                waiting += [r for made in self.plain[reader].writes for r in self.readers.get(made, ())]

    def _groups(self) -> Iterator[Group]:
        made = [self._group(kernel) for kernel in self.kernels if kernel.roots]
        alone = [group for group in self._alone(made) if group is not None]
        masks = [self._single(task) for task in self.joint.tasks.values() if task.from_mask]
        boundary = self._single(self.joint.tasks[BOUNDARY])
        ahead = [group for group in made if group.task.phase == "forward"]
        behind = [group for group in made if group.task.phase != "forward"]
        early = [group for group in (*alone, *masks) if group.task.phase == "forward"]
        late = [group for group in (*alone, *masks) if group.task.phase != "forward"]
        if self.copies.values:
            task = Task(LAYOUT, "", (), tuple(self.copies.values), "forward", again=False, once=True)
            yield Group(task, (), 0, 0)
        yield from self._sorted(ahead, early)
        yield boundary
        yield from self._sorted(behind, late)

    def _single(self, task: Task) -> Group:
        node = self.joint.nodes.get(task.node)
        flops, moved = (0, 0) if node is None else (node.flops, node.moved)
        return Group(task, (task.name,), flops, moved, required=not task.from_mask)

    def _group(self, kernel: _Kernel) -> Group:
        if self.kinds[kernel.roots[0]] is Kind.LIBRARY and len(self.inner[kernel.roots[0]]) == 1:
            return self._single(self.plain[kernel.roots[0]])
        members = set(kernel.roots).union(*(self.inner[root] for root in kernel.roots))
        return self._made(max(kernel.roots, key=self.place.__getitem__), members, self._outputs(kernel))

    def _made(self, name: str, members: set[str], writes: Iterable[str], *, alone: bool = False) -> Group:
        ordered = sorted(members, key=self.place.__getitem__)
        inside = {value for member in ordered for value in self.plain[member].writes}
        reads = dict.fromkeys(v for member in ordered for v in self.plain[member].reads if v not in inside)
        writes = tuple(writes)
        given = {
            read
            for member in ordered
            for read in self.joint.bases(self.joint.nodes[member].inputs)
            if self._given(read)
        }
        sizes = self.joint.values
        moved = sum(sizes.get(value, 0) for value in (*reads, *writes)) + sum(self._size(read) for read in given)
        flops = sum(self.joint.nodes[member].flops for member in ordered)
        tasks = [self.plain[member] for member in ordered]
        task = replace(
            self.plain[name],
            name=name + ALONE if alone else name,
            reads=tuple(reads),
            writes=writes,
            again=all(task.again for task in tasks),
            once=any(task.once for task in tasks),
        )
        return Group(task, tuple(ordered), flops, moved, required=not alone)

    def _size(self, name: str) -> int:
        return sum(prod(part.shape) * part.element_size() for part in tensors_in(self.nodes[name].meta.get("val")))

    def _alone(self, made: list[Group]) -> Iterator[Group | None]:
        """Yield the tasks that compute one value of a group, and the values that only the other half reads."""
        primary = {value: group for group in made for value in group.task.writes}
        read = [value for group in made for value in group.task.reads if value not in primary]
        for value in dict.fromkeys((*primary, *read, *sorted(self.wanted))):
            maker = self.maker.get(value)
            if maker is None or self.kinds[maker] is Kind.LIBRARY:
                continue
            members = self._from_memory(maker, primary)
            group = primary.get(value)
            if (group is not None and members >= set(group.members)) or not all(self.plain[m].again for m in members):
                continue
            yield self._made(maker, members, self.plain[maker].writes, alone=True)

    def _from_memory(self, name: str, primary: Mapping[str, Group]) -> set[str]:
        """Return an operator and those that it needs, back to what groups write or the other partition keeps."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            member = waiting.pop()
            if member not in found:
                found.add(member)
                reads = self.plain[member].reads
                missing = (value for value in reads if value not in primary and value not in self.wanted)
                waiting += [self.maker[value] for value in missing if value in self.maker]
        return found

    def _sorted(self, groups: list[Group], optional: list[Group]) -> Iterator[Group]:
        """Yield groups in an order in which they can run, as close to the program's as possible."""
        optional = list({group.task.name: group for group in optional}.values())
        maker = {value: index for index, group in enumerate(groups) for value in group.task.writes}
        waits = [{maker[value] for value in group.task.reads if value in maker} - {i} for i, group in enumerate(groups)]
        after: dict[int, list[int]] = {}
        for index, sources in enumerate(waits):
            for source in sources:
                after.setdefault(source, []).append(index)
        first = [min(self.place[member] for member in group.members if member in self.written) for group in groups]
        ready = [(first[index], index) for index, sources in enumerate(waits) if not sources]
        heapq.heapify(ready)
        left = [len(sources) for sources in waits]
        rank: dict[int, int] = {}
        while ready:
            _, index = heapq.heappop(ready)
            rank[index] = len(rank)
            for later in after.get(index, ()):
                left[later] -= 1
                if not left[later]:
                    heapq.heappush(ready, (first[later], later))
        assert len(rank) == len(groups), "the groups depend on each other in a circle"
        after_value = {value: rank[index] for value, index in maker.items()}
        behind: dict[int, list[Group]] = {}
        for group in sorted(optional, key=lambda group: self.place[group.task.node]):
            known = (after_value.get(value, -1) for value in (*group.task.reads, *group.task.writes))
            place = max(known, default=-1)
            behind.setdefault(place, []).append(group)
            for value in group.task.writes:
                after_value.setdefault(value, place)
        yield from behind.get(-1, ())
        for index in sorted(rank, key=rank.__getitem__):
            yield groups[index]
            yield from behind.get(rank[index], ())

    # ------------------------------------------------------------------------------------- runs

    def members(self, runs: Sequence[str]) -> list[str]:
        """Return the runs of operators for runs of groups.

        In the forward, a task that only keeps a part of a group's result does not recompute it.
        """
        version: dict[str, int] = {}
        made_from: dict[str, tuple[int, ...]] = {}
        found: list[str] = []
        early = True
        for name in runs:
            group = self.groups[name]
            early = early and name != BOUNDARY
            for member in group.members:
                makers = [self.maker[value] for value in self.joint.tasks[member].reads if value in self.maker]
                sources = tuple(version.get(maker, 0) for maker in makers)
                if early and not group.required and made_from.get(member) == sources:
                    continue
                version[member] = version.get(member, 0) + 1
                made_from[member] = sources
                found.append(member)
        return found

    def order(self, saved: Iterable[str]) -> list[str]:
        """Return the runs of another partition, which keeps its saved nodes and computes all others when needed.

        Parameters
        ----------
        saved : iterable of str
            Nodes that the forward passes to the backward.
        """
        kept = {value for name in saved for value in self.joint.owned.get(name, ())}
        makers = self._makers(required=True)
        alone = self._makers(required=False)
        optional = kept & alone.keys() - makers.keys()
        required = [group for group in self.groups.values() if group.required]
        turn = next(index for index, group in enumerate(required) if group.task.name == BOUNDARY)
        found: list[str] = []
        there: set[str] = set()
        for group in required[: turn + 1]:
            if group.task.name not in found:
                self._run(group, {**alone, **makers}, there, found)
            ripe = [value for value in optional - there if there.issuperset(alone[value].task.reads)]
            for value in sorted(ripe, key=lambda value: self.place[self.maker[value]]):
                self._run(alone[value], alone, there, found)
        single = {value for group in required if not group.task.again for value in group.task.writes} - alone.keys()
        done = {value for value in there if value.endswith(DONE)}
        there &= kept | self.ends | done | single
        for group in required[turn + 1 :]:
            self._run(group, {**makers, **alone}, there, found)
        return found

    def _makers(self, *, required: bool) -> dict[str, Group]:
        """Return the group that writes each value: the required one, or the one that writes only this value."""
        groups = [group for group in self.groups.values() if group.required is required]
        return {value: group for group in groups for value in group.task.writes}

    def _run(self, group: Group, makers: Mapping[str, Group], there: set[str], found: list[str]) -> None:
        """Run a group after the producers of its missing inputs."""
        waiting: list[tuple[Group, bool]] = [(group, False)]
        while waiting:
            last, ready = waiting.pop()
            missing = [makers[value] for value in last.task.reads if value not in there]
            if last is not group and there.issuperset(last.task.writes):
                continue
            if ready or not missing:
                found.append(last.task.name)
                there.update(last.task.writes)
                continue
            waiting.append((last, True))
            waiting += [(maker, False) for maker in {maker.task.name: maker for maker in missing}.values()]

    # ------------------------------------------------------------------------------------- costs

    def time(self, group: Group, costs: Costs) -> int:
        """Whole microseconds of a run: the operations, or the bytes that the group reads and writes."""
        node = self.joint.nodes.get(group.task.node)
        if node is None:
            return 0
        if len(group.members) == 1 and (self.kinds.get(group.task.node) is Kind.LIBRARY or group.task.from_mask):
            return costs.time(node, from_mask=group.task.from_mask)
        work = sum(costs.beyond_bytes(self.joint.nodes[member]) for member in group.members)
        return max(1, round(work + costs.time_of_bytes(group.moved)))

    def workspace(self, group: Group, costs: Costs) -> int:
        """Bytes that a library's kernel needs beyond its arguments."""
        node = self.joint.nodes.get(group.task.node)
        if node is None or len(group.members) > 1:
            return 0
        call = self.nodes[node.name]
        if self.library is None or formula_of(call) is None or group.task.from_mask:
            return costs.workspace(node)
        args, kwargs = values_of((call.args, dict(call.kwargs)))
        return max(costs.workspace(node), self.library(call.target, args, kwargs))


def _is_tensor(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _numel(tensor: Any) -> int:
    return int(tensor.numel())


def _inner(node: Any, read: Any) -> bool:
    """Whether a reduction runs over the last dimensions, or over all."""
    dims = next(
        (part for part in node.args[1:] if isinstance(part, (list, tuple, int)) and not isinstance(part, bool)), None
    )
    if dims is None or dims == []:
        return True
    rank = read.dim()
    over = {dim % rank for dim in ([dims] if isinstance(dims, int) else dims)} if rank else set()
    return over == set(range(rank - len(over), rank))


__all__ = ["Fusion", "Group", "Kind", "kind_of"]
