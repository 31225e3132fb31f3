"""Placement of streams: profiles, down-sets, bounds by family, and unequal devices.

Profiles (with `REMAT_DATA`) and drawn layered graphs of 10^3, 10^4 and 36,596 down-sets, on six accelerators around a
host, each with half of the parameters' bytes: contiguous optimum, proof, CPU seconds and memory of `tarnawski-dp`, and
what `tarnawski-ip` makes of it. Bounds: 50 drawn graphs of five families on 2, 4, 8 and 16 devices, the best bound over
all schedules as a share of the best schedule. Unequal devices: three types, with 40 to 100 % of the parameters' bytes
each, against shares by memory and by speed, and the contiguous optimum; and memories that together cannot suffice.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Stopwatch, measure, table
from benchmarks.placement_streams import FAMILIES, GRAPHS, around_a_host, equal, of_down_sets, stream
from remat.instance import load
from remat.instance.lowering import machine_of, samples_of
from remat.placement import place_stream

PROFILES = ("bert24_inference", "resnet50_training")
DOWN_SETS = (1_000, 10_000, 36_596)
COUNTS = (2, 4, 8, 16)
GRAPHS_OF_FAMILY = 10

SLOWER = {"quick": 1.0, "middle": 1.8, "slow": 3.0}
"""How many times slower the types of devices are."""

BANDWIDTH = {"quick": 2.0, "middle": 1.0, "slow": 0.5}
"""Bytes that each sends or receives in a time of 1."""

ROOMS = (0.4, 0.6, 0.8, 1.0)
"""Share of all parameters that each device holds."""


def _result(result: remat.Result, watch: Stopwatch) -> dict[str, Any]:
    within = {}
    for bound in result.bounds:
        within[bound.scope] = max(float(bound.value), within.get(bound.scope, 0.0))
    return watch.report(
        time=result.makespan,
        lower=result.lower_bound,
        within=within,
        proved=result.optimal_within,
        bounds=len(result.bounds),
    )


def solve_profile(path: str, algorithm: str, options: dict[str, Any]) -> dict[str, Any]:
    """Place a public profile."""
    from remat.bridges.placement_profiles.partitioning import import_partitioning

    instance = import_partitioning(path).instance
    with Stopwatch() as watch:
        result = remat.solve(instance, algorithm=algorithm, options=options)
    return _result(result, watch)


def half_each(count: int) -> dict[str, Any]:
    """Return a drawn layered graph of so many down-sets on six accelerators."""
    draw = random.Random(count)
    edges = of_down_sets(draw, count)
    document = stream(draw, edges, {})
    total = sum(value["size"] for value in document["values"] if value["id"].startswith("w"))
    return document | {"machine": around_a_host([("accelerator", total // 2, 1)] * 6)}


def solve_down_sets(count: int, algorithm: str, options: dict[str, Any]) -> dict[str, Any]:
    """Place a drawn graph of so many down-sets."""
    document = half_each(count)
    with Stopwatch() as watch:
        result = remat.solve(document, algorithm=algorithm, options=options)
    return _result(result, watch) | {"layers": len(document["tasks"])}


def contiguous() -> None:
    """Print what is proved of contiguous placements, and what others are worth."""
    rows: list[list[object]] = []
    cases: list[tuple[str, Any, dict[str, Any]]] = []
    folder = os.environ.get("REMAT_DATA")
    if folder:
        cases += [(name, solve_profile, {"path": str(Path(folder, "placement", f"{name}.json"))}) for name in PROFILES]
    cases += [(f"{count:,} down-sets", solve_down_sets, {"count": count}) for count in DOWN_SETS]
    for name, solve, given in cases:
        first = measure(solve, algorithm="tarnawski-dp", options={}, **given)
        other = measure(solve, algorithm="tarnawski-ip", options={"moves": 1_000_000, "work": 5.0}, **given)
        time, bound = first.value["time"], first.value["within"]["contiguous placements"]
        rows.append(
            [
                name,
                f"{time:.8g}",
                f"{100 * (time / max(bound, first.value['lower']) - 1):.2g} %",
                f"{first.cpu:.1f}",
                f"{first.peak_mib:.0f}",
                f"{other.value['time']:.8g}",
                f"{other.value['lower']:.8g}",
                f"{other.cpu:.1f}",
            ]
        )
    header = ["graph", "contiguous", "gap", "CPU s", "MiB", "non-contiguous", "bound, all schedules", "CPU s"]
    table("Contiguous optimum, and beyond", header, rows)


def bounds(count: int, work: float) -> None:
    """Print the best bound as a share of the best schedule, by family and number of devices."""
    ratios: dict[tuple[str, int], list[float]] = defaultdict(list)
    plain: dict[int, list[float]] = defaultdict(list)
    options = {"work": work, "moves": 300_000}
    rows: list[list[object]] = []
    with Stopwatch() as watch:
        for family in FAMILIES:
            for k in COUNTS:
                for seed in range(count):
                    document = equal(random.Random(f"{family} {seed}"), family, k)
                    result = remat.solve(document, algorithm="placement-bound", options=options)
                    assert result.makespan is not None
                    ratios[family, k].append(result.lower_bound / result.makespan)
                    work_bound = next(bound.value for bound in result.bounds if bound.source == "needed tasks")
                    plain[k].append(work_bound / result.makespan)
            rows.append([family, *(_shown(ratios[family, k]) for k in COUNTS)])
    rows.append(["all", *(_shown([r for name in FAMILIES for r in ratios[name, k]]) for k in COUNTS)])
    rows.append(["all, work alone", *(_shown(plain[k]) for k in COUNTS)])
    every = [ratio for own in ratios.values() for ratio in own]
    title = f"Best bound / best schedule, geometric mean of {count} graphs a family"
    table(title, ["family", *(f"k = {k}" for k in COUNTS)], rows)
    share = sum(ratio >= 1 - 1e-12 for ratio in every)
    mean = statistics.geometric_mean(every)
    sys.stdout.write(
        f"\nall {len(every)}: {mean:.4f}, least {min(every):.4f}, proved optimal {share}; {watch.cpu:.0f} s CPU\n"
    )


def _shown(ratios: list[float]) -> str:
    return f"{statistics.geometric_mean(ratios):.4f}"


def unequal(seed: int, room: float, reach: str) -> dict[str, Any]:
    """Return a drawn stream on three to six devices of three types."""
    draw = random.Random(f"unequal {seed}")
    family = FAMILIES[seed % len(FAMILIES)]
    edges = GRAPHS[family](draw)
    kinds = [*SLOWER, *(draw.choice(list(SLOWER)) for _ in range(draw.randint(0, 3)))]
    document = stream(draw, edges, {}, passing=0.3, times=SLOWER, training=family == "training")
    total = sum(value["size"] for value in document["values"] if value["id"].startswith("w"))
    devices = [(kind, round(total * room * draw.uniform(0.9, 1.1)), BANDWIDTH[kind]) for kind in kinds]
    return document | {"machine": around_a_host(devices, reach=reach)}


def share(document: dict[str, Any], weights: list[float]) -> tuple[float | None, bool]:
    """Cut layers, in their order, in proportion to weights: return the time per sample, and whether that fits."""
    instance = load(document)
    machine = machine_of(instance)
    samples = samples_of(instance, machine)
    assert samples is not None
    layers = [name for name in samples.graph.tasks if name.startswith("F")]
    homes, total = {}, sum(weights)
    for index, name in enumerate(layers):
        sofar = 0.0
        for device, weight in enumerate(weights):
            sofar += weight
            if (index + 0.5) / len(layers) <= sofar / total + 1e-12:
                homes[name[1:]] = device
                break
    placed = place_stream(samples.graph, machine, [[homes[name[1:]] for name in samples.graph.tasks]])
    return float(placed.pattern.period), placed.fits


def unequal_devices(count: int) -> None:
    """Print how much quicker ours are."""
    for reach, kept in (("host", "around a host, which transfers keep waiting"), ("all", "each linked to each")):
        rows: list[list[object]] = []
        least = math.inf
        with Stopwatch() as watch:
            for room in ROOMS:
                found: dict[str, list[float]] = defaultdict(list)
                misfits: dict[str, int] = defaultdict(int)
                for seed in range(count):
                    document = unequal(seed, room, reach)
                    ours = remat.solve(document, algorithm="tarnawski-ip", options={"moves": 300_000, "work": 2.0})
                    assert ours.makespan is not None
                    own = float(ours.makespan)
                    found["bound"].append(ours.lower_bound / own)
                    line = remat.solve(document, algorithm="tarnawski-dp")
                    if line.makespan is None:
                        misfits["contiguous"] += 1
                    else:
                        found["contiguous"].append(float(line.makespan) / own)
                    devices = document["machine"]["processors"]
                    rooms = {memory["name"]: memory.get("capacity", 0) for memory in document["machine"]["memories"]}
                    by = {
                        "memory": [float(rooms[device["memory"]]) for device in devices],
                        "speed": [1 / SLOWER[device["type"]] for device in devices],
                    }
                    for name, weights in by.items():
                        time, fits = share(document, weights)
                        if fits and time is not None:
                            found[name].append(time / own)
                        else:
                            misfits[name] += 1
                least = min([least, *(ratio for name in ("memory", "speed", "contiguous") for ratio in found[name])])
                cells = []
                for name in ("memory", "speed", "contiguous"):
                    mean = f"{statistics.geometric_mean(found[name]):.3f}" if found[name] else "-"
                    lost = f" ({misfits[name]} do not fit)" if misfits[name] else ""
                    cells.append(mean + lost)
                rows.append([f"{100 * room:.0f} %", *cells, f"{statistics.geometric_mean(found['bound']):.3f}"])
        header = ["memory of each", "share by memory", "share by speed", "contiguous optimum", "bound / ours"]
        table(f"Time per sample over ours, {count} graphs on 3 to 6 devices of three types, {kept}", header, rows)
        sys.stdout.write(f"\nleast ratio {least:.6f}; {watch.cpu:.0f} s CPU\n")


def too_small(count: int) -> None:
    """Print what is said where memories together hold 40 to 95 % of the parameters."""
    rows: list[list[object]] = []
    for share_of_all in (0.4, 0.7, 0.95):
        by_sum, by_layer, sums = 0, 0, list[float]()
        for seed in range(count):
            document = unequal(seed, 1.0, "host")
            total = sum(value["size"] for value in document["values"] if value["id"].startswith("w"))
            memories = [memory for memory in document["machine"]["memories"] if "capacity" in memory]
            for memory in memories:
                memory["capacity"] = round(total * share_of_all / len(memories))
            result = remat.solve(document, algorithm="tarnawski-dp")
            assert str(result.status) == "infeasible"
            assert result.least_budget is not None
            if not any("is needed" in note for note in result.notes):
                by_layer += 1
                continue
            by_sum += 1
            name = result.machine.memories[result.least_budget.memory].name
            own = next(memory["capacity"] for memory in memories if memory["name"] == name)
            capacity = sum(memory["capacity"] for memory in memories)
            sums.append((capacity - own + result.least_budget.size) / total)
        least = f"{100 * min(sums):.1f} to {100 * max(sums):.1f} %" if sums else "-"
        rows.append([f"{100 * share_of_all:.0f} %", f"{by_sum} of {count}", least, f"{by_layer} of {count}"])
    header = [
        "all memories",
        "infeasible: the least sum is named",
        "of the parameters",
        "infeasible: one layer is too large",
    ]
    table("Memories that hold less than the parameters", header, rows)


def run(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placements")
    parser.add_argument("tables", nargs="*", default=["contiguous", "bounds", "unequal"], metavar="TABLE")
    parser.add_argument("--graphs", type=int, default=GRAPHS_OF_FAMILY, help="graphs of a family, or of a row")
    parser.add_argument("--work", type=float, default=5.0, help="of the bound of blocks, in CP-SAT's units")
    given = parser.parse_args([] if arguments is None else arguments)
    if "contiguous" in given.tables:
        contiguous()
    if "bounds" in given.tables:
        bounds(given.graphs, given.work)
    if "unequal" in given.tables:
        unequal_devices(given.graphs)
        too_small(given.graphs)


if __name__ == "__main__":
    from benchmarks.placements import run as run_by_name  # what is measured is found by the module's name

    run_by_name(sys.argv[1:])
