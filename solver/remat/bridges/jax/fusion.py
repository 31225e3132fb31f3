"""Operations become tasks: XLA computes pointwise operations where their results are read.

A pointwise result is in memory in four cases: an operation that fuses nothing reads it, it is an output, it depends on
more than `MOST` values in memory, or it has several readers and is costly. Reductions fuse their arguments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from remat.bridges.jax.primitives import COSTLY
from remat.bridges.jax.program import Operation, Program
from remat.generate.devices import Rates

MOST = 8
"""Values in memory that a fused pointwise result may depend on."""


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel: it reads values in memory and writes values to memory."""

    operation: Operation
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    time: int


def fuse(program: Program, rates: Rates) -> list[Task]:
    """Return the tasks of a program, in its order, with times in nanoseconds from a roofline."""
    plain: set[int] = set(program.outputs)  # read by what fuses nothing
    readers: dict[int, int] = defaultdict(int)
    for operation in program.operations:
        for value in operation.reads:
            readers[value] += 1
            if not operation.fuses:
                plain.add(value)
    sources: dict[int, tuple[int, ...]] = {}
    costly: set[int] = set()
    tasks: list[Task] = []
    for operation in program.operations:
        reads = tuple(dict.fromkeys(each for value in operation.reads for each in sources.get(value, (value,))))
        if operation.pointwise:
            dear = operation.primitive in COSTLY or any(value in costly for value in operation.reads)
            free = [
                value
                for value in operation.writes
                if value not in plain and len(reads) <= MOST and not (dear and readers[value] > 1)
            ]
            sources.update(dict.fromkeys(free, reads))
            costly.update(free if dear else ())
            written = tuple(value for value in operation.writes if value not in sources)
        else:
            written = operation.writes
        if written:
            traffic = sum(program.sizes[value] for value in (*reads, *written))
            seconds = max(operation.flops / rates.flops, traffic / rates.bandwidth)
            tasks.append(Task(operation, reads, written, max(1, round(seconds * 1e9))))
    return needed_for(program.outputs, tasks)


def needed_for(values: Iterable[int], tasks: Sequence[Task], given: Collection[int] = ()) -> list[Task]:
    """Return the tasks that make values, directly or not, from those that are `given`; in their order."""
    needed = set(values).difference(given)
    kept = []
    for task in reversed(tasks):
        if not needed.isdisjoint(task.writes):
            needed.update(value for value in task.reads if value not in given)
            kept.append(task)
    return kept[::-1]
