"""Pipelines with a host behind the devices, at equal memory: the search against named schedules, and the bound.

    python -m benchmarks.pipelines_host [--devices 4 8] [--moves 6000] [--work 5]

Each row is a pipeline of two layers a device, with F = B = W, of which W needs half of what F saved, and 16
micro-batches. `trip` is how long a device's activations of a micro-batch take to the host and back, by the time of its
F, B and W; `memory` is a share of what 1F1B takes. Figures are verified makespans; a schedule that does not fit is left
out (-). `free` is the best without a limit of the memory. The bound is the least one of the three placements that are
searched, whatever the memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import remat
from benchmarks.harness import Stopwatch, table
from remat.solving.problem_setup import make_problem
from remat_algorithms.parallel.pipeline.bounds import lower_bound
from remat_algorithms.parallel.pipeline.stages import SHAPES, staging

TRIPS = (0.5, 1, 2)
SHARES = (0.25, 0.5, 0.75)
BATCHES = 16
TIME, SIZE = 4, 24
"""Of each phase of a layer; of what it saves for a micro-batch."""

NAMED = ("1f1b", "zb-v", "v-min", "pipeoffload")


def instance(devices: int, trip: float) -> dict[str, Any]:
    """Return a pipeline whose activations take so long to the host and back, by the time of a micro-batch."""
    times = {"forward_time": TIME, "backward_time": TIME, "weight_time": TIME}
    layer = times | {"saved_size": SIZE, "weight_saved_size": SIZE // 2, "repeat": 2 * devices}
    bandwidth = 2 * SIZE / (trip * 3 * TIME)
    host = {"bandwidth": int(bandwidth) if bandwidth == int(bandwidth) else bandwidth}
    document = {"schema": "remat.instance/3", "kind": "pipeline", "units": {"time": "unit", "memory": "unit"}}
    cluster = {"devices": [{"name": "gpu", "count": devices}], "host": host}
    return document | {"micro_batches": BATCHES, "layers": [layer], "cluster": cluster, "backward_reads": ["saved"]}


def rows(devices: list[int], moves: int, work: float) -> Iterator[list[object]]:
    """Yield the rows."""
    for count in devices:
        for trip in TRIPS:
            document = remat.load(instance(count, trip))
            free = remat.solve(document, algorithm="pipe-search", options={"moves": moves}).makespan
            for share in SHARES:
                budget = int(share * count * 2 * SIZE)
                found = [remat.solve(document, algorithm=name, budget=budget).makespan for name in NAMED]
                programs = [
                    remat.solve(
                        document, algorithm="optpipe", budget=budget, options={"work": work, "placement": shape}
                    ).makespan
                    for shape in ("chain", "v")
                ]
                found.append(min((one for one in programs if one is not None), default=None))
                with Stopwatch() as watch:
                    ours = remat.solve(document, algorithm="pipe-search", budget=budget, options={"moves": moves})
                problem = make_problem(document)
                bound = min(lower_bound(staging(problem, shape).model) for shape in SHAPES)
                assert ours.makespan is not None
                assert all(one is None or ours.makespan <= one for one in found), f"{found} {ours.makespan}"
                gap = f"{100 * (ours.makespan / bound - 1):.1f}"
                figures = ["-" if one is None else f"{one:g}" for one in found]
                yield [
                    *(count, trip, f"{share:.0%}", *figures, f"{ours.makespan:g}"),
                    *(f"{free:g}", f"{bound:g}", gap, f"{watch.cpu:.1f}"),
                ]


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--moves", type=int, default=6_000)
    parser.add_argument("--work", type=float, default=5)
    given = parser.parse_args(arguments)
    head = ["devices", "trip", "memory", *NAMED, "optpipe", "ours", "free", "bound", "gap %", "CPU s"]
    table("pipelines with a host", head, list(rows(given.devices, given.moves, given.work)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
