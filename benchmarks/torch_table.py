"""What PyTorch offers for recomputation, verified, and our plans at the same peaks.

    <python with torch> -m benchmarks.torch_table [--networks resnet50 gpt2_small] [--costs roofline fused]
        [--store build/torch_table.jsonl]

Nothing is executed: times are the roofline's for an A100 in fp32; `fused` takes operators for free that are no matrix
product, convolution or attention. Each competitor's step is read back as runs of the captured step and verified:

- min-cut: PyTorch's partitioner at a memory budget, its two graphs;
- checkpoint: what eager PyTorch runs where blocks are checkpointed one by one, seen by a dispatch mode (early stop on);
- compiled checkpoint: the same blocks through `torch.compile`, which tags them for the partitioner.

Its peak, without parameters and inputs, is the budget of our solve (20 s, one thread, until nothing is left to gain).
What is known is kept in the store, so that a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import remat
from benchmarks.harness import Stopwatch, table
from benchmarks.torch_checkpoints import blocks_of, checkpointed, record, runs_of

NETWORKS = ("resnet50", "gpt2_small", "densenet121", "bert_base")
COSTS = ("roofline", "fused")
BUDGETS = (1.0, 0.8, 0.7, 0.5, 0.3, 0.1)
LISTED = "schedules in the reference order"
HEAD = ("network", "competitor", "its peak", "its", "ours", "bound, listed", "bound, all", "its, fused", "ours, fused")


@dataclass
class Network:
    """A captured network, and what PyTorch makes of its step."""

    name: str
    made: dict[tuple[str, float, int], tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        models: Any = import_module("tests.torch.models")
        self.face: Any = import_module("remat.torch")
        import_module("torch").set_num_threads(1)
        self.module, self.args, self.kwargs = models.make(getattr(models, self.name))
        with Stopwatch() as watch:
            self.captured = self.face.capture(self.module, *self.args, **self.kwargs)
        said = f"{self.name}: {len(self.captured.joint.tasks)} tasks, captured in {watch.cpu:.1f} CPU s"
        sys.stderr.write(f"{said}, {self.kept('roofline') / 1e9:.3f} GB without recomputation\n")

    def instance(self, costs: str) -> Any:
        """Return the step as an instance."""
        return self.captured.instance(_costs(costs))

    def kept(self, costs: str) -> int:
        """Return the peak without recomputation."""
        return int(remat.solve(self.instance(costs), algorithm="keep-all").peak_memory["memory"])

    def competitors(self) -> Iterator[tuple[str, Callable[[str], remat.Result]]]:
        """Yield names, and what verifies a competitor with some costs: nothing is made before it is asked for."""
        for budget in BUDGETS:
            yield f"min-cut {budget}", partial(self._partitioned, budget=budget, number=0)
        blocks = len(blocks_of(self.module))
        for said, number in (("half", blocks // 2), ("all", blocks)):
            yield f"checkpoint {said}", partial(self._recorded, number=number)
        for said, number in (("half", blocks // 2), ("all", blocks)):
            yield f"compiled checkpoint {said}", partial(self._partitioned, budget=1.0, number=number)

    def _partitioned(self, costs: str, budget: float, number: int) -> Any:
        """Verify what the partitioner makes of the step whose first `number` blocks are tagged."""
        key = ("min-cut", budget, number)
        if key not in self.made:
            captured = self.captured
            if number:
                with checkpointed(blocks_of(self.module)[:number]):
                    captured = self.face.capture(self.module, *self.args, **self.kwargs)
            self.made[key] = captured, *_min_cut(captured, budget)
        return self.face.judge(*self.made[key], costs=_costs(costs))

    def _recorded(self, costs: str, number: int) -> remat.Result:
        """Verify what eager PyTorch runs where the first `number` blocks are checkpointed."""
        key = ("checkpoint", 0.0, number)
        if key not in self.made:
            recorded = record(self.module, self.args, self.kwargs, list(range(number)))
            runs, missing = runs_of(self.captured, recorded)
            sys.stderr.write(
                f"checkpoint: {number} blocks, {len(runs) - len(set(runs))} runs again, {missing} operators of eager "
                f"are not in the graph; eager's own live peak {recorded.peak / 1e9:.3f} GB\n"
            )
            self.made[key] = (runs,)
        return remat.schedule_of(self.instance(costs), *self.made[key])


def _min_cut(captured: Any, budget: float) -> tuple[Any, Any]:
    partitioners: Any = import_module("torch._functorch.partitioners")
    config: Any = import_module("torch._functorch.config")
    # It would wrap attention, whose dropout is 0 here, to restore the state of random numbers.
    unwrapped = patch.object(
        partitioners, "functionalize_rng_ops", lambda _, forward, backward, *__: (forward, backward)
    )
    with config.patch(activation_memory_budget=budget), unwrapped:
        found: tuple[Any, Any] = partitioners.min_cut_rematerialization_partition(
            copy.deepcopy(captured.graph), [], num_fwd_outputs=len(captured.recording.outputs)
        )
    return found


def _costs(name: str) -> Any:
    """Return costs: of the roofline, or those in which whatever can be fused takes no time."""
    costs: Any = import_module("remat.bridges.torch.costs")
    if name == "roofline":
        return costs.read_costs(None)

    class Fused(costs.Costs):  # type: ignore[misc]
        """Operators without multiplications of matrices are part of their neighbours."""

        def time(self, node: Any, *, from_mask: bool = False) -> int:
            return int(super().time(node, from_mask=from_mask)) if node.flops and not from_mask else 0

    return Fused("roofline:A100-fp32, as if fused")


def rows(network: Network, costs: str, known: dict[str, Any], limit: float) -> Iterator[dict[str, Any]]:
    """Yield what is found of each competitor that is not known; equal peaks are solved once."""
    instance = network.instance(costs)
    solved: dict[int, dict[str, Any]] = {row["peak"]: row for row in known.values()}
    for name, verify in network.competitors():
        if name in known:
            continue
        theirs = verify(costs)
        peak = int(theirs.peak_memory["memory"])
        ours = solved.get(peak) or _solved(instance, peak, limit)
        row = {**ours, "network": network.name, "costs": costs, "competitor": name, "peak": peak, "limit": limit}
        solved[peak] = row
        yield row | {"theirs": float(theirs.overhead or 0)}


def _solved(instance: Any, peak: int, limit: float) -> dict[str, Any]:
    with Stopwatch() as watch:
        ours = remat.solve(instance, budget=peak, time_limit=limit, threads=1, gap=0)
    base = float(ours.no_recompute_time or 1)
    bounds = {bound.scope: float(bound.value) / base - 1 for bound in ours.bounds}
    every = max(0.0, float(ours.lower_bound or 0) / base - 1)
    return {
        "ours": None if ours.overhead is None else float(ours.overhead),
        "listed": max(every, bounds.get(LISTED, 0.0)),
        "all": every,
        "cpu": watch.cpu,
        "wall": watch.wall,
        "status": str(ours.status),
    }


def read(store: Path) -> list[dict[str, Any]]:
    """Read the store."""
    return [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []


def run(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_table")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--costs", nargs="*", choices=COSTS, default=COSTS)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of each solve")
    parser.add_argument("--store", type=Path, default=Path("build/torch_table.jsonl"))
    parser.add_argument("--shown", action="store_true", help="print what is known, and solve nothing")
    asked = parser.parse_args(arguments)
    asked.store.parent.mkdir(parents=True, exist_ok=True)
    found = read(asked.store)
    for name in () if asked.shown else asked.networks:
        network = Network(name)
        for costs in asked.costs:
            mine = [row for row in found if (row["network"], row["costs"]) == (name, costs)]
            for row in rows(network, costs, {row["competitor"]: row for row in mine}, asked.limit):
                found.append(row)
                sys.stderr.write(f"{' '.join(_cells(row))}\n")
                with asked.store.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
    table("PyTorch: recomputation at the peaks of others", HEAD, list(shown(found, asked.networks)))


def shown(found: list[dict[str, Any]], networks: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each competitor, with both costs; competitors with equal figures share one."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for row in found:
        if row["network"] not in networks or row["costs"] != "roofline":
            continue
        key = (row["network"], row["competitor"])
        fused = next((other for other in found if _key(other) == ("fused", *key)), None)
        free = ("-", "-") if fused is None else (_percent(fused["theirs"]), _percent(fused["ours"]))
        cells = (*_cells(row)[2:7], *free)
        lines.setdefault((row["network"], *cells), []).append(row["competitor"])
    last = ""
    for (network, *rest), names in lines.items():
        yield "" if network == last else network, _named(names), *rest
        last = network


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["costs"], row["network"], row["competitor"]


def _named(names: list[str]) -> str:
    """Return ``min-cut 0.8, 0.7``."""
    first, *others = names
    return ", ".join((first, *(name.removeprefix("min-cut ") for name in others)))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    shares = (_percent(row[key]) for key in ("theirs", "ours", "listed", "all"))
    return row["network"], row["competitor"], _size(row["peak"]), *shares, f"{row['cpu']:.1f}"


def _size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


if __name__ == "__main__":
    run()
