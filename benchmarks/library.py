"""What embedding the library costs: builders against documents, one solve's overhead, and many budgets of one instance.

    python -m benchmarks.library [--largest 1000000]

CPU seconds. Memory is the growth of the process's largest resident set while the instance is built and lowered.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Stopwatch, measure, table

BUDGETS = 100

PREPARED: tuple[tuple[str, str, str, float, float], ...] = (
    ("resnet50_b32_224", "rotor", "keep-all", 0.2, 1.02),
    ("gpt2_xl_b4", "rotor", "keep-all", 0.7, 1.02),
    ("loop_n10000", "revolve", "store-all", 0.001, 0.02),
    ("heterogeneous_n200", "walther-griewank", "store-all", 0.02, 0.52),
    ("random_n200", "liu", "keep-all", 0.2, 1.02),
)
"""Instance, algorithm, and the budgets: shares of the peak of an algorithm that recomputes nothing."""

STAGES = (8, 30, 100)


def _arrays(tasks: int) -> dict[str, Any]:
    """Return a layered graph: each task reads two values of the 1,000 tasks before it, and writes one."""
    import numpy as np

    draw = np.random.default_rng(1)
    number = np.arange(tasks, dtype=np.int64)
    first = np.maximum(number - draw.integers(1, 1000, tasks), 0)
    second = np.maximum(number - draw.integers(1, 1000, tasks), 0)
    kept = np.stack((np.ones(tasks, dtype=bool), second != first), axis=1)
    starts = np.append(0, np.cumsum(kept.sum(axis=1)))
    reads = np.stack((first, second), axis=1)[kept]
    return {
        "time": draw.integers(1, 100, tasks),
        "size": draw.integers(1, 10**6, tasks + 1),
        "reads": (starts, reads),
        "writes": (np.arange(tasks + 1, dtype=np.int64), number + 1),
        "outputs": [tasks],
    }


def _largest() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def _grown(found: dict[str, Any]) -> Iterator[None]:
    before = _largest()
    with Stopwatch() as watch:
        yield
    found.update(watch.report(mib=_largest() - before))


def from_arrays(tasks: int) -> dict[str, Any]:
    """Build and lower."""
    import remat
    from remat.instance.lowering import lower

    lower(remat.dag(**_arrays(10)))
    arrays, found = _arrays(tasks), dict[str, Any]()
    with _grown(found):
        graph = lower(remat.dag(**arrays))
    return found | {"tasks": len(graph.tasks)}


def from_json(path: str) -> dict[str, Any]:
    """Load and lower."""
    import remat
    from remat.instance.lowering import lower

    lower(remat.dag(**_arrays(10)))
    found = dict[str, Any]()
    with _grown(found):
        graph = lower(remat.load(path))
    return found | {"tasks": len(graph.tasks)}


def save(tasks: int, path: str) -> dict[str, Any]:
    """Write the instance as a document."""
    import remat
    from remat.instance import save_instance

    save_instance(remat.dag(**_arrays(tasks)), path)
    return {"cpu": 0.0, "wall": 0.0}


def from_networkx(tasks: int) -> dict[str, Any]:
    """Hold the same edges in a `networkx.DiGraph`."""
    import networkx

    arrays, found = _arrays(tasks), dict[str, Any]()
    (starts, reads), times = (column.tolist() for column in arrays["reads"]), arrays["time"].tolist()
    with _grown(found):
        graph: Any = networkx.DiGraph()
        for task, time_ in enumerate(times):
            graph.add_node(task, time=time_)
        for task in range(tasks):
            graph.add_edges_from((value - 1, task) for value in reads[starts[task] : starts[task + 1]] if value)
    return found | {"tasks": len(graph)}


def many_budgets(name: str, algorithm: str, plain: str, least: float, most: float) -> dict[str, Any]:
    """Solve for 100 budgets, alone and prepared."""
    import remat

    instance = remat.load(remat.example(name))
    top = max(remat.solve(instance, algorithm=plain, budget=10**15).peak_memory.values())
    budgets = [int(top * (least + (most - least) * k / (BUDGETS - 1))) for k in range(BUDGETS)]
    remat.prepare(instance, algorithm=algorithm).solve(budgets[-1])

    def figures(result: remat.Result) -> list[Any]:
        return [str(result.status), result.makespan, result.lower_bound, result.optimal_within]

    with Stopwatch() as alone:
        problem_setup = [figures(remat.solve(instance, algorithm=algorithm, budget=budget)) for budget in budgets]
    with Stopwatch() as together:
        prepared = remat.prepare(instance, algorithm=algorithm)
        shared = [figures(prepared.solve(budget)) for budget in budgets]
    schedules = len({json.dumps(found[1]) for found in shared})
    return {"cpu": 0.0, "wall": 0.0, "alone": alone.cpu, "prepared": together.cpu, "equal": problem_setup == shared} | {
        "schedules": schedules
    }


def overhead(stages: int, budget: str) -> dict[str, Any]:
    """Measure a solve without what the algorithm takes, in milliseconds."""
    import remat
    from remat.solving import problem_setup

    spent = [0.0]
    original: Callable[..., Any] = problem_setup.run

    def timed(*arguments: Any) -> Any:
        begun = time.process_time()
        try:
            return original(*arguments)
        finally:
            spent[0] += time.process_time() - begun

    problem_setup.run = timed
    chain = remat.chain(
        forward_time=[5 + k % 7 for k in range(stages)],
        backward_time=[9 + k % 5 for k in range(stages)],
        output_size=[1000 + 37 * (k % 11) for k in range(stages)],
        saved_size=[2000 + 53 * (k % 13) for k in range(stages)],
        input_size=1000,
    )
    given: str | int = budget
    if budget == "bytes":
        given = max(remat.solve(chain, algorithm="periodic").peak_memory.values()) * 6 // 5
    best = float("inf")
    for _ in range(7):
        spent[0], begun = 0.0, time.process_time()
        for _ in range(10):
            remat.solve(chain, algorithm="rotor", budget=given)
        best = min(best, time.process_time() - begun - spent[0])
    return {"cpu": best / 10, "wall": 0.0}


def run(largest: int = 1_000_000) -> None:
    """Print three tables."""
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for tasks in (10**3, 10**5, 10**6):
            if tasks > largest:
                continue
            path = str(Path(folder) / f"{tasks}.json")
            measure(save, tasks=tasks, path=path)
            for name, found in (
                ("remat.dag, CSR arrays", measure(from_arrays, tasks=tasks)),
                ("remat.load, JSON", measure(from_json, path=path)),
                ("networkx.DiGraph alone", measure(from_networkx, tasks=tasks)),
            ):
                rows.append([f"{tasks:,}", name, found.cpu, found.value["mib"]])
    table("Build and lower a task graph", ["tasks", "from", "CPU s", "MiB"], rows)
    rows = []
    for name, algorithm, plain, least, most in PREPARED:
        value = measure(many_budgets, name=name, algorithm=algorithm, plain=plain, least=least, most=most).value
        ratio = value["alone"] / value["prepared"]
        rows.append([name, algorithm, value["alone"], value["prepared"], ratio, value["schedules"], value["equal"]])
    columns = [
        "instance",
        "algorithm",
        "solve, CPU s",
        "prepare, CPU s",
        "ratio",
        "different schedules",
        "equal answers",
    ]
    table(f"{BUDGETS} budgets", columns, rows)
    rows = [
        [stages, *(measure(overhead, stages=stages, budget=budget).cpu * 1000 for budget in ("bytes", "70%"))]
        for stages in STAGES
    ]
    table("remat.solve without the algorithm", ["stages", "budget in bytes, CPU ms", "budget as a share, CPU ms"], rows)


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=1_000_000, help="most tasks of a graph")
    run(parser.parse_args().largest)


if __name__ == "__main__":
    from benchmarks import library  # under its own name, for the processes that measure

    library.main()
