"""What a capture takes: CPU seconds, and memory beside the parameters; the first verified plan, and one from the cache.

    <python with torch> -m benchmarks.torch_capture [--networks gpt2_small densenet121] [--share 0.5]

Each network in a process of its own. `compiler` is what PyTorch's compiler takes for itself, measured with the capture
of a network of two layers in front. `capture` is what the network's capture takes on top, while it runs and for good.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Stopwatch, table

NETWORKS = ("gpt2_small", "densenet121", "resnet50", "bert_base")
HEAD = (
    "network",
    "tasks",
    "parameters MB",
    "compiler MB",
    "capture at most MB",
    "kept MB",
    "capture CPU s",
    "first plan s",
    "all 20 s: peak MB, overhead %",
    "from cache s",
)


def resident(*, most: bool = False) -> float:
    """Return megabytes of memory now, or at most since `reset`."""
    name = "VmHWM:" if most else "VmRSS:"
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024 / 1e6


def reset() -> None:
    """Begin to look for the most anew."""
    Path("/proc/self/clear_refs").write_text("5")


def row(name: str, share: float) -> tuple[str, ...]:
    """Measure one network in this process."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    models: Any = import_module("tests.torch.models")
    face: Any = import_module("remat.torch")
    before = resident()
    module, args, kwargs = models.make(getattr(models, name))
    parameters = sum(tensor.nbytes for tensor in module.parameters()) / 1e6
    given = resident() - before
    face.capture(models.Net(), torch.randn(4, 8))
    compiler = resident() - before - given
    start = resident()
    reset()
    with Stopwatch() as capturing:
        captured = face.capture(module, *args, **kwargs)
    most, kept = resident(most=True) - start, resident() - start
    instance = captured.instance()
    bounds = remat.solve(instance, algorithm="keep-all")
    low, top = bounds.memory_bounds["memory"].size, bounds.peak_memory["memory"]
    budget = int(low + share * (top - low))
    ours = remat.solve(instance, budget=budget, time_limit=20.0, threads=1)
    first = next((entry.seconds for entry in ours.history if entry.makespan is not None), None)
    with tempfile.TemporaryDirectory() as folder:
        static = sum(captured.static_bytes().values())
        choices = face.Choices(budget=static + budget, time_limit=15.0, cache=folder)
        planning: Any = import_module("remat.bridges.torch.planning")
        planning.make_plan(captured, choices)
        with Stopwatch() as loading:
            planning.make_plan(captured, choices)
    peak = "-" if ours.overhead is None else f"{ours.peak_memory['memory'] / 1e6:.0f}, {100 * float(ours.overhead):.2f}"
    return (
        name,
        str(len(captured.joint.tasks)),
        f"{parameters:.0f}",
        f"{compiler:.0f}",
        f"{most:.0f}",
        f"{kept:.0f}",
        f"{capturing.cpu:.1f}",
        "-" if first is None else f"{first:.1f}",
        peak,
        f"{loading.wall:.2f}",
    )


def run(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_capture")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--share", type=float, default=0.5, help="of the way from the least that any schedule needs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.one:
        sys.stdout.write("\t".join(row(asked.one, asked.share)) + "\n")
        return
    found: list[tuple[str, ...]] = []
    for name in asked.networks:
        command = [sys.executable, "-m", "benchmarks.torch_capture", "--one", name, "--share", str(asked.share)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found.append(tuple(done.stdout.splitlines()[-1].split("\t")))
    table("PyTorch: captures", HEAD, found)


if __name__ == "__main__":
    run()
