"""From a captured step to a plan: budget split, instance solved, schedule verified; plan files and their cache."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remat.bridges.torch.caching_allocator import is_better, reserved_bytes
from remat.bridges.torch.capture import Captured
from remat.bridges.torch.costs import read_costs
from remat.bridges.torch.host_updates.delivery import leaving
from remat.bridges.torch.host_updates.planning import host_line, host_split, step_words, whole_step
from remat.bridges.torch.hosted_planning import document_with_host, solve_with_host
from remat.bridges.torch.joint import FROM_MASK, Task
from remat.bridges.torch.operator_timing import MEASURE, costs_of
from remat.bridges.torch.optimizers import Optimizer, read_optimizer
from remat.bridges.torch.plan_options import Choices
from remat.bridges.torch.plans import events_of
from remat.bridges.torch.recording import TorchError, digests, first_difference
from remat.bridges.torch.refusals import TooSmallError, check_step, too_small, too_small_with_host, verdict
from remat.bridges.torch.shim import torch
from remat.bridges.torch.step_memory import (
    after_backward,
    fixed_parts,
    gradient_bytes,
    gradient_note,
    gradients_at_peak,
    listed,
    optimizer_step,
    peak_line,
)
from remat.bridges.torch.target_device import device_of, is_mapped, mapped_operators, portable
from remat.bridges.torch.transfers import DEVICE, HOST
from remat.documents import read_document, write_text
from remat.plugin.proposal import Status
from remat.schedule.document import Run
from remat.solving.entry import solve
from remat.solving.external_schedule import schedule_of
from remat.solving.host_order.moving import move
from remat.solving.host_order.program import Program
from remat.solving.questions.least_budget import least_budget
from remat.solving.reference_words import reference_words
from remat.solving.relative_budget import share_of
from remat.solving.result import Result
from remat.units import format_size, parse_budget, parse_size

SCHEMA = "remat.plan/1"
RESERVE_ON_DEVICE = 1 << 30
"""Default reserve in bytes for a device's context and fragmentation; the CPU has none."""


LEAST_LIMIT = 15.0
"""Time limit in seconds for finding the minimum budget after the given one was too small."""
ANY_OVERHEAD = "100000%"
QUICK: tuple[str, Mapping[str, Any]] = ("dag-auto", {"iterations": 1})
"""Algorithm and options of that search; about a dozen solves share the time limit."""


BASELINE = "the time without recomputation"
"""The reference of an overhead in plans that do not store its time."""


@dataclass(frozen=True)
class Plan:
    """A verified schedule of a captured step.

    Attributes
    ----------
    fingerprint : str
    schedule : mapping
        The schedule document.
    runs : tuple of str
        The tasks in order.
    split : mapping of str to int
        Bytes of the budget: parameters, buffers, inputs, constants, the optimizer's states, gradients of earlier
        steps, reserve; `gradients` are the new ones that are resident at the peak, `activations` the rest of the peak.
    peak : int
        The verified peak of forward and backward, the reserve not counted.
    overhead : float
        Predicted time of forward and backward beyond that of the baseline, as a share.
    source : str
        ``solved``, ``cache`` or the plan file.
    program : Program or None
        With a host: the operations in the order in which they are issued.
    step : mapping of str to int
        Bytes in memory while the optimizer updates the parameters, by kind; empty if no optimizer was named.
    optimizer : str
        The optimizer with the implementation of its step, such as ``adamw-foreach``.
    portable : tuple of (str, str)
        Tasks in program order with device-independent descriptions, if the plan was made for an absent device.
    reserved : int
        Bytes that PyTorch's caching allocator is predicted to reserve for forward and backward, without the context of
        the device; 0 if the device has no such allocator.
    host : mapping of str to int
        With the optimizer at the host: the permanent bytes of the host, by kind.
    whole_step : Result or None
        With the optimizer at the host: the verified schedule of the whole step, with updates and copies of gradients
        and parameters. Its `makespan` is the predicted time of a step.
    baseline : str
        The reference of `overhead`, with its time.
    step_time : str
        With the optimizer at the host: the predicted time of a step, and what limits it.
    """

    fingerprint: str
    schedule: Mapping[str, Any]
    runs: tuple[str, ...]
    split: Mapping[str, int]
    peak: int
    overhead: float
    source: str
    operators: tuple[str, ...] = ()
    program: Program | None = None
    warnings: tuple[str, ...] = field(default=())
    step: Mapping[str, int] = field(default_factory=dict)
    optimizer: str = ""
    portable: tuple[tuple[str, str], ...] = ()
    reserved: int = 0
    host: Mapping[str, int] = field(default_factory=dict)
    whole_step: Result | None = None
    baseline: str = BASELINE
    step_time: str = ""

    @property
    def step_peak(self) -> int:
        """Bytes in memory while the optimizer updates the parameters; 0 if no optimizer was named."""
        return sum(self.step.values())

    @property
    def whole_peak(self) -> int:
        """The peak of the whole training step, the reserve not counted."""
        return max(self.peak, self.step_peak)

    def to_document(self) -> dict[str, Any]:
        """Return the plan as a document of schema `remat.plan/1`."""
        step = {"optimizer_step": {"optimizer": self.optimizer, "split": dict(self.step)}} if self.step else {}
        return {
            "schema": SCHEMA,
            "fingerprint": self.fingerprint,
            "torch": str(torch.__version__),
            "peak": self.peak,
            **({"reserved": self.reserved} if self.reserved else {}),
            "overhead": self.overhead,
            "baseline": self.baseline,
            "split": dict(self.split),
            **step,
            **({"portable": [list(entry) for entry in self.portable]} if self.portable else {}),
            "operators": list(self.operators),
            "schedule": dict(self.schedule),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan file atomically; ``.gz`` is compressed."""
        write_text(path, [json.dumps(self.to_document(), separators=(",", ":")), "\n"])

    @property
    def overhead_words(self) -> str:
        """The overhead with its baseline, and what it consists of with a host."""
        share = f"{self.overhead:.2%}".replace("-0.00%", "0.00%")
        made_of = "" if self.program is None else " for recomputation and waits for copies,"
        where = "" if self.whole_step is None else " in forward and backward"
        return f"{share}{made_of} over {self.baseline}{where}"

    @property
    def summary(self) -> str:
        """Time of a step if updates at the host set it, and breakdown of the bytes in a few lines."""
        lines = [f"a step takes {self.step_time}"] if self.step_time else []
        lines.append(peak_line(self.peak, self.split))
        if self.step:
            higher = ", the peak of the whole step" if self.step_peak > self.peak else ""
            of = f" of {self.optimizer}" if self.optimizer else ""
            what = f"optimizer.step(){of} takes"
            if self.whole_step is not None:
                what = f"during updates{of} at the host, the device holds"
            lines.append(f"{what} {format_size(self.step_peak)}{higher}: {listed(self.step)}")
        if self.reserved:
            lines.append(f"PyTorch's caching allocator reserves {format_size(self.reserved)}, as predicted")
        return "\n".join((*lines, f"overhead {self.overhead_words}", *self.warnings))


def make_plan(captured: Captured, choices: Choices, *, search: bool = True) -> Plan:
    """Plan a captured step: from a file, from the cache, or solved.

    Parameters
    ----------
    captured : Captured
    choices : Choices
    search : bool
        If no plan is found, search for the minimum budget and report it; if it is within the given one, use its plan.

    Raises
    ------
    TorchError
        If the plan file is for another program.
    TooSmallError
        If the budget is too small.
    """
    if choices.plan is not None:
        return load_plan(captured, choices.plan)
    if choices.host is not None:
        return _hosted_plan(captured, choices)
    path = _cached(captured, choices)
    if path is not None and path.exists():
        return load_plan(captured, path, source="cache")
    split = split_of(captured, choices)
    reserve = split["reserve"]
    static = sum(split.values()) - reserve
    optimizer = read_optimizer(choices.optimizer)
    step = step_of(captured, choices, split, optimizer)
    if isinstance(choices.budget, (int, str)) and share_of(choices.budget) is None:
        check_step(captured, choices, step, parse_budget(choices.budget), split)
    instance = captured.instance(costs_of(captured, choices.costs, choices.cache), static=static)
    result = _solve(instance, choices, reserve, captured)
    if result.columns is None:
        proved = result.status is Status.INFEASIBLE
        if not search:
            raise TooSmallError(verdict(choices, proved=proved), proved=proved)
        least = search_least(instance, choices)
        if proved or least.columns is None or not _within(result, least):
            said = too_small(captured, (result, least), split, choices, step)
            peak = 0 if least.columns is None else least.peak_memory["memory"]
            note = gradient_note(gradient_bytes(captured), peak or result.memory_bounds["memory"].size, static)
            raise TooSmallError.with_parts(said, fixed_parts(captured, split), note, proved=proved)
        result = least
    capacity = result.machine.memories[0].capacity
    if choices.budget is not None and capacity is not None:
        check_step(captured, choices, step, int(capacity) + reserve, split)
    plan = plan_of(captured, result, split, step, optimizer.called(device_of(captured)))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        plan.save(path)
    return plan


def plan_in_order(captured: Captured, choices: Choices, order: Sequence[str]) -> Plan:
    """Return the plan of an order of runs, whatever its peak.

    Parameters
    ----------
    captured : Captured
    choices : Choices
    order : sequence of str
    """
    split = split_of(captured, choices)
    optimizer = read_optimizer(choices.optimizer)
    costs = costs_of(captured, choices.costs, choices.cache)
    instance = captured.instance(costs, static=sum(split.values()) - split["reserve"])
    step = step_of(captured, choices, split, optimizer)
    return plan_of(captured, schedule_of(instance, list(order)), split, step, optimizer.called(device_of(captured)))


def _hosted_plan(captured: Captured, choices: Choices) -> Plan:
    """Plan with a host: solve, move the copies between runs, and verify."""
    split = split_of(captured, choices)
    optimizer = read_optimizer(choices.optimizer)
    step = step_of(captured, choices, split, optimizer)
    if isinstance(choices.budget, (int, str)) and share_of(choices.budget) is None:
        check_step(captured, choices, step, parse_budget(choices.budget), split)
    host = host_split(captured, choices)
    document = document_with_host(captured, choices, split, costs_of(captured, choices.costs, choices.cache), host)
    result = solve_with_host(document, choices, split["reserve"])
    if result.columns is None:
        raise too_small_with_host(choices, result, split)
    capacity = result.machine.memories[0].capacity
    if choices.budget is not None and capacity is not None:
        check_step(captured, choices, step, int(capacity) + split["reserve"], split)
    moved = move(result)
    found = moved.result
    peak, reserve = found.peak_memory[DEVICE], split["reserve"]
    whole = whole_step(captured, choices, document, moved, host) if host else None
    at_host = f"host {format_size(found.peak_memory[HOST])}" if whole is None else host_line(whole, host)
    return Plan(
        fingerprint=captured.fingerprint,
        schedule=found.to_dict(),
        runs=tuple(step.task for step in found.steps if isinstance(step, Run)),
        split={**split, "activations": peak - (sum(split.values()) - reserve)},
        peak=peak,
        overhead=float(found.overhead or 0.0),
        baseline=reference_words(found),
        source="solved",
        operators=digests(captured.recording.lines),
        program=moved.program,
        step=step,
        optimizer=optimizer.called(device_of(captured)),
        warnings=(at_host, moved.summary),
        host=host,
        whole_step=whole,
        step_time="" if whole is None else step_words(whole, found.no_recompute_time),
        reserved=reserved_bytes(found, device_of(captured)),
    )


def load_plan(captured: Captured, path: str | os.PathLike[str], *, source: str = "") -> Plan:
    """Read a plan file for a captured step, and verify it."""
    document = read_document(path)
    if document.get("schema") != SCHEMA:
        raise TorchError(f"{os.fspath(path)}: expected a plan ({SCHEMA}), not {document.get('schema')!r}")
    if document["fingerprint"] != captured.fingerprint:
        if document.get("portable"):
            return _from_elsewhere(captured, document, source or os.fspath(path))
        where = first_difference(captured.recording, tuple(document.get("operators", ())))
        raise TorchError(f"{os.fspath(path)}: the plan is for another program; {where}")
    schedule, step = document["schedule"], document.get("optimizer_step", {})
    if any("copy" in entry for entry in schedule.get("steps", ())):
        raise TorchError(f"{os.fspath(path)}: the plan has a host; plan again with host, as its program is not stored")
    events = events_of(captured, schedule)
    return Plan(
        fingerprint=captured.fingerprint,
        schedule=schedule,
        runs=tuple(event.task for event in events if event.task is not None),
        split=document["split"],
        peak=int(document["peak"]),
        overhead=float(document["overhead"]),
        baseline=document.get("baseline", BASELINE),
        source=source or os.fspath(path),
        operators=tuple(document["operators"]),
        step=step.get("split", {}),
        optimizer=step.get("optimizer", ""),
        reserved=int(document.get("reserved", 0)),
    )


def _from_elsewhere(captured: Captured, document: Mapping[str, Any], source: str) -> Plan:
    """Return a plan that was made without this device: the same runs, verified with the sizes of the tasks here."""
    mine, theirs = portable_tasks(captured), [tuple(entry) for entry in document["portable"]]
    for (name, here), (_, there) in zip(mine, theirs, strict=False):
        if here != there:
            node = captured.joint.nodes.get(captured.joint.tasks[name].node)
            shown = name if node is None else captured.joint.describe(node.name)
            raise TorchError(f"{source}: the plan is for another program; the first task that differs is {shown} here")
    if len(mine) != len(theirs):
        raise TorchError(
            f"{source}: the plan is for another program; it has {len(theirs)} tasks, and here are {len(mine)}"
        )
    names = {old: new for (new, _), (old, _) in zip(mine, theirs, strict=True)}
    schedule = document["schedule"]
    runs = [names[step["run"]] for step in schedule["steps"] if "run" in step]
    split = {name: size for name, size in document["split"].items() if name not in ("gradients", "activations")}
    step = document.get("optimizer_step", {})
    result = schedule_of(captured.instance(static=sum(split.values()) - split.get("reserve", 0)), runs)
    made = plan_of(captured, result, split, step.get("split"), step.get("optimizer", ""))
    return replace(made, source=source, overhead=float(document["overhead"]), warnings=())


def portable_tasks(captured: Captured) -> tuple[tuple[str, str], ...]:
    """Return the tasks of a step with short device-independent descriptions."""

    def described(task: Task) -> str:
        node = captured.joint.nodes.get(task.node)
        text = "" if node is None else portable(node)
        return f"{text}{FROM_MASK if task.from_mask else ''}"

    return tuple(
        (task.name, hashlib.sha256(described(task).encode()).hexdigest()[:8]) for task in captured.joint.tasks.values()
    )


def split_of(captured: Captured, choices: Choices) -> dict[str, int]:
    """Return the parts of a budget that are fixed: parameters, buffers, inputs, states and the reserve."""
    split = captured.static_bytes(choices.optimizer if choices.optimizer_memory is None else None)
    names = {"parameter": "parameters", "buffer": "buffers", "input": "inputs", "constant": "constants"}
    found = {names.get(name, name): size for name, size in split.items()}
    found["accumulated"] = gradient_bytes(captured) if choices.accumulate else 0
    found["reserve"] = reserve_of(captured, choices)
    return found


def reserve_of(captured: Captured, choices: Choices) -> int:
    """Return the bytes that stay free."""
    if choices.reserve is not None:
        return parse_size(choices.reserve)
    return 0 if device_of(captured) == "cpu" else RESERVE_ON_DEVICE


def step_of(captured: Captured, choices: Choices, split: Mapping[str, int], optimizer: Optimizer) -> Mapping[str, int]:
    """Return the contents of memory during the optimizer's step; empty if no optimizer is named."""
    if choices.optimizer is None:
        return {}
    if choices.optimizer_memory is not None:
        return after_backward(captured, split, {value.value for value in leaving(captured)})
    return optimizer_step(captured, optimizer, split, device_of(captured))


def in_bytes(captured: Captured, choices: Choices) -> Choices:
    """Return choices with a budget in bytes; a share refers to the peak of the order without recomputation."""
    share = share_of(choices.budget)
    if share is None:
        return choices
    split = split_of(captured, choices)
    counted = sum(split.values()) - split["reserve"]
    instance = captured.instance(costs_of(captured, choices.costs, choices.cache), static=counted)
    peak = _kept(instance, captured.reference).peak_memory["memory"]
    return replace(choices, budget=int(share * peak) + split["reserve"])


def _kept(instance: Any, reference: Sequence[str] | None) -> Result:
    return solve(instance, algorithm="keep-all") if reference is None else schedule_of(instance, list(reference))


def _solve(instance: Any, choices: Choices, reserve: int, captured: Captured) -> Result:
    kept = _kept(instance, captured.reference)
    budget = choices.budget
    if budget is None:
        return kept
    if not isinstance(budget, (int, str)):
        raise TorchError(f"there are {len(budget)} budgets; here is one training graph, which takes one")
    if share_of(budget) is None:
        whole = parse_budget(budget)
        budget = whole - reserve
        if budget <= 0:
            message = f"the budget of {format_size(whole)} is all reserve ({format_size(reserve)})"
            raise TooSmallError(message, proved=True)
        if kept.peak_memory["memory"] <= budget:
            return kept
    found = solve(
        instance,
        algorithm=choices.algorithm,
        budget=budget,
        options=choices.options,
        time_limit=choices.seconds,
    )
    if captured.others is None or isinstance(budget, str):
        return found
    for order in captured.others():
        other = schedule_of(instance, order)
        fits = other.peak_memory["memory"] <= budget
        if fits and is_better(other, found, device_of(captured)):
            found = other
    return found


def search_least(instance: Any, choices: Choices) -> Result:
    """Search for the minimum budget with the chosen algorithm, or a quick one for `auto`."""
    known = choices.algorithm != "auto"
    return least_budget(
        instance,
        max_overhead=ANY_OVERHEAD,
        algorithm=choices.algorithm if known else QUICK[0],
        options=choices.options if known else QUICK[1],
        time_limit=min(choices.seconds, LEAST_LIMIT),
    )


def _within(result: Result, least: Result) -> bool:
    capacity = result.machine.memories[0].capacity
    return capacity is not None and least.peak_memory["memory"] <= capacity


def plan_of(
    captured: Captured,
    result: Result,
    split: Mapping[str, int] | None = None,
    step: Mapping[str, int] | None = None,
    optimizer: str = "",
) -> Plan:
    """Return a verified schedule of a captured step as a plan.

    Parameters
    ----------
    captured : Captured
    result : remat.Result
        A result of `captured.instance()`.
    split : mapping of str to int, optional
        The static bytes of the peak, and the reserve; by default none.
    step : mapping of str to int, optional
        The bytes in memory during the optimizer's step, by kind.
    optimizer : str
        Its name.
    """
    events = events_of(captured, result)
    peak = result.peak_memory["memory"]
    fixed = {} if split is None else split
    counted = sum(fixed.values()) - fixed.get("reserve", 0)
    gradients = gradients_at_peak(captured, result, events)
    dominant = "" if split is None else gradient_note(gradient_bytes(captured), peak, counted)
    notes: tuple[str, ...] = (dominant,) if dominant else ()
    mapped = is_mapped(captured.target)
    if mapped:
        notes += (_of_target(captured, fixed.get("reserve", 0)),)
    if split is not None and not step:
        notes += ("optimizer states and the optimizer's step are not counted: add optimizer='adamw'",)
    return Plan(
        fingerprint=captured.fingerprint,
        schedule=result.to_dict(),
        runs=tuple(event.task for event in events if event.task is not None),
        split={**fixed, "gradients": gradients, "activations": peak - counted - gradients},
        peak=peak,
        overhead=float(result.overhead or 0.0),
        baseline=reference_words(result),
        source="solved",
        operators=digests(captured.recording.lines),
        warnings=notes,
        step=step or {},
        optimizer=optimizer,
        portable=portable_tasks(captured) if mapped else (),
        reserved=reserved_bytes(result, device_of(captured)),
    )


def _of_target(captured: Captured, reserve: int) -> str:
    """Return the note of a plan for an absent device, with the mapped operators."""
    found = ", ".join(f"{count} {name}" for name, count in mapped_operators(captured.recording).items())
    kept = f"; {format_size(reserve)} is in reserve for context and fragmentation" if reserve else ""
    return (
        f"planned for the absent device {captured.target}: PyTorch traced operators of the CPU, and rules mapped "
        f"those that differ ({found or 'none'}){kept}"
    )


def _cached(captured: Captured, choices: Choices) -> Path | None:
    if choices.cache is None:
        return None
    if choices.costs == MEASURE:  # other figures each time, so that it counts where they were measured
        source = f"{MEASURE} {device_of(captured)} {torch.__version__}"
    else:
        costs = read_costs(choices.costs)
        source = f"{costs.source} {costs.rate} {costs.bandwidth} {sorted(costs.measured.items())}"
    said = (
        captured.fingerprint,
        str(choices.budget),
        f"{choices.algorithm} {sorted(choices.options.items())}",
        str(read_optimizer(choices.optimizer)),
        str(choices.reserve),
        str(choices.accumulate),
        source,
    )
    key = hashlib.sha256("\n".join(said).encode()).hexdigest()[:32]
    return Path(choices.cache) / f"{key}.json"


__all__ = ["Choices", "Plan", "TooSmallError", "load_plan", "make_plan", "plan_in_order", "plan_of"]
