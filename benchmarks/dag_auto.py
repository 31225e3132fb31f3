"""dag-auto on task graphs: cost and bound as shares of keep-all's time, and seconds to the best schedule and the proof.

Budgets are shares of the no-recompute peak. Shipped and generated graphs; those under ``$REMAT_DATA/dag``, too, where
that is set. Two threads, and at most `LIMIT` seconds each. Before that, what a command costs whose caches of machine
code are empty, against one that finds them full; both answer the same, since their rounds are counted.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import measure, table
from remat.generate import generate
from remat.instance.base import save_instance

LIMIT = 60
SHIPPED = ("unet_joint", "unet_b8_512_bf16", "mlp12_joint", "layered_n100")
GENERATED = (500, 1000)
COMMANDS = (("unet_joint", 80), ("layered_n100", 90), ("layered-500", 80), ("layered-1000", 90))
ROUNDS = 20
FOREIGN = {
    "checkmate/unet": (90, 80, 60, 40),
    "checkmate/mobilenet": (90, 80, 60, 40),
    "checkmate/resnet50": (90, 80, 60, 40),
    "random_layered/rl100": (90, 80, 70, 60),
    "random_layered/rl250": (90, 80, 70),
}


def load(name: str) -> remat.Instance:
    """Return a shipped graph, a generated one ("layered-500" tasks, "mlp-300" layers), or a file."""
    family, _, size = name.partition("-")
    if size and family == "layered":
        return remat.load(dict(generate("dag", family, nodes=int(size))))
    if size and family == "mlp":
        return remat.load(dict(generate("dag", family, layers=int(size), batch=8192, keep_gradients=False)))
    return remat.load(name if name.endswith(".json") else remat.example(name))


def solve(name: str, share: int, limit: int = LIMIT, **options: Any) -> dict[str, Any]:
    """Solve once; what the solver reports is timed from its start."""
    instance = load(name)
    keep = remat.solve(instance, algorithm="keep-all")
    peak = next(iter(keep.peak_memory.values()))
    found: list[float] = []

    def note(progress: Any) -> None:
        if progress.makespan is not None and (not found or progress.makespan < found[-1]):
            found.append(progress.makespan)
            times.append(progress.seconds)
            spent.append(time.process_time() - cpu)

    times: list[float] = []
    spent: list[float] = []
    cpu, wall = time.process_time(), time.perf_counter()
    result = remat.solve(
        instance,
        algorithm="dag-auto",
        budget=peak * share // 100,
        time_limit=limit,
        threads=2,
        progress=note,
        options=options,
    )
    bound = max((bound.value for bound in result.bounds), default=0)
    once = keep.makespan or 1
    return {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "ratio": None if result.makespan is None else result.makespan / once,
        "bound": bound / once,
        "overall": result.lower_bound / once,
        "first": times[0] if times else None,
        "spent": spent[0] if spent else None,
        "best": times[-1] if times else None,
        "status": f"proved ({result.optimal_within})" if result.optimal_within else str(result.status),
    }


def command(instance: Path, budget: int, caches: str) -> tuple[float, float, Any]:
    """Run `remat solve` with caches of machine code in a folder; return its wall and CPU seconds, and the makespan."""
    arguments = ["-b", str(budget), "-a", "dag-auto", "-O", f"iterations={ROUNDS}", "--format", "json"]
    line = [sys.executable, "-m", "remat", "solve", str(instance), *arguments]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = os.environ | {"NUMBA_CACHE_DIR": caches}
    done = subprocess.run(line, check=True, capture_output=True, text=True, env=environment)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, json.loads(done.stdout)["makespan"]


def starts() -> None:
    """Print what first and second commands cost."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, share in COMMANDS:
            instance = load(name)
            peak = next(iter(remat.solve(instance, algorithm="keep-all").peak_memory.values()))
            path = Path(folder, f"{name}.json")
            save_instance(instance, path)
            caches = str(Path(folder, f"caches-{name}"))
            runs = [command(path, peak * share // 100, caches) for _ in range(2)]
            (wall, cpu, cold), (warm_wall, warm_cpu, warm) = runs
            same = "the same" if cold == warm else f"{cold} and {warm}"
            rows.append([name, f"{share} %", wall, cpu, warm_wall, warm_cpu, cpu - warm_cpu, same])
    header = ["graph", "budget", "first s", "CPU s", "second s", "CPU s", "CPU s more", "answers"]
    table(f"remat solve -a dag-auto -O iterations={ROUNDS}, with empty caches and again", header, rows)


def run() -> None:
    """Print the tables."""
    starts()
    jobs = [(name, share) for name in SHIPPED for share in (90, 80, 60)]
    jobs += [(f"layered-{nodes}", share) for nodes in GENERATED for share in (90, 80)]
    data = os.environ.get("REMAT_DATA")
    if data:
        jobs += [(str(Path(data, "dag", f"{name}.json")), s) for name, shares in FOREIGN.items() for s in shares]
    rows = []
    for name, share in jobs:
        seen = measure(solve, name=name, share=share)
        value = seen.value
        ratio = "-" if value["ratio"] is None else f"{value['ratio']:.6f}"
        rows.append(
            [
                *(Path(name).stem, f"{share} %", ratio, f"{value['bound']:.6f}"),
                *(
                    value["first"] or "-",
                    value["spent"] or "-",
                    value["best"] or "-",
                    seen.wall,
                    seen.cpu,
                    value["status"],
                ),
            ]
        )
    header = ["graph", "budget", "cost", "bound", "first s", "its CPU s", "best s", "wall s", "CPU s", "answer"]
    table(f"dag-auto, two threads, at most {LIMIT} s (cost and bound: shares of keep-all's time)", header, rows)
