"""PyTorch's min-cut partitions, verified, and our plans at the same peak: what recomputation costs.

    <python with torch> -m benchmarks.torch_table [--networks resnet50 gpt2_small] [--budgets 1 0.7 0.5 0.3]

Nothing is executed: times are the roofline's for an A100 in fp32. Min-cut's two graphs are read back as runs and
verified; its peak, without parameters and inputs, is the budget of our solve (20 s, one thread). The bound is that of
all schedules.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import remat
from benchmarks.harness import Stopwatch, table

NETWORKS = ("resnet50", "gpt2_small", "densenet121", "bert_base")
BUDGETS = (1.0, 0.8, 0.7, 0.5, 0.3, 0.1)


def rows(network: str, budgets: tuple[float, ...], limit: float) -> Iterator[tuple[str, ...]]:
    """Yield a row for each of min-cut's budgets that saves anything."""
    models: Any = import_module("tests.torch.models")
    torch_face: Any = import_module("remat.torch")
    partitioners: Any = import_module("torch._functorch.partitioners")
    config: Any = import_module("torch._functorch.config")
    module, args, kwargs = models.make(getattr(models, network))
    with Stopwatch() as capturing:
        captured = torch_face.capture(module, *args, **kwargs)
    instance = captured.instance()
    whole = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
    sys.stderr.write(
        f"{network}: {len(captured.joint.tasks)} tasks, captured in {capturing.cpu:.1f} CPU s, "
        f"{whole / 1e9:.3f} GB without recomputation\n"
    )
    for budget in budgets:
        with config.patch(activation_memory_budget=budget):
            halves = partitioners.min_cut_rematerialization_partition(
                copy.deepcopy(captured.graph), [], num_fwd_outputs=len(captured.recording.outputs)
            )
        theirs = torch_face.judge(captured, *halves)
        peak = theirs.peak_memory["memory"]
        with Stopwatch() as watch:
            ours = remat.solve(instance, budget=peak, time_limit=limit, threads=1)
        if ours.columns is None or ours.overhead is None:
            yield network, f"{budget}", f"{peak / 1e9:.3f}", _percent(theirs.overhead), "-", "-", f"{watch.cpu:.1f}"
            continue
        least = max(0.0, float(ours.lower_bound or 0) / float(ours.no_recompute_time or 1) - 1)
        shown = f"{peak / 1e9:.3f}", _percent(theirs.overhead), _percent(ours.overhead), _percent(least)
        yield network, f"{budget}", *shown, f"{watch.cpu:.1f}"


def _percent(share: Any) -> str:
    return f"{100 * float(share or 0):.2f}"


def run(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_table")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--budgets", nargs="*", type=float, default=BUDGETS)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of each solve")
    asked = parser.parse_args(arguments)
    head = ("network", "min-cut", "peak GB", "its %", "ours %", "bound %", "CPU s")
    found: list[tuple[str, ...]] = []
    for network in asked.networks:
        for row in rows(network, tuple(asked.budgets), asked.limit):
            found.append(row)
            sys.stderr.write(f"{' '.join(row)}\n")
    table("PyTorch: recomputation at the peaks of min-cut", head, found)


if __name__ == "__main__":
    run()
