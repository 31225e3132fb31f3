"""How methods of training in little memory change computation, communication, batch and FLOP, from our own schedules.

After table 1 of Gusak et al. 2022, *Survey on large scale neural network training*, which compares categories of
methods by the direction in which they change these against training on one device that keeps everything. Read here as,
for a step of as many samples in all: computation, the time for which the busiest device runs forwards and backwards;
communication, the bytes that cross the links of a device; batch, the most samples in all that fit the memory that the
baseline takes; FLOP, the time of forwards and backwards on all devices together. Every figure is measured by the
referee on a solved schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import remat
from benchmarks.harness import table
from remat.generate import generate
from remat.graph.taskgraph import TaskGraph

SAMPLES = 32
"""Of a step, in which methods are compared."""

MOST_SAMPLES = 4096
SHAPE = {"layers": 8, "hidden": 1024, "heads": 8, "sequence": 256, "vocabulary": 4000, "bandwidth": 1e300}
"""Of a transformer whose times are those of its arithmetic alone, so that they add up as FLOP do."""

DEVICES = 4
TOLERANCE = 1e-9

MEASURES = ("computation", "communication", "batch", "FLOP")


@dataclass(frozen=True)
class Measured:
    """What a schedule of some samples does; times and bytes as verified."""

    computation: float
    communication: int
    peak: int
    work: float


@dataclass(frozen=True)
class Method:
    """A method, and how a step of so many samples, in so many bytes if they matter, is solved with it."""

    name: str
    solve: Callable[[int, int | None], remat.Result | None]
    devices: int = 1


def network(samples: int, **more: Any) -> dict[str, Any]:
    """Return the training step of a small transformer, all of it on the device unless more is said."""
    homes = {"parameters": "device", "states": "device"}
    return generate("chain", "transformer", **(SHAPE | homes | {"batch": samples} | more))


def pipeline(samples: int, micro_batches: int) -> dict[str, Any]:
    """Return the same network on several devices, its batch in micro-batches."""
    chain = network(samples // micro_batches)
    keys = ("name", "forward_time", "backward_time", "output_size", "saved_size", "forward_workspace", "repeat")
    keys += ("backward_workspace", "gradient_size", "parameter_size", "optimizer_size")
    layers = [{key: stage[key] for key in keys if key in stage} for stage in chain["stages"]]
    layers[-1]["backward_workspace"] = max(layers[-1].get("backward_workspace", 0), chain["loss"]["workspace"])
    layers[-1]["backward_time"] += chain["loss"]["time"]
    cluster = {"devices": [{"name": "gpu", "count": DEVICES}], "levels": [{"bandwidth": 25 * 10**9}]}
    document = {"schema": "remat.instance/3", "kind": "pipeline", "name": chain["name"], "layers": layers}
    return document | {"micro_batches": micro_batches, "cluster": cluster}


def solved(document: dict[str, Any], algorithm: str, budget: Any = None, **options: Any) -> remat.Result | None:
    """Solve; None where there is no schedule, or micro-batches are too small."""
    result = remat.solve(document, algorithm=algorithm, budget=budget, options=options)
    return None if result.columns is None else result


def _activations(samples: int, budget: int | None) -> remat.Result | None:
    """Send what is saved to the host, within the budget, by default what the parameters and a third more take."""
    document = generate("chain", "transformer", **(SHAPE | {"batch": samples}))
    ways = [{"source": a, "target": b, "bandwidth": 12 * 10**9} for a, b in (("device", "host"), ("host", "device"))]
    document["machine"] = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": ways,
    }
    return solved(document, "vdnn-all", None if budget is None else {"device": budget}, saved=True)


def _in_pipeline(micro_batches: int) -> Callable[[int, int | None], remat.Result | None]:
    def solve(samples: int, budget: int | None) -> remat.Result | None:
        count = min(micro_batches, samples)
        return None if samples % count else solved(pipeline(samples, count), "1f1b" if count > 1 else "gpipe", budget)

    return solve


def _on_ranks(zero: int) -> Callable[[int, int | None], remat.Result | None]:
    def solve(samples: int, budget: int | None) -> remat.Result | None:
        if samples % DEVICES:
            return None
        document = network(samples // DEVICES, data=DEVICES, zero=zero)
        return solved(document, "zero", None if budget is None else {"device": budget})

    return solve


def _chain(algorithm: str, *, options: Mapping[str, Any] | None = None, **more: Any) -> Any:
    def solve(samples: int, budget: int | None) -> remat.Result | None:
        document = network(samples, **more)
        return solved(document, algorithm, None if budget is None else {"device": budget}, **(options or {}))

    return solve


BASELINE = Method("one device, everything kept", _chain("zero"))
METHODS = (
    Method("rematerialisation", _chain("zero", options={"recompute": True})),
    Method("offloading of activations", _activations),
    Method("offloading of weights", _chain("l2l", options={"activations": "device"}, parameters="host", states="host")),
    Method("offloading of optimizer states", _chain("zero-offload", states="host")),
    Method("data parallelism", _on_ranks(0), DEVICES),
    Method("data parallelism, states shared out (ZeRO 3)", _on_ranks(3), DEVICES),
    Method("model parallelism", _in_pipeline(1), DEVICES),
    Method("pipeline parallelism", _in_pipeline(DEVICES), DEVICES),
    Method("states of 8 bits", _chain("zero", optimizer="adam8")),
)


def measure(method: Method, samples: int, budget: int | None = None) -> Measured | None:
    """Measure a method at so many samples; None where there is no schedule."""
    result = method.solve(samples, budget)
    if result is None or result.report is None:
        return None
    times, total = _work(result)
    ranks = method.devices // len(times) if method.devices > len(times) else 1
    links = result.report.transferred
    sent = max(
        sum(size for name, size in links.items() if memory in name.split("->"))
        for memory in (m.name for m in result.machine.memories)
    )
    devices = {processor.memory for processor in result.machine.processors if processor.name.startswith("gpu")}
    peaks = [result.peak_memory[result.machine.memories[memory].name] for memory in devices]
    return Measured(max(times.values()), sent, max(peaks), total * ranks)


def _work(result: remat.Result) -> tuple[dict[str, float], float]:
    """Return the time of forwards and backwards on each device, and of all."""
    graph: TaskGraph = result.graph
    times: dict[str, float] = {}
    for step in result.steps:
        name = getattr(step, "task", "")
        if name[:1] in ("F", "B", "W"):
            on = (getattr(step, "on", ()) or (result.machine.processors[0].name,))[0]
            times[on] = times.get(on, 0.0) + float(graph.time[graph.task(name)])
    return times, sum(times.values())


def largest(method: Method, memory: int) -> int:
    """Return the most samples, a multiple of the devices, that a method fits into so many bytes on each device."""
    low, high = 0, MOST_SAMPLES // DEVICES
    while low < high:
        middle = (low + high + 1) // 2
        found = measure(method, middle * DEVICES, memory)
        low, high = (middle, high) if found is not None and found.peak <= memory else (low, middle - 1)
    return low * DEVICES


def directions() -> dict[str, dict[str, str]]:
    """Return for each method which way it changes each measure: ``+``, ``-`` or ``=``."""
    before = measure(BASELINE, SAMPLES)
    assert before is not None
    batch = largest(BASELINE, before.peak)
    found = {}
    for method in METHODS:
        after = measure(method, SAMPLES)
        assert after is not None, method.name
        found[method.name] = {
            "computation": _sign(after.computation, before.computation),
            "communication": _sign(after.communication, before.communication),
            "batch": _sign(largest(method, before.peak), batch),
            "FLOP": _sign(after.work, before.work),
        }
    return found


def _sign(after: float, before: float) -> str:
    if abs(after - before) <= TOLERANCE * max(abs(after), abs(before)):
        return "="
    return "+" if after > before else "-"


def run() -> None:
    """Print the table."""
    rows = [[name, *(signs[measure] for measure in MEASURES)] for name, signs in directions().items()]
    table(
        f"Methods against one device that keeps everything, {SAMPLES} samples a step ({DEVICES} devices where several)",
        ("method", *MEASURES),
        rows,
    )
