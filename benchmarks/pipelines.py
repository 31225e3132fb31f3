"""Orders of pipelines: search and proof on certified optima, and the search's gap to the bound on larger ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.harness import Stopwatch, measure, table
from remat_algorithms.parallel.pipeline.bounds import lower_bounds
from remat_algorithms.parallel.pipeline.model import PipelineModel
from remat_algorithms.parallel.pipeline.pipe_exact import prove
from remat_algorithms.parallel.pipeline.pipe_search import search

OPTIMA = Path(__file__).parent.parent / "tests" / "data" / "reference" / "pipeline_optima.json"

SHARES = (0.5, 0.75, 1.0, 1.5)
"""Activations of a device that it has room for, by devices."""


def model_of(point: dict[str, Any]) -> PipelineModel:
    """Return the model of a certified optimum."""
    place = tuple(point["place"])
    stages, devices = len(place), max(place) + 1
    return PipelineModel(
        place=place,
        batches=point["m"],
        forward=(point["F"],) * stages,
        backward=(point["B"],) * stages,
        weight=(point.get("W", 0),) * stages,
        hop=(point.get("c", 0),) * (stages - 1),
        activation=(point.get("A", 1),) * stages,
        kept=(point.get("Aw", 0),) * stages,
        fixed=(0,) * devices,
        capacity=(point["cap"],) * devices,
    )


def solve(point: dict[str, Any], *, proof: bool) -> dict[str, Any]:
    """Search, or prove (which begins with a search), with everything that is compiled or imported for it."""
    model, span = model_of(point), point.get("objective") == "span"
    with Stopwatch() as watch:
        if proof:
            found = prove(model, span=span)
            values = {"figure": found.figure, "bound": found.bound, "proved": found.proved}
        else:
            values = {"figure": search(model, span=span).figure}
    return watch.report(**values)


def certified() -> None:
    """Print the certified optima: excess of the search, and CPU seconds of search and proof."""
    rows: list[list[object]] = []
    excess = []
    for point in json.loads(OPTIMA.read_text())["points"]:
        found = measure(solve, point=point, proof=False)
        proof = measure(solve, point=point, proof=True)
        assert proof.value["figure"] == proof.value["bound"] == point["best"]
        excess.append(100 * (found.value["figure"] / point["best"] - 1))
        bounds = lower_bounds(model_of(point), span=point.get("objective") == "span")
        name = max(bounds, key=lambda name: bounds[name])
        rows.append(
            [
                f"{point['name']}, {max(point['place']) + 1} devices, m={point['m']}",
                point["cap"],
                point.get("objective", "makespan"),
                point["best"],
                f"{bounds[name]} ({name})",
                found.value["figure"],
                f"{excess[-1]:.1f} %",
                f"{found.cpu:.2f}",
                f"{proof.cpu:.2f}",
            ]
        )
    header = ["pipeline", "cap", "objective", "optimum", "plain bound", "search", "excess", "CPU s", "proof CPU s"]
    table(
        "certified optima (search and proof each in a process of its own, imports and compiling included)", header, rows
    )
    print(f"excess: mean {sum(excess) / len(excess):.2f} %, worst {max(excess):.1f} %")


def large() -> None:
    """Print the search's gap to the plain bounds on eight devices with 32 micro-batches."""
    chain, folded = [*range(8)], [*range(8), *reversed(range(8))]
    shapes = {
        "chain": {"place": chain, "F": 10, "B": 20, "A": 2},
        "chain, B and W": {"place": chain, "F": 10, "B": 10, "W": 10, "A": 2, "Aw": 1},
        "interleaved": {"place": chain * 2, "F": 10, "B": 20},
        "V": {"place": folded, "F": 10, "B": 20},
        "V, B and W": {"place": folded, "F": 10, "B": 10, "W": 10, "A": 2, "Aw": 1},
    }
    rows: list[list[object]] = []
    for name, shape in shapes.items():
        for share in SHARES:
            a_device = shape.get("A", 1) * (len(shape["place"]) // 8)
            point = {**shape, "m": 32, "c": 1, "cap": int(8 * share * a_device)}
            found = measure(solve, point=point, proof=False)
            bounds = lower_bounds(model_of(point))
            best = max(bounds, key=lambda name: bounds[name])
            gap = 100 * (found.value["figure"] / bounds[best] - 1)
            figure = found.value["figure"]
            rows.append([name, f"{share:g} p", figure, f"{bounds[best]} ({best})", f"{gap:.1f} %", f"{found.cpu:.2f}"])
    table("p=8, m=32, hops 1", ["pipeline", "memory", "search", "bound", "gap", "CPU s"], rows)


def run() -> None:
    """Print both tables."""
    certified()
    large()
