"""Check plans on a CUDA device: peaks, times, and plans that were made without the device.

    python -m benchmarks.cuda_check plan --folder build/cuda_plans                  # on a machine without a GPU
    python -m benchmarks.cuda_check run --folder build/cuda_plans                   # on the GPU, at most 8 minutes
    python -m benchmarks.cuda_check run --device cpu --quick --folder build/cuda_plans   # the CPU in its place

Three networks, in bf16 and fp32, with eager kernels and through Inductor. A row says what a plan predicts, what
`torch.cuda.max_memory_allocated` measured, and whether that is within 3 % and not above. Times are medians of steps,
competitors interleaved: Inductor as it is, with PyTorch's `activation_memory_budget` at .5, and a plan at that peak.
The allocator hands out multiples of 512 bytes, and up to 1 MB more where it reuses a block; the bytes that were
requested are shown beside those that it handed out, which count.
"""

from __future__ import annotations

import argparse
import copy
import gc
import inspect
import random
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import table
from benchmarks.torch_inductor import predicted_of
from benchmarks.torch_networks import compiler_of, network

NETWORKS = ("llama", "resnet", "diffusion")
TYPES = ("bfloat16", "float32")
SHARE = "75%"
CLOSE = 0.03
SCALARS = 2 * 512
"""Bytes of the loss and its gradient, which the caller holds and plans for eager kernels leave out."""
MINUTES = 8.0

Step = Callable[[], Any]


class Device:
    """Where the networks run, and how memory and time are measured there."""

    def __init__(self, name: str, seconds: float) -> None:
        self.torch: Any = compiler_of(one_thread=name != "cuda")
        self.face: Any = import_module("remat.torch")
        self.measure: Any = import_module("remat.bridges.torch.measure")
        self.logging: Any = import_module("remat.bridges.torch.capture").dynamo_settings
        self.name, self.cuda = name, name == "cuda"
        self.until = time.perf_counter() + seconds

    def left(self) -> bool:
        """Whether there is time for more."""
        return time.perf_counter() < self.until

    def made(self, name: str, dtype: str, scale: str) -> tuple[Any, tuple[Any, ...]]:
        """Return a network in a type, on the device."""
        module, args = network(name, scale)
        kind, place = getattr(self.torch, dtype), self.name
        given = tuple(tensor.to(place, kind) if tensor.is_floating_point() else tensor.to(place) for tensor in args)
        return module.to(place, kind), given

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.cuda:
            self.torch.cuda.synchronize()

    def peak(self, step: Step) -> tuple[int, int]:
        """Return the bytes that a step requested at most, above what was there, and those that were handed out."""
        if not self.cuda:
            _, found = self.measure.allocator_peak(step)
            return found, found
        cuda = self.torch.cuda
        self.synchronize()
        gc.collect()
        cuda.empty_cache()
        before = cuda.memory_stats()
        cuda.reset_peak_memory_stats()
        step()
        self.synchronize()
        after = cuda.memory_stats()
        kinds = ("requested_bytes", "allocated_bytes")
        asked, given = (after[f"{kind}.all.peak"] - before[f"{kind}.all.current"] for kind in kinds)
        return int(asked), int(given)

    def seconds(self, step: Step) -> float:
        """Return the seconds of a step: of the device, or of the processor."""
        clock = time.perf_counter if self.cuda else time.process_time
        self.synchronize()
        begin = clock()
        step()
        self.synchronize()
        return clock() - begin


def plan_file(folder: Path, name: str, dtype: str, scale: str) -> Path:
    """Return where the plan of a network is kept."""
    return folder / f"{name}-{dtype}-{scale}.json.gz"


def factory(name: str, dtype: str, scale: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a network on the CPU, and what it is called with."""
    return Device("cpu", 0.0).made(name, dtype, scale)


def make_plans(asked: Any) -> None:
    """Plan each network for the device without using it."""
    device = Device("cpu", asked.seconds)
    face = device.face
    target = {"target": asked.device} if asked.device != "cpu" else {}
    if target and "target" not in inspect.signature(face.capture_factory).parameters:
        sys.stderr.write("this remat cannot capture for a device that is not there: plans are those of the CPU\n")
        target = {}
    planning: Any = import_module("remat.bridges.torch.planning")
    for name in asked.networks:
        for dtype in TYPES:
            device.torch._dynamo.reset()
            given = {"name": name, "dtype": dtype, "scale": asked.scale}
            captured = face.capture_factory("benchmarks.cuda_check:factory", **target, **given)
            plan = planning.make_plan(captured, face.Choices(budget=SHARE, time_limit=asked.limit))
            path = plan_file(asked.folder, name, dtype, asked.scale)
            path.parent.mkdir(parents=True, exist_ok=True)
            plan.save(path)
            sys.stderr.write(f"{path}: {plan.summary.splitlines()[0]}\n")


class Case:
    """A network in a type: the competitors, each with a copy."""

    def __init__(self, device: Device, name: str, dtype: str, asked: Any) -> None:
        self.device, self.name, self.dtype, self.asked = device, name, dtype, asked
        self.module, self.args = device.made(name, dtype, asked.scale)
        tensors = (*self.module.parameters(), *self.module.buffers(), *self.args)
        self.static = sum(tensor.nbytes for tensor in tensors)
        self.steps: dict[str, Step] = {}
        self.rows: dict[str, dict[str, Any]] = {}

    def ready(self, who: str, make: Callable[[Any], Step]) -> dict[str, Any] | None:
        """Make a step, run it twice, and measure its peak."""
        if not self.device.left():
            return None
        self.device.torch._dynamo.reset()
        module = copy.deepcopy(self.module)

        def step() -> None:
            call().backward()
            module.zero_grad(set_to_none=True)

        try:
            with self.device.logging():
                call = make(module)
                step()
                step()
        except self.device.face.TorchError as error:
            self.rows[who] = {"note": str(error)[:120]}
            sys.stderr.write(f"{self.name} {self.dtype} {who}: {error}\n")
            return None

        def whole() -> None:
            call().backward()

        asked, handed = self.device.peak(whole)
        module.zero_grad(set_to_none=True)
        found: dict[str, Any] = {"peak": asked, "handed": handed}
        plan = getattr(call, "plan_of", lambda: None)()
        if plan is not None:
            found |= {"predicted": predicted_of(plan), "source": plan.source}
        self.steps[who], self.rows[who] = step, found
        sys.stderr.write(f"{self.name} {self.dtype} {who}: {found}\n")
        return found

    def inductor(self, budget: float) -> Callable[[Any], Step]:
        """Return what makes Inductor's step with a budget of its partitioner."""
        config: Any = import_module("torch._functorch.config")
        registry: Any = import_module("torch._dynamo.backends.registry")
        plain = registry.lookup_backend("inductor")

        def make(module: Any) -> Step:
            def backend(graph: Any, inputs: Any) -> Any:
                with config.patch(activation_memory_budget=budget, enable_autograd_cache=False):
                    return plain(graph, inputs)

            compiled = self.device.torch.compile(module, backend=backend, dynamic=False)
            return lambda: compiled(*self.args)

        return make

    def ours(self, **choices: Any) -> Callable[[Any], Step]:
        """Return what makes our step."""

        def make(module: Any) -> Step:
            planned = self.device.face.compile(module, reserve=0, time_limit=self.asked.limit, **choices)

            def call() -> Any:
                return planned(*self.args)

            call.plan_of = lambda: planned.plan  # type: ignore[attr-defined]
            return call

        return make

    def run(self) -> None:
        """Make all, and time them in rounds."""
        path = plan_file(self.asked.folder, self.name, self.dtype, self.asked.scale)
        if path.exists():
            self.ready("eager kernels, plan made elsewhere", self.ours(plan=path))
        self.ready("Inductor", self.inductor(1.0))
        self.ready("remat through Inductor", self.ours(inductor=True))
        half = self.ready("Inductor, budget .5", self.inductor(0.5))
        if half is not None:
            budget = self.static + half["handed"]
            self.ready("remat through Inductor at that peak", self.ours(inductor=True, budget=budget))
        self.ready(f"eager kernels, {SHARE}", self.ours(budget=SHARE))
        times: dict[str, list[float]] = {who: [] for who in self.steps}
        for turn in range(self.asked.rounds):
            order = list(self.steps)
            random.Random(turn).shuffle(order)
            for who in order:
                times[who].append(self.device.seconds(self.steps[who]))
        for who, taken in times.items():
            self.rows[who]["seconds"] = median(taken)

    def table(self) -> Iterator[tuple[str, ...]]:
        """Yield a row for each competitor."""
        base = self.rows.get("Inductor", {}).get("seconds")
        for who, row in self.rows.items():
            if "note" in row:
                yield self.name, self.dtype, who, "", "", "", "", "", row["note"]
                continue
            taken = row.get("seconds")
            against = "" if not base or taken is None else f"{100 * (taken / base - 1):+.1f} %"
            shown = "" if taken is None else f"{1e3 * taken:.2f}"
            peak = f"{row['handed'] / 1e6:.3f} ({row['peak'] / 1e6:.3f})"
            if "predicted" not in row:
                yield self.name, self.dtype, who, "", peak, "", shown, against, ""
                continue
            share = row["handed"] / row["predicted"]
            above = row["handed"] > row["predicted"] + SCALARS
            verdict = "ABOVE" if above else "ok" if share >= 1 - CLOSE else "loose"
            mega = f"{row['predicted'] / 1e6:.3f}"
            yield self.name, self.dtype, who, mega, peak, f"{share:.4f}", shown, against, verdict


HEAD = (
    "network", "type", "who", "predicted MB", "measured MB (requested)", "ratio", "ms", "over Inductor", "",
)  # fmt: skip


def run_checks(asked: Any) -> None:
    """Check all networks, as far as the time allows, and print the table."""
    device = Device(asked.device, asked.seconds)
    if device.cuda and not device.torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here; --device cpu --quick runs the script with the CPU in its place")
    if device.cuda:
        sys.stdout.write(f"{device.torch.cuda.get_device_name()}, PyTorch {device.torch.__version__}\n")
    found: list[tuple[str, ...]] = []
    for dtype in TYPES:
        for name in asked.networks:
            if device.left():
                case = Case(device, name, dtype, asked)
                case.run()
                found += case.table()
    table("Plans on the device", HEAD, found)
    checked = [row for row in found if row[5]]
    bad = [row for row in checked if row[8] != "ok"]
    sys.stdout.write(f"\n{len(checked)} predictions, {len(bad)} not within {CLOSE:.0%} below the prediction\n")


def run(arguments: list[str] | None = None) -> None:
    """Make plans, or check them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda_check")
    parser.add_argument("what", choices=("plan", "run"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--folder", type=Path, default=Path("build/cuda_plans"))
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--quick", action="store_true", help="small networks and few rounds")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds of a solve")
    parser.add_argument("--seconds", type=float, default=60 * MINUTES - 40, help="begin nothing after so long")
    asked = parser.parse_args(arguments)
    asked.scale = "small" if asked.quick else "full"
    if asked.quick:
        asked.rounds, asked.limit = min(asked.rounds, 3), min(asked.limit, 5.0)
    (make_plans if asked.what == "plan" else run_checks)(asked)


if __name__ == "__main__":
    run()
