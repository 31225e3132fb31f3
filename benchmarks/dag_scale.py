"""dag-auto on a training step of a 70B-like transformer, kernel by kernel, of one micro-batch to 176 (10^6 tasks).

Each row in a process of its own, with one thread, until the gap is what the row asks for. Budgets are shares of the
no-recompute peak, beyond what is static or must stay. CPU seconds of lowering and keep-all, of the first schedule and
of the solve; overheads and bounds in per cent of keep-all's time, the gap as a share of the makespan. Then the largest
one from file to verified file, and the first schedules of graphs of up to 2,000 tasks, in a process that has solved
before, and in a new one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Stopwatch, measure, table
from remat.generate import generate
from remat.instance.base import save_instance
from remat.instance.lowering import lower

LIMIT = 120
STEP = {"preset": "llama-70b", "parameters": "none", "gradients": "none"}
JOBS: tuple[tuple[int, int, float, dict[str, str]], ...] = (
    (1, 50, 1e-5, {}),
    (1, 20, 1e-5, {}),
    (8, 50, 1e-3, {}),
    (8, 20, 1e-3, {}),
    (16, 20, 1e-3, {}),
    (8, 20, 1e-3, {"gradients": "accumulate"}),
    (8, 20, 1e-3, {"parameters": "static"}),
)
LARGEST, LARGEST_SHARE, LARGEST_GAP = 176, 20, 1e-2
SMALL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mlp", {"layers": 300, "batch": 8192, "keep_gradients": False}),
    ("resnet", {}),
    ("unet", {}),
    ("densenet", {}),
    ("inception", {}),
    ("layered", {"nodes": 1000}),
)
SMALL_SHARES = (90, 60)
FIRST_LIMIT = 10


def write(path: Path, count: int, more: dict[str, str]) -> None:
    """Write a step of so many micro-batches."""
    save_instance(remat.load(dict(generate("dag", "transformer", micro_batches=count, **STEP | more))), path)


def solve(path: str, share: int, gap: float) -> dict[str, Any]:
    """Load and solve once."""
    with Stopwatch() as loading:
        instance = remat.load(path)
    with Stopwatch() as keeping:
        graph = lower(instance)
        keep = remat.solve(instance, algorithm="keep-all")
    stays = graph.static_memory + sum(int(graph.size[entry.value]) for entry in graph.outputs)
    peak = next(iter(keep.peak_memory.values()))
    once = keep.makespan or 1
    first: list[tuple[float, Any]] = []

    def note(progress: Any) -> None:
        if progress.makespan is not None and not first:
            first.append((time.process_time() - start, progress.makespan))

    start = time.process_time()
    with Stopwatch() as solving:
        result = remat.solve(
            instance,
            algorithm="dag-auto",
            budget=stays + (peak - stays) * share // 100,
            gap=gap,
            time_limit=LIMIT,
            progress=note,
        )
    over = [100 * ((value or 0) / once - 1) for value in (first[0][1], result.makespan, result.lower_bound)]
    return {
        "tasks": len(graph.tasks),
        "load": loading.cpu,
        "keep": keeping.cpu,
        "first": first[0][0],
        "solve": solving.cpu,
        "over": over,
        "gap": 100 * (result.gap or 0),
    }


def whole(path: str, schedule: str, share: int, gap: float) -> dict[str, Any]:
    """Load a step, plan it, write the plan, and verify what was written."""
    with Stopwatch() as watch:
        instance = remat.load(path)
        peak = next(iter(remat.solve(instance, algorithm="keep-all").peak_memory.values()))
        result = remat.solve(instance, algorithm="dag-auto", budget=peak * share // 100, gap=gap, time_limit=LIMIT)
        result.save(schedule)
        assert remat.verify(instance, schedule).ok
    return watch.report(tasks=len(lower(instance).tasks), gap=100 * (result.gap or 0))


def first(path: str, share: int) -> dict[str, Any]:
    """Solve twice, from loading on; return the CPU seconds to the first schedule of both, None without one."""
    found: list[float | None] = []
    for _ in range(2):
        start, times = time.process_time() if found else 0.0, list[float]()
        instance = remat.load(path)
        peak = next(iter(remat.solve(instance, algorithm="keep-all").peak_memory.values()))

        def note(progress: Any, start: float = start, times: list[float] = times) -> None:
            if progress.makespan is not None:
                times.append(time.process_time() - start)

        budget = peak * share // 100
        remat.solve(instance, algorithm="dag-auto", budget=budget, time_limit=FIRST_LIMIT, gap=1.0, progress=note)
        found.append(times[0] if times else None)
    return {"new": found[0], "again": found[1], "tasks": len(lower(instance).tasks)}


def _steps(folder: Path) -> None:
    rows = []
    for count, share, gap, more in JOBS:
        path = folder / "step.json"
        write(path, count, more)
        seen = measure(solve, path=str(path), share=share, gap=gap)
        value = seen.value
        name = f"{count} {' '.join(more.values())}".strip()
        overs = [f"{over:.4f}" for over in value["over"]]
        rows.append(
            [
                *(name, value["tasks"], f"{share} %", value["load"], value["keep"], value["first"], overs[0]),
                *(value["solve"], overs[1], overs[2], f"{value['gap']:.5f}", seen.peak_mib),
            ]
        )
    header = ["micro-batches", "tasks", "budget", "load", "keep-all", "first", "% on top", "solve", "% on top"]
    table("dag-auto on a step of a 70B-like transformer; CPU seconds", [*header, "bound", "gap %", "peak MiB"], rows)


def _largest(folder: Path) -> None:
    path, schedule = folder / "step.json", folder / "schedule.json"
    # In a process of its own: what this one has taken counts as taken by those that it starts.
    options = ["--preset", "llama-70b", "--parameters", "none", "--gradients", "none", "--micro-batches", str(LARGEST)]
    command = [sys.executable, "-m", "remat", "generate", "dag", "--family", "transformer", *options, "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    seen = measure(whole, path=str(path), schedule=str(schedule), share=LARGEST_SHARE, gap=LARGEST_GAP)
    row = [seen.value["tasks"], f"{LARGEST_SHARE} %", seen.cpu, seen.wall, f"{seen.value['gap']:.4f}", seen.peak_mib]
    table("From file to verified file", ["tasks", "budget", "CPU s", "wall s", "gap %", "peak MiB"], [row])


def _first(folder: Path) -> None:
    rows = []
    for family, options in SMALL:
        path = folder / f"{family}.json"
        save_instance(remat.load(dict(generate("dag", family, **options))), path)
        for share in SMALL_SHARES:
            value = measure(first, path=str(path), share=share).value
            rows.append([family, value["tasks"], f"{share} %", value["again"] or "none", value["new"] or "none"])
    header = ["graph", "tasks", "budget", "again", "new process"]
    table("CPU seconds from a file to the first schedule", header, rows)


def run() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _steps(folder)
        _largest(folder)
        _first(folder)
