"""Plans of captured PyTorch steps as selective checkpointing: in each block, some operators save their results.

A block is a module that is a numbered item of a container, such as ``layers.3``. Checkpointing recomputes a block when
its backward first reads a result of the forward: the operators of the block run in order, up to the last one that the
backward needs, except those that saved their results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from remat.bridges.checkpointing.formats import STATISTICS, Exported
from remat.errors import OptionError
from remat.graph.taskgraph import IntArray, TaskGraph
from remat.instance import DagInstance
from remat.instance.kinds import is_dag
from remat.schedule.document import Drop, Run, StepView
from remat.solving.external_schedule import schedule_of
from remat.solving.verifying import Examined
from remat.units import format_size, format_time


@dataclass(frozen=True)
class _Task:
    """A task of the captured program, with the block that it belongs to (empty: none)."""

    name: str
    block: str
    operator: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    forward: bool
    fixed: bool


def torch_sac(examined: Examined) -> Exported:
    """Return Python code with a policy for `create_selective_checkpoint_contexts` for each block.

    Raises
    ------
    OptionError
        If the instance is not a captured step with modules and operators.
    """
    instance = examined.instance
    if not is_dag(instance):
        raise OptionError("torch-sac is for task graphs of captured PyTorch steps", argument="as")
    tasks, boundary = _tasks(instance, examined.graph)
    resident = _resident_at(examined, boundary)
    held = resident | _crossing(tasks)
    saved = {task.name for task in tasks if not task.block or task.fixed or not held.isdisjoint(task.writes)}
    again = _recomputed(tasks, boundary, saved)
    runs = _runs(tasks, boundary, again)
    unbounded = examined.machine.with_capacities({memory.name: None for memory in examined.machine.memories})
    found = schedule_of(instance, runs, machine=unbounded.to_document())
    name = examined.machine.memories[0].name
    peak, own = found.peak_memory[name], examined.report.peak_memory[name]
    units = instance.units.build()
    sizes = [format_size(size, units) for size in (peak, own)]
    times = [format_time(time, units) for time in (found.makespan or 0, examined.report.makespan)]
    notes = [f"verified peak {sizes[0]}, time {times[0]}; the plan: {sizes[1]}, {times[1]}"]
    if peak > own:
        notes.append("the policy needs more memory than the plan")
    notes += [
        "a block is recomputed as a whole when the backward reaches it, each operator once more at most",
        "dropout and other random operators save their results",
        "operators are counted in the order of the captured program, from which eager PyTorch may differ",
        "PyTorch refuses operators that write in place into a saved result; make them not in-place",
    ]
    policies = {block: _policy(tasks, block, saved) for block in sorted(again)}
    text = CODE.format(notes="".join(f"- {note}\n" for note in notes), blocks=_json(policies), statistics=STATISTICS)
    return Exported(text, tuple(notes), peak, found.makespan or 0)


def _tasks(instance: DagInstance, graph: TaskGraph) -> tuple[list[_Task], str]:
    """Return the tasks in order, without alternatives, and the name of the one between forward and backward."""
    found: list[_Task] = []
    boundary = ""
    for task in instance.tasks:
        if task.phase == "loss":
            boundary = task.id
        if not task.required:
            continue
        index = graph.task(task.id)
        reads, writes = _names(graph, graph.reads[index]), _names(graph, graph.writes[index])
        fixed = not task.recomputable or task.once
        block, operator = _block_of(task.origin.module), task.origin.op
        forward = task.phase == "forward"
        found.append(_Task(task.id, block, operator, reads, writes, forward, fixed))
    if not boundary or not any(task.operator for task in found):
        why = "the instance has no task of phase `loss`, or no operators: it is not a captured PyTorch step"
        raise OptionError(why, argument="as")
    return found, boundary


def _names(graph: TaskGraph, values: IntArray) -> tuple[str, ...]:
    return tuple(graph.values[int(value)] for value in values.tolist())


def _block_of(module: str) -> str:
    """Return the name of a module up to its first number; empty if it has none."""
    parts = module.split(".")
    place = next((index for index, part in enumerate(parts) if part.isdigit()), -1)
    return ".".join(parts[: place + 1])


def _resident_at(examined: Examined, boundary: str) -> set[str]:
    """Return the values that are in some memory when the backward begins."""
    graph = examined.graph
    resident: set[str] = set()
    first = examined.machine.memories[0].name
    for step in StepView(examined.steps, examined.graph, examined.machine):
        match step:
            case Run(task=task) if task == boundary:
                return resident
            case Run():
                resident.update(_names(graph, graph.writes[graph.task(step.task)]))
                resident.difference_update(step.drop)
            case Drop(memory=memory) if memory == first:
                resident.difference_update(step.values)
            case _:
                pass
    raise OptionError(f"the schedule does not run {boundary}", argument="as")


def _crossing(tasks: list[_Task]) -> set[str]:
    """Return the values of a block that other blocks read, forward or backward: these hold them."""
    maker = {value: task.block for task in tasks if task.forward for value in task.writes}
    return {value for task in tasks for value in task.reads if maker.get(value, task.block) != task.block}


def _recomputed(tasks: list[_Task], boundary: str, saved: set[str]) -> dict[str, list[_Task]]:
    """Return the tasks that each block recomputes: up to the last that the backward reads, without those that save."""
    late = [task.name for task in tasks].index(boundary)
    needed = {value for task in tasks[late:] for value in task.reads}
    again: dict[str, list[_Task]] = {}
    for task in tasks[:late]:
        if task.block and task.name not in saved:
            again.setdefault(task.block, []).append(task)
    for block, listed in list(again.items()):
        last = max((at for at, task in enumerate(listed) if needed.intersection(task.writes)), default=-1)
        again[block] = listed[: last + 1]
    return {block: listed for block, listed in again.items() if listed}


def _runs(tasks: list[_Task], boundary: str, again: Mapping[str, list[_Task]]) -> Iterator[str]:
    """Yield the runs of the policy in order."""
    late = [task.name for task in tasks].index(boundary)
    made = {value for task in tasks[:late] for value in task.writes}
    lost = {value: block for block, listed in again.items() for task in listed for value in task.writes}
    waiting = dict(again)
    yield from (task.name for task in tasks[: late + 1])
    for task in tasks[late + 1 :]:
        first = [task.block] if made.intersection(task.reads) else []
        for block in (*first, *(lost.get(value, "") for value in task.reads)):
            yield from (other.name for other in waiting.pop(block, ()))
        yield task.name


def _policy(tasks: list[_Task], block: str, saved: set[str]) -> dict[str, str]:
    """Return, for each operator of a block, a digit for each of its calls: 1 if it saves."""
    found: dict[str, str] = {}
    for task in tasks:
        if task.forward and task.block == block and task.operator:
            found[task.operator] = found.get(task.operator, "") + str(int(task.name in saved))
    return found


def _json(policies: Mapping[str, Any]) -> str:
    return "".join(f"\n    {json.dumps(block)}: {json.dumps(policy)}," for block, policy in policies.items())


CODE = '''"""Selective activation checkpointing as planned by remat.

{notes}
Call apply(model) before training."""

from collections import Counter
from contextlib import contextmanager

from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

# For each block and operator a digit for each call: 1 saves the result, 0 computes it again.
BLOCKS = {{{blocks}
}}


def apply(model):
    """Checkpoint the blocks of a model."""
    for name, saved in BLOCKS.items():
        block = model.get_submodule(name)
        block.forward = _checkpointed(block, block.forward, saved)


def _checkpointed(block, forward, saved):
    def contexts():
        calls = {{False: Counter(), True: Counter()}}

        def policy(context, operator, *args, **kwargs):
            name = str(operator).replace("_.", ".")
            name = next((known for known in saved if _plain(known) == _plain(name)), name)
            place, digits = calls[context.is_recompute][name], saved.get(name, "")
            calls[context.is_recompute][name] += 1
            saves = place < len(digits) and digits[place] == "1" and "_." not in str(operator)
            return CheckpointPolicy.MUST_SAVE if saves else CheckpointPolicy.PREFER_RECOMPUTE

        first, again = create_selective_checkpoint_contexts(policy)
        return first, _without_statistics(again, [block])

    return lambda *args, **kwargs: checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)


def _plain(name):
    """Leave out what differs between the captured program and eager PyTorch."""
    return name.replace("_native_batch_norm_legit_functional", "native_batch_norm").replace("_.", ".")
{statistics}'''
