"""Measured time: checkpointing, min-cut and our plans at each of their measured peaks, against plain eager PyTorch.

    <python with torch> -m benchmarks.torch_times [--networks gpt2 resnet densenet] [--rounds 20] [--seconds 240]
        [--store build/torch_times] [--shown]

Storages of many megabytes are fresh pages in each step, whose cost varies: eager's steps differ by 5 % instead of 30 %
where glibc keeps them (MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 in the environment).

CPU seconds of forward and backward in one process, on one thread. In a round each competitor makes one step, in an
order that is drawn anew. A run goes on where the last one has stopped (`--seconds`), until all have their rounds: the
store has the rounds, the measured peaks, measured costs of operators, and plans. A ratio is that of the medians to the
median of plain eager; its interval is a bootstrap's over rounds (95 %).

Networks have steps of a second and more, no dropout (min-cut would draw other masks), and gradients of less than 30 %
of the peak. Peaks are those of storages alive, gradients counted, parameters and inputs not.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import table
from benchmarks.torch_checkpoints import blocks_of, checkpointed

NETWORKS = ("gpt2", "resnet", "densenet")
BUDGETS = (0.7, 0.5, 0.3)
OURS, KEPT = "ours at ", "ours, keep all"
BASE, COMPILED = "eager", "aot_eager"
SEGMENTS = 3
DRAWS = 2000
LIMIT = 20.0

Step = Callable[[], Any]


def network(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a network that returns its loss, and what it is called with."""
    models: Any = import_module("tests.torch.models")
    made = {
        "gpt2": lambda: models.gpt2_small(
            batch=16, length=256, vocab_size=1000, n_positions=256, n_embd=256, n_layer=6, n_head=4, bos_token_id=0,
            eos_token_id=0,
        ),
        "resnet": lambda: models.resnet50(batch=16, pixels=224, width=32, classes=100),
        "densenet": lambda: models.densenet121(batch=8, pixels=192, classes=100),
    }  # fmt: skip
    module, args, _ = models.make(made[name])
    return module, args


class Bench:
    """The competitors of one network, each with a copy of it."""

    def __init__(self, name: str, store: Path) -> None:
        self.torch: Any = import_module("torch")
        self.torch.set_num_threads(1)
        dynamo: Any = import_module("torch._dynamo.config")
        dynamo.recompile_limit = 64
        self.face: Any = import_module("remat.torch")
        self.measure: Any = import_module("remat.bridges.torch.measure")
        self.name, self.folder = name, store / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.module, self.args = network(name)
        self.modules: dict[str, Any] = {}
        self.known: dict[str, Any] = self._read("known.json")

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def _keep(self) -> None:
        (self.folder / "known.json").write_text(json.dumps(self.known, indent=1) + "\n")

    # ------------------------------------------------------------------------------------- competitors

    def others(self) -> dict[str, Callable[[Any], Step]]:
        """Return what makes each competitor's step of a module of its own."""
        half = len(blocks_of(self.module)) // 2
        made: dict[str, Callable[[Any], Step]] = {
            BASE: lambda module: lambda: module(*self.args),
            COMPILED: partial(self._compiled, budget=None),
            "checkpoint half": partial(self._checkpointed, number=half),
            "checkpoint all": partial(self._checkpointed, number=2 * half + 1),
        }
        if self.name != "densenet":  # PyTorch refuses: a layer writes into what a segment kept, its input
            made[f"checkpoint_sequential {SEGMENTS}"] = self._in_segments
        for budget in BUDGETS:
            made[f"min-cut {budget}"] = partial(self._compiled, budget=budget)
        return made

    def _compiled(self, module: Any, budget: float | None) -> Step:
        """Return PyTorch's own compiler without code of its own; `budget` is for its partitioner."""
        config: Any = import_module("torch._functorch.config")
        registry: Any = import_module("torch._dynamo.backends.registry")
        plain = registry.lookup_backend("aot_eager")

        def backend(graph: Any, inputs: Any) -> Any:
            """Compile: a function of its own, or PyTorch would take what it compiled with another budget."""
            with nullcontext() if budget is None else config.patch(activation_memory_budget=budget):
                return plain(graph, inputs)

        compiled = self.torch.compile(module, backend=backend, dynamic=False)
        return lambda: compiled(*self.args)

    def _checkpointed(self, module: Any, number: int) -> Step:
        blocks = blocks_of(module)[:number]

        def step() -> Any:
            with checkpointed(blocks):
                return module(*self.args)

        return step

    def _in_segments(self, module: Any) -> Step:
        """Replace the blocks by one that calls them in segments."""
        checkpoint: Any = import_module("torch.utils.checkpoint")
        blocks, nn = blocks_of(module), self.torch.nn

        class Segments(nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.blocks = nn.ModuleList(blocks)

            def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
                calls = [lambda y, block=block: block(y, *args, **kwargs) for block in self.blocks]
                return checkpoint.checkpoint_sequential(calls, SEGMENTS, x, use_reentrant=False)

        if self.name == "gpt2":
            module.model.transformer.h = nn.ModuleList([Segments()])
            module.model.config.num_hidden_layers = 1
        else:
            parts, kinds = list(module.net), {type(block) for block in blocks}
            first = next(index for index, part in enumerate(parts) if type(part) in kinds)
            last = max(index for index, part in enumerate(parts) if type(part) in kinds)
            blocks[:] = parts[first : last + 1]
            module.net = nn.Sequential(*parts[:first], Segments(), *parts[last + 1 :])
        return lambda: module(*self.args)

    def ours(self, who: str) -> Callable[[Any], Step]:
        """Return what makes our step, with the plan at a competitor's peak."""

        def make(module: Any) -> Step:
            path = None if who == KEPT else self.folder / f"{who.removeprefix(OURS).replace(' ', '_')}.json.gz"
            planned = self.face.compile(module) if path is None else self.face.compile(module, plan=path)
            return lambda: planned(*self.args)

        return make

    # ------------------------------------------------------------------------------------- preparation

    def prepare(self, until: float) -> dict[str, Step]:
        """Compile all; measure peaks and plan where that is not known, and leave it where the time is over."""
        steps: dict[str, Step] = {}
        for who, make in self.others().items():
            steps[who] = self._ready(who, make)
        steps[KEPT] = self._ready(KEPT, self.ours(KEPT))
        for who in [who for who in steps if who not in (BASE, COMPILED, KEPT)]:
            self._plan(who)
            if time.perf_counter() > until:
                return {}
            if self.known[OURS + who]["planned"] is not None:
                steps[OURS + who] = self._ready(OURS + who, self.ours(OURS + who))
        return steps

    def _ready(self, who: str, make: Callable[[Any], Step]) -> Step:
        """Make a step, run it once, and measure its peak."""
        module = self.modules[who] = copy.deepcopy(self.module)
        step = make(module)
        step().backward()
        known = self.known.setdefault(who, {})
        if "peak" not in known:
            module.zero_grad(set_to_none=True)
            live = self.measure.LiveStorages([*module.parameters(), *module.buffers(), *self.args])
            with live:
                step().backward()
            known["peak"] = live.peak
            gradients = sum(tensor.grad.nbytes for tensor in module.parameters() if tensor.grad is not None)
            known["gradients"] = gradients
            self._keep()
        module.zero_grad(set_to_none=True)
        sys.stderr.write(f"{self.name}: {who}: {known['peak'] / 1e6:.1f} MB\n")
        return step

    def _plan(self, who: str) -> None:
        """Plan for a competitor's measured peak, with measured times of operators."""
        if OURS + who in self.known:
            return
        captured = self.captured()
        static = sum(captured.static_bytes().values())
        budget = static + int(self.known[who]["peak"])
        planning: Any = import_module("remat.bridges.torch.planning")
        choices = self.face.Choices(budget=budget, costs=self._costs(), time_limit=LIMIT)
        try:
            plan = planning.make_plan(captured, choices, search=False)
        except planning.TooSmallError as error:
            sys.stderr.write(f"{self.name}: {OURS}{who}: {error}\n")
            self.known[OURS + who] = {"planned": None}
        else:
            plan.save(self.folder / f"{who.replace(' ', '_')}.json.gz")
            self.known[OURS + who] = {"planned": plan.peak - static, "predicted": plan.overhead}
        self._keep()

    def captured(self) -> Any:
        """Return the step as captured."""
        if not hasattr(self, "_captured"):
            self._captured = self.face.capture(self.module, *self.args)
        return self._captured

    def _costs(self) -> Any:
        path = self.folder / "costs.json"
        if not path.exists():
            path.write_text(json.dumps(self.face.measure(self.captured(), repeats=5)))
        return str(path)

    # ------------------------------------------------------------------------------------- rounds

    def rounds(self, steps: dict[str, Step], until: float, number: int) -> None:
        """Run rounds until there are enough, or the time is over."""
        path = self.folder / "rounds.jsonl"
        while len(self.read()) < number and time.perf_counter() < until:
            order = list(steps)
            random.Random(len(self.read())).shuffle(order)
            taken = {who: self._time(who, steps[who]) for who in order}
            with path.open("a") as stream:
                stream.write(json.dumps(taken) + "\n")

    def _time(self, who: str, step: Step) -> float:
        gc.collect()
        begin = time.process_time()
        step().backward()
        taken = time.process_time() - begin
        self.modules[who].zero_grad(set_to_none=True)
        return taken

    def read(self) -> list[dict[str, float]]:
        """Return the rounds so far."""
        path = self.folder / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ratio(rounds: list[dict[str, float]], who: str, base: str) -> tuple[float, float, float]:
    """Return the ratio of the medians, and its interval, by drawing rounds anew."""

    def of(drawn: list[dict[str, float]]) -> float:
        return median(r[who] for r in drawn) / median(r[base] for r in drawn)

    source = random.Random(0)
    found = sorted(of(source.choices(rounds, k=len(rounds))) for _ in range(DRAWS))
    return of(rounds), found[int(0.025 * DRAWS)], found[int(0.975 * DRAWS)]


def rows(name: str, known: dict[str, Any], rounds: list[dict[str, float]]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each competitor, ours beside it."""

    def shown(who: str, base: str = BASE) -> str:
        middle, low, high = (100 * (value - 1) for value in ratio(rounds, who, base))
        return f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"

    seconds = median(r[BASE] for r in rounds)
    for who, entry in known.items():
        if who.startswith(OURS):
            continue
        mine = known.get(OURS + who, {})
        mega = f"{entry['peak'] / 1e6:.1f}"
        if who == BASE:
            share = entry["gradients"] / entry["peak"]
            yield name, f"{who}, {seconds:.2f} s, gradients {share:.0%}", mega, "0", "", "", "", ""
            continue
        if not mine:
            against = f"{shown(who, COMPILED)} against {COMPILED}" if who == KEPT else ""
            yield name, who, mega, shown(who), "", "", "", against
            continue
        if mine["planned"] is None:
            yield name, who, mega, shown(who), "no plan", "", "", ""
            continue
        middle, low, high = ratio(rounds, OURS + who, who)
        verdict = "slower" if low > 1 else "faster" if high < 1 else "alike" if middle <= 1 else "slower?"
        predicted = f"{100 * mine['predicted']:+.1f}"
        verdict = f"{verdict}, {shown(OURS + who, who)}"
        yield name, who, mega, shown(who), f"{mine['peak'] / 1e6:.1f}", shown(OURS + who), predicted, verdict


HEAD = ("network", "competitor", "peak MB", "time, % on top of eager", "our peak MB", "ours", "predicted", "ours is, %")


def run(arguments: list[str] | None = None) -> None:
    """Run rounds, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_times")
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=240.0, help="begin no round after so long")
    parser.add_argument("--store", type=Path, default=Path("build/torch_times"))
    parser.add_argument("--prepare", action="store_true", help="measure peaks and plan, and run no rounds")
    parser.add_argument("--shown", action="store_true", help="print what is known")
    asked = parser.parse_args(arguments)
    until = time.perf_counter() + asked.seconds
    found: list[tuple[str, ...]] = []
    for name in asked.networks:
        path = asked.store / name / "known.json"
        if not asked.shown:
            bench = Bench(name, asked.store)
            if asked.prepare or len(bench.read()) < asked.rounds:
                steps = bench.prepare(until)
                bench.rounds(steps, until, 0 if asked.prepare or not steps else asked.rounds)
        rounds_file = asked.store / name / "rounds.jsonl"
        if rounds_file.exists():
            rounds = [json.loads(line) for line in rounds_file.read_text().splitlines()]
            sys.stderr.write(f"{name}: {len(rounds)} rounds\n")
            found += rows(name, json.loads(path.read_text()), rounds)
    table("PyTorch: measured time", HEAD, found)


if __name__ == "__main__":
    run()
