"""Plans through Inductor against its own partitioner, at equal measured peak; predicted against measured peaks.

    <python with torch> -m benchmarks.torch_inductor times [--networks llama resnet unet] [--rounds 8] [--scale small]
    <python with torch> -m benchmarks.torch_inductor peaks [--networks ...]

`times`: process CPU seconds of forward and backward on one thread. The competitors are Inductor as it is, with
PyTorch's `activation_memory_budget` at .5, .2 and .05, and with each block checkpointed. For each of their measured
peaks there is a plan within that peak, with a roofline of this processor (a product of matrices, and a copy). In a
round each makes one step, in an order that is drawn anew. `peaks`: ten networks at three budgets.

Peaks are the allocator's, without parameters and inputs; gradients count. Results are kept in `--store`, so that a
second run goes on where the first has stopped (`--seconds`).
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import table
from benchmarks.torch_checkpoints import checkpointed
from benchmarks.torch_networks import NETWORKS, PEAKS, TIMES, blocks, compiler_of, network
from benchmarks.torch_times import ratio

BUDGETS = (0.5, 0.2, 0.05)
BASE, KEPT, OURS, BLOCKS = "Inductor", "remat, no budget", "remat at ", "blocks checkpointed"
SHARES = (1.0, 0.75, 0.5)
"""Budgets: none, and so much of what is not gradients."""
LIMIT = 8.0

Step = Callable[[], Any]


class Bench:
    """The competitors of one network, each with a copy of it."""

    def __init__(self, name: str, store: Path, scale: str) -> None:
        self.torch: Any = compiler_of()
        self.face: Any = import_module("remat.torch")
        self.measure: Any = import_module("remat.bridges.torch.measure")
        self.logging: Any = import_module("remat.bridges.torch.capture").dynamo_settings
        self.name, self.folder = name, store / f"{name}-{scale}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.module, self.args = network(name, scale)
        self.modules: dict[str, Any] = {}
        self.planned: dict[int, Any] = {}
        self.gradients: list[Any] = []
        path = self.folder / "known.json"
        self.known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def keep(self) -> None:
        """Write what is known."""
        (self.folder / "known.json").write_text(json.dumps(self.known, indent=1) + "\n")

    def inductor(self, module: Any, budget: float | None) -> Step:
        """Return Inductor's step; `budget` is for its partitioner."""
        config: Any = import_module("torch._functorch.config")
        registry: Any = import_module("torch._dynamo.backends.registry")
        plain = registry.lookup_backend("inductor")

        def backend(graph: Any, inputs: Any) -> Any:
            """Compile: a function of its own, or PyTorch would take what it compiled with another budget."""
            with config.patch(activation_memory_budget=1.0 if budget is None else budget, enable_autograd_cache=False):
                return plain(graph, inputs)

        compiled = self.torch.compile(module, backend=backend, dynamic=False)
        return lambda: compiled(*self.args)

    def checkpointed(self, module: Any) -> Step:
        """Return Inductor's step with each block checkpointed."""
        parts = blocks(module)
        step = self.inductor(module, None)

        def run() -> Any:
            with checkpointed(parts):
                return step()

        return run

    def ours(self, module: Any, peak: int | None) -> Step:
        """Return our step, within a peak."""
        static = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers(), *self.args))
        budget = None if peak is None else static + peak
        planned = self.face.compile(module, budget=budget, inductor=True, costs=self.costs(), time_limit=LIMIT)
        self.planned[id(module)] = planned
        return lambda: planned(*self.args)

    def costs(self) -> Any:
        """Return a roofline of this processor, measured once."""
        if "roofline" not in self.known:
            matrix, vector = self.torch.randn(1024, 1024), self.torch.randn(1 << 24)
            product = min(_seconds(lambda: matrix @ matrix) for _ in range(5))
            copied = min(_seconds(vector.clone) for _ in range(5))
            self.known["roofline"] = {"rate": 2 * 1024**3 / product, "bandwidth": 2 * vector.nbytes / copied}
            self.keep()
        costs: Any = import_module("remat.bridges.torch.costs")
        return costs.Costs("this processor", **self.known["roofline"])

    def ready(self, who: str, make: Callable[[Any], Step]) -> Step | None:
        """Make a step, run it, and note peak and gradients; None if there is no plan."""
        module = self.modules[who] = copy.deepcopy(self.module)
        begin = time.process_time()
        try:
            with self.logging():
                step = make(module)
                step().backward()
        except self.face.TooSmallError as error:
            sys.stderr.write(f"{self.name}: {who}: {error}\n")
            self.known[who] = {"peak": None}
            self.keep()
            return None
        known = self.known.setdefault(who, {})
        known.setdefault("seconds", time.process_time() - begin)
        found = [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]
        known["repeats"] = self._equal(found, self._again(step, module))
        self.gradients = self.gradients or found
        known["difference"] = self._difference(self.gradients, found)
        module.zero_grad(set_to_none=True)
        _, known["peak"] = self.measure.allocator_peak(lambda: step().backward())
        module.zero_grad(set_to_none=True)
        if id(module) in self.planned:
            plan = self.planned[id(module)].plan
            known["predicted"], known["overhead"] = predicted_of(plan), plan.overhead
        sys.stderr.write(f"{self.name}: {who}: {known}\n")
        self.keep()
        return step

    def _again(self, step: Step, module: Any) -> list[Any]:
        module.zero_grad(set_to_none=True)
        step().backward()
        return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]

    def _equal(self, one: list[Any], two: list[Any]) -> bool:
        return all(map(self.torch.equal, one, two))

    def _difference(self, one: list[Any], two: list[Any]) -> float:
        pairs = zip(one, two, strict=True)
        return max((float((a - b).norm() / a.norm().clamp_min(1e-30)) for a, b in pairs), default=0.0)

    def prepare(self, until: float) -> dict[str, Step]:
        """Compile all, as far as the time allows."""
        steps: dict[str, Step | None] = {BASE: self.ready(BASE, lambda module: self.inductor(module, None))}
        steps[KEPT] = self.ready(KEPT, lambda module: self.ours(module, None))
        others: dict[str, Callable[[Any], Step]] = {
            f"Inductor, budget {budget}": partial(self.inductor, budget=budget) for budget in BUDGETS
        }
        if blocks(self.module):
            others[BLOCKS] = self.checkpointed
        for who, make in others.items():
            if time.perf_counter() > until:
                break
            steps[who] = self.ready(who, make)
            peak = self.known[who]["peak"]
            steps[OURS + who] = self.ready(OURS + who, partial(self.ours, peak=peak))
        return {who: step for who, step in steps.items() if step is not None}

    def rounds(self, steps: dict[str, Step], number: int, until: float) -> list[dict[str, float]]:
        """Run rounds until there are enough, or the time is over."""
        path = self.folder / "rounds.jsonl"
        done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        done = [entry for entry in done if entry.keys() >= steps.keys()]
        while len(done) < number and time.perf_counter() < until:
            order = list(steps)
            random.Random(len(done)).shuffle(order)
            taken = {who: self._time(who, steps[who]) for who in order}
            done.append(taken)
            with path.open("a") as stream:
                stream.write(json.dumps(taken) + "\n")
        return done

    def _time(self, who: str, step: Step) -> float:
        gc.collect()
        begin = time.process_time()
        step().backward()
        taken = time.process_time() - begin
        self.modules[who].zero_grad(set_to_none=True)
        return taken


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def predicted_of(plan: Any) -> int:
    """Return what a plan says that forward and backward allocate, gradients included."""
    return int(plan.split["activations"] + plan.split.get("gradients", 0))


def rows(name: str, known: dict[str, Any], rounds: list[dict[str, float]]) -> list[tuple[str, ...]]:
    """Return a row for each competitor, ours beside it."""

    def against(who: str, base: str) -> str:
        if not rounds or who not in rounds[0]:
            return ""
        middle, low, high = (100 * (value - 1) for value in ratio(rounds, who, base))
        return f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"

    found: list[tuple[str, ...]] = []
    for who, entry in known.items():
        if who == "roofline" or who.startswith(OURS) or entry["peak"] is None:
            continue
        mine = known.get(OURS + who, known[KEPT] if who == BASE else {})
        ours = KEPT if who == BASE else OURS + who
        if who == KEPT:
            continue
        reached = mine.get("peak")
        cells = (name, who, f"{entry['peak'] / 1e6:.1f}", against(who, BASE))
        if reached is None:
            found.append((*cells, "no plan", "", "", "", ""))
            continue
        share = f"{reached / mine['predicted']:.4f}" if "predicted" in mine else ""
        exact = f"{mine['difference']:.1e}" if mine["difference"] else "bitwise"
        found.append((*cells, f"{reached / 1e6:.1f}", share, against(ours, BASE), against(ours, who), exact))
    return found


HEAD = (
    "network", "competitor", "peak MB", "time, % over Inductor", "our peak MB", "measured / predicted",
    "ours, % over Inductor", "ours, % over competitor", "gradients",
)  # fmt: skip


def run_times(asked: Any) -> None:
    """Measure times, and print the table."""
    found: list[tuple[str, ...]] = []
    until = time.perf_counter() + asked.seconds
    for name in asked.networks or TIMES:
        bench = Bench(name, asked.store, asked.scale)
        steps = {} if asked.shown else bench.prepare(until)
        rounds = bench.rounds(steps, 0 if asked.shown else asked.rounds, until + asked.seconds)
        sys.stderr.write(f"{name}: {len(rounds)} rounds\n")
        found += rows(name, bench.known, rounds)
    table("Plans through Inductor against its own partitioner", HEAD, found)


def run_peaks(asked: Any) -> None:
    """Compare measured and predicted peaks, and print the table."""
    compiler_of()
    found: list[tuple[str, ...]] = []
    shares: list[float] = []
    until = time.perf_counter() + asked.seconds
    for name in asked.networks or PEAKS:
        whole: int | None = None
        for share in SHARES:
            if time.perf_counter() > until:
                break
            row, predicted, peak = _peak_row(name, share, whole, asked.scale)
            found.append(row)
            sys.stderr.write(f"{row}\n")
            whole = whole or predicted
            if predicted:
                shares.append(peak / predicted)
    table("Peaks under Inductor", ("network", "budget", "predicted MB", "measured MB", "ratio", "overhead", ""), found)
    if shares:
        sys.stdout.write(f"\nmedian ratio {median(shares):.5f}, least {min(shares):.5f}, most {max(shares):.5f}\n")


def _peak_row(name: str, share: float, whole: int | None, scale: str) -> tuple[tuple[str, ...], int, int]:
    """Return a row, the predicted peak, and the measured one; zeros if there is no plan."""
    torch: Any = import_module("torch")
    face: Any = import_module("remat.torch")
    measure: Any = import_module("remat.bridges.torch.measure")
    module, args = network(name, scale)
    torch._dynamo.reset()
    gradients = sum(tensor.nbytes for tensor in module.parameters())
    static = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers(), *args))
    budget = None if whole is None else static + gradients + int(share * (whole - gradients))
    planned = face.compile(module, budget=budget, inductor=True, time_limit=LIMIT)
    shown = "none" if budget is None else f"{share:.0%} of the rest"
    try:
        planned(*args).backward()
    except face.TooSmallError as error:
        return (name, shown, "", "", "", "", str(error).split(";", maxsplit=1)[0][:100]), 0, 0
    peak = 0
    while not peak:  # the profiler sometimes hands over no events
        module.zero_grad(set_to_none=True)
        _, peak = measure.allocator_peak(lambda: planned(*args).backward())
    predicted = predicted_of(planned.plan)
    figures = (f"{predicted / 1e6:.3f}", f"{peak / 1e6:.3f}", f"{peak / predicted:.5f}", f"{planned.plan.overhead:.2%}")
    return (name, shown, *figures, "above" if peak > predicted else ""), predicted, peak


def run(arguments: list[str] | None = None) -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_inductor")
    parser.add_argument("what", choices=("times", "peaks"))
    parser.add_argument("--networks", nargs="*", choices=tuple(NETWORKS))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--scale", choices=("small", "full"), default="full")
    parser.add_argument("--seconds", type=float, default=1800.0, help="prepare nothing more after so long")
    parser.add_argument("--store", type=Path, default=Path("build/torch_inductor"))
    parser.add_argument("--shown", action="store_true", help="print what is known")
    asked = parser.parse_args(arguments)
    (run_times if asked.what == "times" else run_peaks)(asked)


if __name__ == "__main__":
    run()
