"""What is between a file and an answer: start, reading instances and schedules, writing, verifying."""

from __future__ import annotations

import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Stopwatch, installed, measure, table

TASKS = 100_000
STEPS, SLOTS = 100_000, 20
NETWORK = ("--family", "transformer", "--preset", "llama-70b", "--gradients", "none")
MICRO_BATCHES = (16, 176)  # 92,496 and 1,017,456 tasks
IMPORTS = "import click, rich.console, rich.table, pydantic, numpy"


def graph(tasks: int) -> dict[str, Any]:
    """Return a graph whose tasks read two of the twenty before them."""
    draw = random.Random(tasks)
    listed = []
    for i in range(tasks):
        reads = sorted({i - 1 - draw.randrange(min(i, 20)) for _ in range(2)}) if i else []
        names = [f"t{j}" for j in reads]
        listed.append({"id": f"t{i}", "time": draw.randrange(1, 100), "reads": names, "size": draw.randrange(1, 1000)})
    units = {"time": "unit", "memory": "unit"}
    return {"schema": "remat.instance/1", "kind": "dag", "units": units, "tasks": listed, "outputs": [f"t{tasks - 1}"]}


def write_graph(path: str, tasks: int) -> None:
    """Write such a graph."""
    Path(path).write_text(json.dumps(graph(tasks), indent=1))


def loop(steps: int, slots: int) -> dict[str, Any]:
    """Return a time loop with one storage level."""
    units = {"time": "unit", "memory": "unit"}
    storage = [{"name": "ram", "slots": slots}]
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": units, "steps": steps, "storage": storage}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def load(path: str, *, plainly: bool) -> dict[str, Any]:
    """Read a file as JSON or as an instance; the memory is what that adds to the process."""
    remat.load(graph(3))  # schemas are built once, not with each instance
    before = _peak()
    with Stopwatch() as watch:
        if plainly:
            json.loads(Path(path).read_text())
        else:
            remat.load(path)
    return watch.report(added=_peak() - before)


def solve_and_save(instance: str, schedule: str) -> dict[str, Any]:
    """Solve a time loop with `revolve` and write the schedule."""
    with Stopwatch() as solving:
        result = remat.solve(instance, algorithm="revolve")
    with Stopwatch() as saving:
        result.save(schedule)
    return {"cpu": solving.cpu, "saving": saving.cpu, "steps": len(result.steps)}


def verify(instance: str, schedule: str) -> dict[str, Any]:
    """Verify a file, and the steps of it once more in memory."""
    from remat.instance.lowering import lower, machine_of
    from remat.solving.verifying import examine
    from remat.verifier import check

    loaded = remat.load(instance)
    with Stopwatch() as watch:
        examined = examine(loaded, schedule)
    assert examined.report.ok
    graph, machine = lower(loaded), machine_of(loaded)
    with Stopwatch() as again:
        check(graph, machine, examined.steps)
    return watch.report(again=again.cpu)


def keep_all(instance: str, schedule: str) -> dict[str, Any]:
    """Load a graph, run its tasks in the listed order, write that and verify the file."""
    from remat.instance.lowering import lower

    with Stopwatch() as loading:
        loaded = remat.load(instance)
    with Stopwatch() as lowering:
        lower(loaded)
    with Stopwatch() as solving:
        result = remat.solve(loaded, algorithm="keep-all")
    with Stopwatch() as saving:
        result.save(schedule)
    tasks = len(result.steps)
    del result
    with Stopwatch() as verifying:
        assert remat.verify(loaded, schedule).ok
    parts = {"load": loading, "lower": lowering, "keep-all": solving, "save": saving, "verify": verifying}
    cpu = {part: watch.cpu for part, watch in parts.items()}
    wall = sum(watch.wall for watch in parts.values())
    return {"cpu": sum(cpu.values()), "wall": wall, "tasks": tasks, **cpu}


def _keep_all(folder: Path) -> None:
    rows, parts = [], ("load", "lower", "keep-all", "save", "verify")
    for count in MICRO_BATCHES:
        files = {"instance": str(folder / "network.json"), "schedule": str(folder / "schedule.json")}
        options = ["--micro-batches", str(count), "-o", files["instance"]]
        _seconds([sys.executable, "-m", "remat", "generate", "dag", *NETWORK, *options])
        done = measure(keep_all, **files)
        rows.append([done.value["tasks"], *(done.value[part] for part in parts), done.cpu, done.peak_mib])
    title = "A training step, kernel by kernel, in the listed order; CPU seconds"
    table(title, ["tasks", *parts, "all", "peak MiB"], rows)


def _seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=installed())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def _start(repeats: int = 9) -> None:
    ours = [sys.executable, "-m", "remat", "solve", "example:lecture_l5"]
    pairs = [(_seconds([sys.executable, "-c", IMPORTS]), _seconds(ours)) for _ in range(repeats + 1)][1:]
    imports, solve = (statistics.median(column) for column in zip(*pairs, strict=True))
    rows = [[IMPORTS, imports * 1000, 1.0], ["remat solve example:lecture_l5", solve * 1000, solve / imports]]
    table(f"Start, median of {repeats}", ["command", "CPU ms", "ratio"], rows)


def run() -> None:
    """Print seconds, memory and ratios."""
    _start()
    with tempfile.TemporaryDirectory() as folder:
        _keep_all(Path(folder))
        path = Path(folder) / "graph.json"
        # In a process of its own: what this one has taken counts as taken by those that it starts.
        measure(write_graph, path=str(path), tasks=TASKS)
        plain, ours = (measure(load, path=str(path), plainly=plainly) for plainly in (True, False))
        rows = [
            [name, done.cpu, done.cpu / plain.cpu, done.value["added"], done.value["added"] / plain.value["added"]]
            for name, done in (("json.loads", plain), ("remat.load", ours))
        ]
        table(f"Graph of {TASKS:,} tasks", ["reader", "CPU s", "ratio", "MiB added", "ratio"], rows)
        instance, schedule = Path(folder) / "loop.json", Path(folder) / "schedule.json"
        instance.write_text(json.dumps(loop(STEPS, SLOTS)))
        files = {"instance": str(instance), "schedule": str(schedule)}
        solved = measure(solve_and_save, **files)
        verified = measure(verify, **files)
        count = solved.value["steps"]
        rows = [
            [part, seconds, count / seconds / 1e6, peak]
            for part, seconds, peak in (
                ("solve", solved.cpu, ""),
                ("save", solved.value["saving"], solved.peak_mib),
                ("verify the file", verified.cpu, verified.peak_mib),
                ("verify in memory", verified.value["again"], ""),
            )
        ]
        title = f"Revolve, {STEPS:,} steps, {SLOTS} slots: a schedule of {count:,} steps"
        table(title, ["part", "CPU s", "M steps/s", "peak MiB"], rows)
