"""A verified schedule of a whole step whose parameters are updated at the host.

A solve gives the schedule of forward and backward, in which gradients of parameters end at the host. This module adds
two things, as `zero-offload` does for chains: updates on a processor of the host after each gradient, and copies of new
parameters to the device after the backward. With a staleness of 1, the updates use the gradients of the previous step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.host_updates.delivery import leaving
from remat.bridges.torch.measure import median_time
from remat.bridges.torch.optimizers import Trained, read_optimizer
from remat.bridges.torch.plan_options import Choices
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.bridges.torch.transfers import DEVICE, HOST
from remat.instance import load
from remat.solving.host_order.moving import Moved
from remat.solving.result import Result
from remat.solving.verifying import examine
from remat.units import Number, format_budget, format_percent, format_size, format_time, parse_bandwidth, parse_budget

CPU = "cpu"


@dataclass(frozen=True)
class Updated:
    """A parameter that is updated at the host.

    Attributes
    ----------
    name : str
    size, gradient, states : int
        Bytes of the parameter, of its gradient, and of its states.
    value : str or None
        The value that is its gradient, if a task makes it.
    leaves : bool
        Whether the gradient leaves within the backward.
    """

    name: str
    size: int
    gradient: int
    states: int
    value: str | None
    leaves: bool

    def time(self, bandwidth: Fraction) -> int:
        """Whole microseconds of an update."""
        return update_time(self.size, self.gradient, self.states, bandwidth)


def updated_of(captured: Captured, optimizer: str) -> tuple[Updated, ...]:
    """Return the parameters with gradients, in the order of the module; tied ones once."""
    joint, model = captured.joint, read_optimizer(optimizer)
    going = {value.value for value in leaving(captured)}
    found: dict[int, tuple[int, Updated]] = {}
    for place, node, values in joint.gradients():
        source, held = captured.sources[place], node.tensors[0]
        if source.kind != "parameter" or held is None or held.storage in found:
            continue
        value = values[0] if len(values) == 1 else None
        size = captured.recording.storages[held.storage]
        states = model.state_bytes([Trained(size, held.shape)])
        order = captured.parameter_order[place]
        made = Updated(source.name, size, size, states, value, value in going)
        found[held.storage] = order, made
    return tuple(made for _, made in sorted(found.values(), key=lambda entry: entry[0]))


def host_split(captured: Captured, choices: Choices) -> dict[str, int]:
    """Return the permanent bytes of the host: copies of parameters, states, and gradients of the previous step.

    Raises
    ------
    TorchError
        If the host is too small for it.
    """
    if choices.optimizer_memory is None:
        return {}
    assert choices.optimizer is not None
    assert choices.host is not None
    updated = updated_of(captured, choices.optimizer)
    split = {
        "parameters": sum(one.size for one in updated),
        "optimizer": captured.static_bytes(choices.optimizer)["optimizer"],
        "gradients of the step before": choices.staleness * sum(one.gradient for one in updated),
    }
    whole, capacity = sum(split.values()), parse_budget(choices.host)
    if whole > capacity:
        shown = ", ".join(f"{format_size(size)} {name}" for name, size in split.items() if size)
        raise TorchError(
            f"the host has {format_budget(capacity)}, and the optimizer keeps {format_size(whole)} there: {shown}"
        )
    return split


def with_gradients_at_host(captured: Captured, document: dict[str, Any]) -> dict[str, Any]:
    """Return the instance in which gradients of parameters end at the host."""
    going = {value.value for value in leaving(captured)}
    outputs = [{"value": name, "memory": HOST} if name in going else name for name in document["outputs"]]
    return {**document, "outputs": outputs}


@cache
def measured_bandwidth(size: int = 1 << 24) -> int:
    """Measure once how many bytes the host reads and writes per second while it adds tensors in place."""
    one, two = torch.ones(size, device="cpu"), torch.ones(size, device="cpu")
    seconds = median_time(lambda: one.add_(two), 3)
    return max(1, int(3 * one.nbytes / seconds))


def read_bandwidth(given: float | str | None) -> Fraction:
    """Return the bytes that the host reads and writes per second, given or measured."""
    bandwidth = parse_bandwidth(measured_bandwidth() if given is None else given)
    assert bandwidth is not None
    return Fraction(bandwidth)


def update_time(size: int, gradient: int, states: int, bandwidth: Fraction) -> int:
    """Return the time of an update in whole microseconds, at least 1: it writes all that it reads but the gradient."""
    return max(1, round((gradient + 2 * (size + states)) / bandwidth * 1_000_000))


def whole_step(
    captured: Captured, choices: Choices, document: Mapping[str, Any], moved: Moved, host: Mapping[str, int]
) -> Result:
    """Return the verified schedule of forward, backward and updates.

    Parameters
    ----------
    captured : Captured
    choices : Choices
    document : mapping
        The instance that was solved, with its machine.
    moved : Moved
        Its schedule, with copies between runs.
    host : mapping of str to int
        The permanent bytes of the host: see `host_split`.
    """
    assert choices.optimizer is not None
    bandwidth = read_bandwidth(choices.host_bandwidth)
    builder = _Builder(updated_of(captured, choices.optimizer), bool(choices.staleness), bandwidth, moved, host)
    instance = builder.instance(document)
    return examine(load(instance), builder.schedule()).as_result()


def host_line(whole: Result, host: Mapping[str, int]) -> str:
    """Describe the contents of the host in one line."""
    rest = {"values": whole.peak_memory[HOST] - sum(host.values())}
    parts = ", ".join(f"{name} {format_size(size)}" for name, size in {**host, **rest}.items() if size)
    return f"host {format_size(whole.peak_memory[HOST])}: {parts}"


def step_words(whole: Result, alone: Number) -> str:
    """Describe the time of a whole step, and what it spends most of this time on.

    Parameters
    ----------
    whole : Result
        See `whole_step`.
    alone : int or float
        Time of forward and backward without recomputation, without a host.
    """
    assert whole.makespan is not None
    assert whole.report is not None
    units = whole.units
    names = {
        link.channel: f"copies to the {whole.machine.memories[link.target].name} take" for link in whole.machine.links
    }
    names |= {one.name: "computation on the device takes" for one in whole.machine.processors}
    names[CPU] = "updates at the host take"
    longest, busy = max(whole.report.busy.items(), key=lambda entry: entry[1])
    share = format_percent(busy / whole.makespan) if whole.makespan else "-"
    return (
        f"{format_time(whole.makespan, units)}, {_times(whole.makespan, alone)}the {format_time(alone, units)} of "
        f"forward and backward without recomputation: {names[longest]} {format_time(busy, units)} of it ({share})"
    )


def _times(time: Number, other: Number) -> str:
    return f"{time / other:.3g} times " if other else "instead of "


class _Builder:
    """Adds updates to an instance and its schedule."""

    def __init__(
        self, updated: tuple[Updated, ...], stale: bool, bandwidth: Fraction, moved: Moved, host: Mapping[str, int]
    ) -> None:
        self.host = host
        self.updated, self.stale, self.moved = updated, stale, moved
        self.bandwidth = bandwidth
        links = moved.result.machine.links
        self.out = next(link for link in links if link.source == 0)
        self.back = next(link for link in links if link.target == 0)

    def instance(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the instance with parameters as values, and an update for each."""
        values, tasks = list(document["values"]), list(document["tasks"])
        inputs, outputs = list(document.get("inputs", ())), list(document["outputs"])
        known = {entry["id"] for entry in values}
        for one in self.updated:
            name, gradient = one.name, self._gradient(one)
            values += [{"id": f"{kind}:{name}", "size": one.size} for kind in ("old", "master", "new")]
            inputs += [f"old:{name}", {"value": f"master:{name}", "memory": HOST}]
            outputs += [f"new:{name}", {"value": f"new:{name}", "memory": HOST}]
            if gradient not in known:
                values.append({"id": gradient, "size": one.gradient})
                inputs.append({"value": gradient, "memory": HOST})
            if one.value is not None and not self.stale:
                outputs = [entry for entry in outputs if not _is(entry, one.value)]
            elif one.value is not None and not one.leaves:
                outputs = [{"value": one.value, "memory": HOST} if entry == one.value else entry for entry in outputs]
            reads = [gradient, f"master:{name}"]
            writes = [f"new:{name}"]
            update = {"id": f"update:{name}", "time": one.time(self.bandwidth), "reads": reads, "writes": writes}
            tasks.append({**update, "on": [CPU], "in_place": True, "recomputable": False})
        machine = document["machine"]
        processors = [*machine["processors"], {"name": CPU, "memory": HOST}]
        return {
            **document,
            "static_memory": document["static_memory"] - sum(one.size for one in self.updated),
            "values": values,
            "tasks": tasks,
            "inputs": inputs,
            "outputs": outputs,
            "machine": {**machine, "memories": self._memories(machine), "processors": processors},
        }

    def _memories(self, machine: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the memories; states are static at the host, where all else is a value."""
        taken, states = sum(self.host.values()), self.host["optimizer"]
        return [
            {**memory, "capacity": memory["capacity"] + taken, "static": states} if memory["name"] == HOST else memory
            for memory in machine["memories"]
        ]

    def _gradient(self, one: Updated) -> str:
        """Return the value that an update reads."""
        return one.value if one.value is not None and not self.stale else f"gradient:{one.name}"

    def schedule(self) -> dict[str, Any]:
        """Return the schedule: that of forward and backward, then updates and copies of new parameters."""
        result = self.moved.result
        found = result.to_dict()
        steps = found["steps"]
        end: Number = result.makespan or 0
        steps += [{"drop": [f"old:{one.name}"], "memory": DEVICE, "start": end} for one in self.updated]
        arrived = {step["copy"]: self._end(step) for step in steps if step.get("to") == HOST}
        sent: Number = end
        for one in self.updated:
            if one.value is not None and not one.leaves:
                copy = {"copy": one.value, "from": DEVICE, "to": HOST, "start": sent, "drop": True}
                steps.append(copy)
                sent = arrived[one.value] = sent + self.out.time(one.gradient)
        ready: Number = 0
        back: Number = end
        order = list(self._order(arrived, end))
        last = {self._gradient(one): one for one, _ in order}
        for one, begin in order:
            start = max(ready, begin)
            gradient = self._gradient(one)
            drop = [f"master:{one.name}", *([gradient] if last[gradient] is one else ())]
            steps.append({"run": f"update:{one.name}", "on": [CPU], "start": start, "drop": drop})
            ready = start + one.time(self.bandwidth)
            back = max(back, ready)
            steps.append({"copy": f"new:{one.name}", "from": HOST, "to": DEVICE, "start": back})
            back += self.back.time(one.size)
        kept = {"schema", "steps"}
        found["steps"] = sorted(steps, key=lambda step: step["start"])
        return {key: value for key, value in found.items() if key in kept}

    def _end(self, step: Mapping[str, Any]) -> Number:
        size = int(self.moved.result.graph.size[self.moved.result.graph.values.index(step["copy"])])
        end: Number = step["start"] + self.out.time(size)
        return end

    def _order(self, arrived: Mapping[str, Number], end: Number) -> Iterator[tuple[Updated, Number]]:
        """Yield the parameters in the order of their updates, and when each may begin."""
        if self.stale:
            yield from ((one, 0) for one in self.updated)
            return
        begins = [(end if one.value is None else arrived[one.value], one) for one in self.updated]
        yield from ((one, begin) for begin, one in sorted(begins, key=lambda entry: entry[0]))


def _is(entry: Any, value: str) -> bool:
    return bool(entry == value or (isinstance(entry, Mapping) and entry.get("value") == value))
