"""Adjacent devices that hold the same stages: they alternate micro-batches, or split each one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from remat.plugin import OptionError, Orders, Pass, PipelineInstance, Problem


@dataclass(frozen=True)
class Replicas:
    """Number of devices that hold each stage, and how they share micro-batches.

    Attributes
    ----------
    count : int
    parts : bool
        Whether each device runs a part of every micro-batch. Otherwise the devices alternate micro-batches, as
        independent pipelines.
    """

    count: int = 1
    parts: bool = False

    @staticmethod
    def options(problem: Problem) -> Iterator[Replicas]:
        """Yield the options for a problem, fewest devices first; each group has one device type and memory size."""
        instance, machine = problem.instance, problem.machine
        assert isinstance(instance, PipelineInstance)
        yield Replicas()
        kinds = [(device.type, machine.memories[device.memory].capacity) for device in machine.processors]
        for count in range(2, min(instance.copies, len(kinds)) + 1):
            groups = [set(kinds[first : first + count]) for first in range(0, len(kinds), count)]
            if len(kinds) % count or any(len(group) > 1 for group in groups):
                continue
            for parts in (False, True):
                if not Replicas(count, parts).lacks(problem):
                    yield Replicas(count, parts)

    def lacks(self, problem: Problem) -> str:
        """Describe why micro-batches cannot be shared by these replicas; empty if they can."""
        instance, devices = problem.instance, len(problem.machine.processors)
        assert isinstance(instance, PipelineInstance)
        if devices % self.count:
            return f"{devices} devices are not a multiple of {self.count}"
        if self.parts and self.count not in instance.degrees:
            return f"the instance says nothing of micro-batches in {self.count} `parts`"
        if not self.parts and instance.micro_batches % self.count:
            return f"{instance.micro_batches} micro-batches cannot be taken in {self.count} equal turns"
        return ""

    def check(self, problem: Problem) -> None:
        """Raise an error for the obstacle that `lacks` reports."""
        if why := self.lacks(problem):
            raise OptionError(why, option="replicas")

    def first(self, problem: Problem) -> Problem:
        """Return the problem of every first device; its replicas run the same operations."""
        instance, machine = problem.instance, problem.machine
        assert isinstance(instance, PipelineInstance)
        if self.count == 1:
            return problem
        return Problem(
            instance.shared(self.count, parts=self.parts),
            replace(machine, processors=machine.processors[:: self.count]),
        )

    def spread(self, one: Orders) -> Orders:
        """Return the orders of all devices, given those of every first one."""
        if self.count == 1:
            return one
        count = self.count
        of = count if self.parts else 1
        stages = tuple(
            replace(stage, device=stage.device * count + k, part=k % of, of=of)
            for stage in one.stages
            for k in range(count)
        )

        def moved(operation: Pass, k: int) -> Pass:
            phase, stage, batch = operation
            return Pass(phase, stage * count + k, batch if self.parts else batch * count + k)

        listed = tuple(tuple(moved(operation, k) for operation in own) for own in one.lists for k in range(count))
        return Orders(stages, listed, tuple(own for own in one.paired for _ in range(count)))
