"""The input of an algorithm: an instance on a machine, and derived quantities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from remat.errors import OptionError
from remat.graph.bounds import (
    MemoryBound,
    NeededTasks,
    exchange_time,
    makespan_bound,
    memory_bounds,
    needed_tasks,
    no_recompute_time,
    path_bound,
    reference_of,
    share_bound,
)
from remat.graph.canonical import without_unused
from remat.graph.machine import Machine
from remat.graph.reachability import unreachable
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget
from remat.units import Number, Units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remat.graph.chain import Chain
    from remat.graph.samples import Samples
    from remat.graph.taskgraph import TaskGraph
    from remat.instance import Instance
    from remat.instance.tensor import Degree

FOR_PARAMETERS = "; use weight-offload, zero, zero-offload or l2l, or one for task graphs, such as dag-auto"


BOUNDS = ("least_makespan", "transfer_bound", "least_period", "memory_bounds", "total_bound", "unreachable")
"""Quantities of a problem that no capacity changes."""


def device_memories(instance: Instance, machine: Machine) -> set[int]:
    """Return the memories whose budget is one figure, by index: those of all devices of a pipeline, else none."""
    return {processor.memory for processor in machine.processors} if instance.budgets_are_for_all else set[int]()


def budgeted_memories(instance: Instance, machine: Machine, memory: int) -> list[int]:
    """Return the memories, by index, that a budget named for one memory is for."""
    devices = device_memories(instance, machine)
    return sorted(devices) if memory in devices else [memory]


def budget_memory(instance: Instance, machine: Machine) -> int:
    """Return the memory (by index) that a bare budget means: working memory, or an adjoint's fastest storage level."""
    return 1 if instance.has_storage and len(machine.memories) > 1 else 0


@dataclass(frozen=True)
class Problem:
    """An instance on a machine; each derived quantity is computed once, on first use.

    Attributes
    ----------
    instance : Instance
    machine : Machine
        The machine, with the budgets applied.
    """

    instance: Instance
    machine: Machine

    @cached_property
    def used(self) -> Problem:
        """The problem as algorithms see it: without memories and links that no value can use.

        The other memories keep their indices. The cluster of a pipeline lists its devices as the machine does.
        Schedules of one problem are schedules of the other.
        """
        from remat.instance.kinds import is_dag, is_pipeline

        instance, own_links = self.instance, self.instance.ranks > 1
        if is_dag(instance):
            own_links = bool(self.graph.parts)
            unread = self.graph.readers.counts == 0
            if any(unread[place.value] for place in self.graph.placeable):
                return self  # the schedule may place this input in any memory
        machine = without_unused(self.machine, self.named_memories, own_links=own_links)
        if is_pipeline(instance) and instance.ranks == 1:
            cluster = instance.cluster.listed_as([(own.name, own.type) for own in machine.processors])
            if cluster is not instance.cluster:
                instance = instance.model_copy(update={"cluster": cluster})
        if machine is self.machine and instance is self.instance:
            return self
        return replace(self.on(machine), instance=instance)._sharing(self)

    @cached_property
    def named_memories(self) -> frozenset[str]:
        """The memories that the instance names."""
        return frozenset(self.instance.named_memories)

    def on(self, machine: Machine) -> Problem:
        """Return the problem on another machine; quantities that depend only on the instance are shared."""
        return Problem(self.instance, machine)._sharing(self)

    def _sharing(self, other: Problem) -> Problem:
        """Take over the quantities of another problem that depend only on the instance; return self."""
        for name in ("graph", "chain", "needed", "no_recompute_time", "samples", "named_memories"):
            if name in other.__dict__:
                self.__dict__[name] = other.__dict__[name]
        return self

    def with_capacities(self, capacities: Mapping[str, int | None]) -> Problem:
        """Return the problem with other capacities of the named memories; bounds ignore capacities and are shared."""
        other = self.on(self.machine.with_capacities(capacities))
        for name in BOUNDS:
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    @property
    def kind(self) -> str:
        """The instance's kind."""
        return self.instance.kind

    @property
    def units(self) -> Units:
        """Units of bare numbers."""
        return self.instance.units.build()

    @cached_property
    def graph(self) -> TaskGraph:
        """The task graph to which the instance is lowered."""
        from remat.instance.lowering import lower

        return lower(self.instance, self.machine)

    def graph_of(self, degrees: Sequence[Degree]) -> TaskGraph:
        """Return the task graph of schedules with shared layers (`degrees_of`); without sharing, `graph`."""
        from remat.instance.lowering import lower

        return lower(self.instance, self.machine, degrees) if degrees else self.graph

    @cached_property
    def chain(self) -> Chain:
        """The instance as a chain (kinds `chain` and `adjoint` only); OptionError if it has parameters."""
        from remat.instance.lowering import chain_of

        if self.instance.has_parameters:
            raise OptionError(
                f"this algorithm does not support chains with parameters{FOR_PARAMETERS}", argument="algorithm"
            )
        return chain_of(self.instance)

    @property
    def budget(self) -> int | None:
        """Capacity of the working memory; None is unbounded."""
        return self.machine.memories[self.machine.processors[0].memory].capacity

    @cached_property
    def needed(self) -> NeededTasks:
        """The tasks that every schedule must run."""
        return needed_tasks(self.graph)

    @cached_property
    def no_recompute_time(self) -> Number:
        """Total time of the needed tasks, each run once."""
        return no_recompute_time(self.graph, self.needed)

    @property
    def reference_time(self) -> Number:
        """Reference of overheads, see `remat.graph.bounds.reference_of`."""
        return reference_of(self.no_recompute_time, self.exchange_time, self.transfer_bound)

    @cached_property
    def exchange_time(self) -> Number:
        """Total time of the needed exchanges between ranks, each once; 0 without any."""
        return exchange_time(self.graph, self.needed)

    @property
    def in_parts(self) -> bool:
        """Whether a schedule may divide micro-batches, or share layers; `graph` is that of a schedule without both."""
        return bool(getattr(self.instance, "is_shareable", False))

    @cached_property
    def least_makespan(self) -> Number:
        """A lower bound on the makespan of every schedule: total work, critical path, mandatory transfers."""
        from remat.instance.kinds import is_pipeline
        from remat.instance.lowering import lower

        machine = self.used.machine
        if not is_pipeline(self.instance) or not self.in_parts:
            return max(makespan_bound(self.graph, machine, self.needed), self.transfer_bound)
        shared, one = (lower(self.instance.loosened(work=work), machine) for work in (True, False))
        return max(share_bound(shared, machine, needed_tasks(shared)), path_bound(one, needed_tasks(one)))

    @cached_property
    def transfer_bound(self) -> Number:
        """A lower bound on the makespan of every schedule from values that must cross a link; 0 if none must."""
        from remat.graph.transfer_bound import transfer_bound

        return transfer_bound(self.graph, self.used.machine, self.needed)

    @cached_property
    def samples(self) -> Samples | None:
        """The graph of one sample, with the number of samples to examine; None if it is no stream of samples."""
        from remat.instance.lowering import samples_of

        return samples_of(self.instance, self.machine)

    @cached_property
    def repeated(self) -> Samples:
        """The repeated part of a stream: the graph of one sample or micro-batch, and the number of them to examine."""
        from remat.instance.lowering import repeated_of

        return repeated_of(self.instance, self.machine)

    @cached_property
    def least_period(self) -> Number:
        """A lower bound on the time per sample of every schedule of a stream: the divided time of its needed tasks."""
        from remat.instance.kinds import is_pipeline

        repeats = self.samples is not None or is_pipeline(self.instance)
        graph = self.repeated.graph if repeats else self.graph
        return share_bound(graph, self.used.machine, needed_tasks(graph), whole=False)

    @property
    def least_objective(self) -> Number:
        """A lower bound on the objective: the makespan, or for a stream the time per sample."""
        return self.least_period if self.instance.is_stream else self.least_makespan

    @property
    def exceeded(self) -> LeastBudget | None:
        """The bound of the first memory that is too small for every schedule; None if all are large enough.

        If all memories together are too small, it is the bound of the budgeted memory, given the others' capacities.
        """
        for index, (memory, bound) in enumerate(zip(self.machine.memories, self.memory_bounds, strict=True)):
            if bound is not None and memory.capacity is not None and bound.size > memory.capacity:
                return LeastBudget(bound.size, bound.task, False, index, ALL_SCHEDULES)
        own = self.budgeted_memories[0]
        capacity = self.machine.memories[own].capacity
        bound = None if capacity is None else self.least_of(own)
        if bound is None or capacity is None or bound.size <= capacity:
            return None
        if any(self.machine.memories[index].capacity != capacity for index in self.budgeted_memories):
            return None  # of devices of different memories, another one may hold more
        return LeastBudget(bound.size, bound.task, False, own, ALL_SCHEDULES)

    @property
    def budgeted_memories(self) -> list[int]:
        """The memories (by index) that a bare budget is for: of a pipeline those of all devices, else one."""
        instance, machine = self.instance, self.machine
        return sorted(device_memories(instance, machine)) or [budget_memory(instance, machine)]

    def least_of(self, memory: int) -> MemoryBound | None:
        """Return the minimum bytes of a memory (by index) in every schedule, given the capacities of the others.

        For a memory whose budget applies to all devices, it is the minimum of that budget.
        """
        known, own = self.memory_bounds[memory], budgeted_memories(self.instance, self.machine, memory)
        others = [one.capacity for index, one in enumerate(self.used.machine.memories) if index not in own]
        total = None if None in others else self.total_bound
        if total is None:
            return known
        left = -(-(total.size - sum(size for size in others if size is not None)) // len(own))
        return MemoryBound(left, total.task) if left > (0 if known is None else known.size) else known

    @cached_property
    def unreachable(self) -> str | None:
        """A line that proves infeasibility, because a required transfer has no route; None if nothing is proved.

        No capacity changes it: the instance is infeasible over all schedules on this machine. Nothing is proved if a
        schedule may share micro-batches or layers.
        """
        if len(self.machine.memories) == 1 or self.in_parts:
            return None
        return unreachable(self.graph, self.machine, self.needed)

    @cached_property
    def memory_bounds(self) -> list[MemoryBound | None]:
        """Minimum bytes for each memory of the machine; empty if a schedule may share micro-batches or layers."""
        if self.in_parts:
            return [None] * len(self.machine.memories)
        return memory_bounds(self.graph, self.machine, self.needed)

    @cached_property
    def total_bound(self) -> MemoryBound | None:
        """Minimum bytes of all memories that values can use, together.

        None for one such memory, streams, and shared micro-batches or layers.
        """
        from remat.graph.total_bound import total_bound

        machine = self.used.machine
        if len(machine.memories) == 1 or self.in_parts or self.instance.is_stream:
            return None
        return total_bound(self.graph, machine, self.needed)
