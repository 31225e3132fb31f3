"""Checks of task graphs that run for one sample after the other without end."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from remat.instance.fields import LARGEST_COUNT, check_total, fail
from remat.instance.machine import MachineModel
from remat.instance.tasks import Task, Value


def check_stream(
    tasks: Sequence[Task],
    values: Sequence[Value],
    ends: tuple[Sequence[str], Sequence[str]],
    staying: AbstractSet[str],
    samples: int,
) -> None:
    """Reject what a stream cannot have: inputs per sample, outputs that accumulate, tasks in several places.

    Parameters
    ----------
    tasks, values : sequences of Task and Value
    ends : (inputs, outputs)
        Names of values.
    staying : set of str
        Inputs that never move.
    samples : int

    Raises
    ------
    ValueError
        With the place in the document.
    """
    runs = len(tasks) * samples
    if runs > LARGEST_COUNT:
        raise fail(f"{runs:,} pairs of task and sample; at most {LARGEST_COUNT:,} are allowed", ".stream")
    for index, name in enumerate(ends[0]):
        if name not in staying:
            raise fail(
                f"{name!r} may be freed, and a stream has no end: pin it, or let a task make it for each sample",
                f".inputs[{index}]",
            )
    for index, name in enumerate(ends[1]):
        if name not in staying:
            raise fail(
                f"{name!r} is written for each sample and would accumulate: let a task read it",
                f".outputs[{index}]",
            )
    for index, task in enumerate(tasks):
        for key in ("parts", "parallel"):
            if getattr(task, key) is not None:
                raise fail("a task of a stream runs on one processor", f".tasks[{index}].{key}")
        for number, name in enumerate(task.written):
            if name in staying:
                raise fail(
                    f"{name!r} is an input, which stays as it is in a stream", f".tasks[{index}].writes[{number}]"
                )
    made = {name for task in tasks for name in task.written}
    for name in sorted(staying):
        value, _, sample = name.rpartition(".")
        if value in made and _is_index(sample) and int(sample) < samples:
            raise fail(f"the input {name!r} is called like a value of a sample", ".inputs")
    total = sum(value.size for value in values) + sum((task.size or 0) + task.workspace for task in tasks)
    check_total(total * samples, "the sizes of all samples that are looked at")


def _is_index(text: str) -> bool:
    """Whether a text is what `str` makes of an integer from 0 on that is no larger than any count of samples.

    Examples
    --------
    >>> _is_index("10"), _is_index("010"), _is_index("x"), _is_index("9" * 5000)
    (True, False, False, False)
    """
    return text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_COUNT)) and text == str(int(text))


def check_reachable(machine: MachineModel, at: str) -> None:
    """Reject a machine with processors that cannot send data to each other, even through other memories.

    O(memories + links).
    """
    homes = list(dict.fromkeys(processor.memory for processor in machine.processors))
    for way, ends in (("to", ("source", "target")), ("from", ("target", "source"))):
        following: dict[str, list[str]] = {}
        for link in machine.links:
            following.setdefault(getattr(link, ends[0]), []).append(getattr(link, ends[1]))
        reached, waiting = {homes[0]}, [homes[0]]
        while waiting:
            for memory in following.get(waiting.pop(), ()):
                if memory not in reached:
                    reached.add(memory)
                    waiting.append(memory)
        for memory in homes:
            if memory not in reached:
                one, other = (homes[0], memory) if way == "to" else (memory, homes[0])
                raise fail(f"no link leads from memory {one!r} to memory {other!r}, and both have processors", at)
