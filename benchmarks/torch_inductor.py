"""Plans through Inductor against its own partitioner, at equal measured peak.

    <python with torch> -m benchmarks.torch_inductor [--networks llama resnet diffusion] [--rounds 8] [--scale small]

Process CPU seconds of forward and backward on one thread. The competitors are Inductor as it is, with
PyTorch's `activation_memory_budget` at .5, .2 and .05, and with each block checkpointed. For each of their measured
peaks there is a plan within that peak, with a roofline of this processor (a product of matrices, and a copy). In a
round each makes one step, in an order that is drawn anew. Further plans take less than all competitors do.
`benchmarks.torch_peaks` compares predicted with measured peaks.

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
from typing import Any

from benchmarks.harness import table
from benchmarks.torch_checkpoints import checkpointed
from benchmarks.torch_networks import NETWORKS, TIMES, blocks, compiler_of, network, peak_of
from benchmarks.torch_times import ratio

BUDGETS = (0.5, 0.2, 0.05)
BASE, KEPT, OURS, BLOCKS = "Inductor", "remat, no budget", "remat at ", "blocks checkpointed"
BELOW = (0.9, 0.8, 0.7)
"""Plans within these shares of the smallest peak of a competitor that has a budget."""
WORK: dict[str, Any] = {"algorithm": "dag-auto", "options": {"iterations": 100}}
"""A plan that does not depend on the load of the machine."""

Step = Callable[[], Any]


class Bench:
    """The competitors of one network, each with a copy of it."""

    def __init__(self, name: str, store: Path, scale: str) -> None:
        self.torch: Any = compiler_of()
        self.face: Any = import_module("remat.torch")
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
        planned = self.face.compile(module, budget=budget, inductor=True, costs=self.costs(), **WORK)
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
        known["peak"] = peak_of(lambda: step().backward(), module)
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
        least = min((self.known[who]["peak"] for who in others if who in steps), default=0)
        for share in BELOW if least else ():
            if time.perf_counter() > until:
                break
            steps[below(share)] = self.ready(below(share), partial(self.ours, peak=int(share * least)))
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


def below(share: float) -> str:
    """Return the name of a plan within a share of the smallest peak of the others."""
    return f"{OURS}{share:.0%} of the smallest peak"


def predicted_of(plan: Any) -> int:
    """Return what a plan says that forward and backward allocate, gradients included."""
    return int(plan.split["activations"] + plan.split.get("gradients", 0))


def against(rounds: list[dict[str, float]], who: str, base: str) -> str:
    """Return by how many percent a step takes longer than another; empty if it was not timed."""
    if not rounds or who not in rounds[0]:
        return ""
    middle, low, high = (100 * (value - 1) for value in ratio(rounds, who, base))
    return f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"


def exact(entry: dict[str, Any]) -> str:
    """Return how far gradients are from those of the others."""
    return f"{entry['difference']:.1e}" if entry["difference"] else "bitwise"


def rows(name: str, known: dict[str, Any], rounds: list[dict[str, float]]) -> list[tuple[str, ...]]:
    """Return a row for each competitor, ours beside it."""
    found: list[tuple[str, ...]] = []
    for who, entry in known.items():
        if who == "roofline" or who.startswith(OURS) or entry["peak"] is None:
            continue
        mine = known.get(OURS + who, known[KEPT] if who == BASE else {})
        ours = KEPT if who == BASE else OURS + who
        if who == KEPT:
            continue
        reached = mine.get("peak")
        cells = (name, who, f"{entry['peak'] / 1e6:.1f}", against(rounds, who, BASE))
        if reached is None:
            found.append((*cells, "no plan", "", "", "", ""))
            continue
        share = f"{reached / mine['predicted']:.4f}" if "predicted" in mine else ""
        times = against(rounds, ours, BASE), against(rounds, ours, who)
        found.append((*cells, f"{reached / 1e6:.1f}", share, *times, exact(mine)))
    return found


def low_rows(name: str, known: dict[str, Any], rounds: list[dict[str, float]]) -> list[tuple[str, ...]]:
    """Return a row for each plan within a peak that is smaller than those of the competitors."""
    found: list[tuple[str, ...]] = []
    for who in map(below, BELOW):
        entry = known.get(who, {"peak": None})
        if entry["peak"] is None:
            continue
        share = f"{entry['peak'] / entry['predicted']:.4f}"
        found.append((name, who, f"{entry['peak'] / 1e6:.1f}", share, against(rounds, who, BASE), exact(entry)))
    return found


LOW_HEAD = "network", "plan", "peak MB", "measured / predicted", "time, % over Inductor", "gradients"
HEAD = (
    "network", "competitor", "peak MB", "time, % over Inductor", "our peak MB", "measured / predicted",
    "ours, % over Inductor", "ours, % over competitor", "gradients",
)  # fmt: skip


def run_times(asked: Any) -> None:
    """Measure times, and print the table."""
    found: list[tuple[str, ...]] = []
    low: list[tuple[str, ...]] = []
    until = time.perf_counter() + asked.seconds
    for name in asked.networks or TIMES:
        bench = Bench(name, asked.store, asked.scale)
        steps = {} if asked.shown else bench.prepare(until)
        rounds = bench.rounds(steps, 0 if asked.shown else asked.rounds, until + asked.seconds)
        sys.stderr.write(f"{name}: {len(rounds)} rounds\n")
        found += rows(name, bench.known, rounds)
        low += low_rows(name, bench.known, rounds)
    table("Plans through Inductor against its own partitioner", HEAD, found)
    table("Peaks below those of all competitors", LOW_HEAD, low)


def run(arguments: list[str] | None = None) -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_inductor")
    parser.add_argument("--networks", nargs="*", choices=tuple(NETWORKS))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--scale", choices=("small", "full"), default="full")
    parser.add_argument("--seconds", type=float, default=1800.0, help="prepare nothing more after so long")
    parser.add_argument("--store", type=Path, default=Path("build/torch_inductor"))
    parser.add_argument("--shown", action="store_true", help="print what is known")
    asked = parser.parse_args(arguments)
    run_times(asked)


if __name__ == "__main__":
    run()
