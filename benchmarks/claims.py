"""The papers' own claims, tried on shipped and generated instances: ``python -m benchmarks.claims [NAME ...]``.

Each function reproduces the direction of one claim and returns a table; every figure is that of a verified schedule.
``--write`` puts the tables into docs/explanation/claims.md, each in a place that names its claim.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Stopwatch, table
from benchmarks.hosts import host
from remat.generate import generate
from remat.instance import instance_document

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "claims.md"
UNITS = {"time": "unit", "memory": "unit"}


@dataclass(frozen=True)
class Tried:
    """A table of figures of our own; the page shows the rows of `on_page`, or all."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    on_page: tuple[int, ...] = ()

    def markdown(self) -> str:
        """Return the table as a page prints it."""
        shown = [self.rows[index] for index in self.on_page] or self.rows
        head, *rows = (f"| {' | '.join(line)} |\n" for line in (self.header, *shown))
        return "".join((head, "|---" * len(self.header) + "|\n", *rows))


def overhead(result: remat.Result | None) -> str:
    """Return an overhead in percent; `none` without a schedule."""
    return (
        "none" if result is None or result.overhead is None else f"{100 * result.overhead:.2f}".replace("-0.00", "0.00")
    )


def solved(instance: Any, algorithm: str, *, budget: Any = None, **more: Any) -> remat.Result | None:
    """Solve; None where the algorithm refuses the instance."""
    try:
        return remat.solve(instance, algorithm=algorithm, budget=budget, **more)
    except remat.OptionError:
        return None


def the_peak(result: remat.Result | None) -> int:
    """Return the peak of the working memory."""
    assert result is not None
    return result.peak_memory[result.machine.memories[0].name]


# --- chains and graphs ------------------------------------------------------------------------------------------------

LINKS = (("V100", 12), ("A100", 24))
"""Devices, with the GB/s of PCI Express 3 and 4."""

SHARES = (10, 15, 20, 25, 50, 75)
MOST_OVERHEAD = 0.2


def pofo() -> Tried:
    """Both recomputation and offloading against recomputation alone, at several budgets and within 20 %."""
    rows: dict[str, list[str]] = {}
    for device, bandwidth in LINKS:
        chain = remat.load(generate("chain", "resnet", depth="101", device=device, batch=32))
        machine = host(bandwidth)
        least = remat.solve(chain, algorithm="rotor", budget=0, machine=machine).least_budget
        assert least is not None
        high = the_peak(remat.solve(chain, algorithm="rotor", machine=machine))
        enough: dict[str, int] = {}
        for share in SHARES:
            budget = {"device": least.size + (high - least.size) * share // 100}
            found = {name: solved(chain, name, budget=budget, machine=machine) for name in ("rotor", "pofo")}
            costs = {name: one.overhead for name, one in found.items() if one is not None and one.overhead is not None}
            for name, cost in costs.items():
                if cost <= MOST_OVERHEAD:
                    enough.setdefault(name, budget["device"])
            removed = f"{100 * (1 - costs['pofo'] / costs['rotor']):.0f}"
            rows.setdefault(f"{share} %", []).extend((overhead(found["rotor"]), overhead(found["pofo"]), removed))
        factors = (f"{high / enough['rotor']:.1f} x", f"{high / enough['pofo']:.1f} x")
        rows.setdefault("within 20 %", []).extend((*factors, "-"))
    columns = [(f"{device}: rotor", "pofo", "removed, %") for device, _ in LINKS]
    header = ("budget", *(name for three in columns for name in three))
    return Tried(header, tuple((a, *b) for a, b in rows.items()), on_page=(0, 3, 5, 6))


RULES = ("chen-sqrt", "chen-greedy", "linearized-greedy", "dtr", "checkmate")
GRAPHS = (("vgg16_b32_224", (90, 80, 60)), ("unet_b8_512_bf16", (90, 80, 60)))
CHECKMATE_LIMIT = 20.0


def checkmate() -> Tried:
    """Checkmate against Chen's rules, their extensions to graphs, and DTR; overheads in percent."""
    rows = []
    for name, shares in GRAPHS:
        graph = remat.example(f"dags/{name}")
        high = the_peak(remat.solve(graph, algorithm="keep-all"))
        for share in shares:
            found = [
                solved(
                    graph, rule, budget=high * share // 100, time_limit=CHECKMATE_LIMIT if rule == "checkmate" else None
                )
                for rule in RULES
            ]
            rows.append((name, f"{share} %", *("-" if one is None else overhead(one) for one in found)))
    return Tried(("graph", "budget", *RULES), tuple(rows), on_page=(1, 2, 4, 5))


OFFLOADING = ("vdnn-all", "tflms", "autoswap", "swapadvisor", "superneurons", "offload-greedy", "offload-dp")


def offloading() -> Tried:
    """Offloading by relaxations against the rules before them; overheads in percent."""
    chain = remat.example("chains/resnet50_b32_224")
    least = remat.solve(chain, algorithm="rotor", budget=0).least_budget
    assert least is not None
    high = the_peak(remat.solve(chain, algorithm="rotor"))
    rows = []
    for bandwidth in (12, 64):
        budget = {"device": least.size + (high - least.size) * 40 // 100}
        cells = []
        for name in OFFLOADING:
            options: dict[str, Any] = {"saved": True} if name.startswith("vdnn") else {}
            options |= {"bound": False} if name.startswith("offload") else {}
            options |= {"iterations": 200} if name == "swapadvisor" else {}
            cells.append(overhead(solved(chain, name, budget=budget, machine=host(bandwidth), options=options)))
        rows.append((f"{bandwidth} GB/s", *cells))
    return Tried(("link", *OFFLOADING), tuple(rows))


# --- trees and time loops ---------------------------------------------------------------------------------------------

DRAWN_TREES = 60
TREES = ("postorder_trap_k3_b3", "random_n200", "binary_n1000", "caterpillar_n300")


def trees() -> Tried:
    """The best post-order against the best traversal, and both goals of post-orders against each other."""
    rows = []
    cases = [(name, remat.example(f"trees/{name}")) for name in TREES]
    cases.insert(1, ("postorder_trap_k6_b3", remat.load(generate("tree", "postorder-trap", depth=6, branches=3))))
    for name, tree in cases:
        peaks = [the_peak(remat.solve(tree, algorithm=rule)) for rule in ("liu-postorder", "liu")]
        rows.append((name, f"{peaks[0]:,}", f"{peaks[1]:,}", f"{peaks[0] / peaks[1]:.3f}"))
    ratios = []
    for seed in range(DRAWN_TREES):
        tree = remat.load(generate("tree", "random", nodes=60, seed=seed))
        peaks = [the_peak(remat.solve(tree, algorithm=rule)) for rule in ("liu-postorder", "liu")]
        ratios.append(peaks[0] / peaks[1])
    worse = sum(ratio > 1 for ratio in ratios)
    drawn = f"{DRAWN_TREES} random trees of 60 nodes"
    ratio = f"mean {sum(ratios) / len(ratios):.3f}, largest {max(ratios):.3f}"
    rows.append((drawn, f"optimal for {len(ratios) - worse}", "-", ratio))
    header = ("tree", "best post-order (liu-postorder)", "best traversal (liu)", "ratio")
    return Tried(header, tuple(rows), on_page=(0, 1, 5))


def loop(steps: int, levels: Sequence[tuple[int | None, int]]) -> dict[str, Any]:
    """Return a time loop on storage levels of so many slots, each with a time to write and to read."""
    storage = [
        {"name": f"level{k}", "slots": slots, "write_time": time, "read_time": time}
        for k, (slots, time) in enumerate(levels)
    ]
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": UNITS, "steps": steps, "storage": storage}


def h_revolve() -> Tried:
    """Three levels against the first and the last of them alone."""
    rows = []
    for steps in (100, 300, 600):
        for levels in (((5, 0), (20, 1), (None, 5)), ((10, 0), (30, 1), (None, 10))):
            three = remat.solve(loop(steps, levels), algorithm="h-revolve")
            two = remat.solve(loop(steps, (levels[0], levels[2])), algorithm="disk-revolve")
            assert two.makespan is not None
            assert three.makespan is not None
            shown = ", ".join(f"{slots or 'any'} at {time}" for slots, time in levels)
            saved = f"{100 * (1 - three.makespan / two.makespan):.1f}"
            rows.append((f"{steps}", shown, f"{two.makespan}", f"{three.makespan}", saved))
    header = ("steps", "slots and times of the levels", "disk-revolve", "h-revolve", "saved, %")
    return Tried(header, tuple(rows), on_page=(0, 5))


def through_time() -> Tried:
    """Backpropagation through 1,000 steps in 5 % of the memory, beside Chen's square root."""
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNITS, "steps": 1000}
    document |= {"forward_time": 1, "backward_time": 2}
    rows = []
    whole = the_peak(remat.solve(document, algorithm="store-all"))
    for name, slots in (("store-all", None), ("chen-sqrt", None), ("bptt-hsm", 63), ("bptt-hsm", 50), ("bptt-hsm", 20)):
        result = remat.solve(document, algorithm=name, budget=slots)
        peak = the_peak(result)
        rows.append((name, f"{peak:,}", f"{100 * (1 - peak / whole):.1f}", overhead(result)))
    return Tried(("algorithm", "states held", "memory saved, %", "overhead, %"), tuple(rows), on_page=(1, 3, 4))


# --- pipelines --------------------------------------------------------------------------------------------------------

SCHEDULES = ("1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe", "dualpipev")


def uniform(devices: int, batches: int) -> dict[str, Any]:
    """Return a pipeline with F = B = W, where W keeps half of what F saved; two layers for each device."""
    layer = {"forward_time": 5, "backward_time": 5, "weight_time": 5, "saved_size": 2, "weight_saved_size": 1}
    document = {"schema": "remat.instance/3", "kind": "pipeline", "units": UNITS, "backward_reads": ["saved"]}
    cluster = {"devices": [{"name": "gpu", "count": devices}]}
    return document | {"layers": [layer | {"repeat": 2 * devices}], "micro_batches": batches, "cluster": cluster}


def zero_bubble() -> Tried:
    """Bubble and memory of the schedules with split backwards, in V's and in two directions, against 1F1B."""
    rows = []
    document = uniform(8, 24)
    first = remat.solve(document, algorithm="1f1b")
    assert first.report is not None
    for name in SCHEDULES:
        copies = {"copies": 2} if name == "dualpipe" else {}
        result = remat.solve(document | copies, algorithm=name)
        assert result.report is not None
        bubble = f"{100 * max(result.report.bubble.values()):.1f}"
        spans = max(first.report.spans.values()) / max(result.report.spans.values()) - 1
        memory = max(result.peak_memory.values()) / max(first.peak_memory.values())
        rows.append((name, bubble, f"{100 * spans:+.1f}", f"{memory:.2f}"))
    return Tried(
        ("schedule", "bubble, %", "throughput above 1f1b, %", "peak / peak of 1f1b"),
        tuple(rows),
        on_page=(0, 1, 2, 3, 4, 5, 6),
    )


PLANNERS = ("1f1b", "pipedream-dp", "dapple-plan", "piper", "tarnawski-dp")
_OF_LAYERS = ("name", "forward_time", "backward_time", "output_size", "saved_size", "repeat", "forward_workspace")


def as_pipeline(chain: Mapping[str, Any], devices: int, batches: int) -> dict[str, Any]:
    """Return the stages of a chain as layers on devices with links of 25 GB/s."""
    layers = [{key: stage[key] for key in _OF_LAYERS if key in stage} for stage in chain["stages"]]
    cluster = {"devices": [{"name": "gpu", "count": devices}], "levels": [{"bandwidth": "25GB/s"}]}
    document = {"schema": "remat.instance/3", "kind": "pipeline", "units": dict(chain.get("units", {}))}
    return document | {"layers": layers, "micro_batches": batches, "cluster": cluster}


def by_count(pipeline: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pipeline whose layers are merged into one for each device, from equally many layers each."""
    devices = sum(one.get("count", 1) for one in pipeline["cluster"]["devices"])
    layers = [layer for layer in pipeline["layers"] for _ in range(layer.get("repeat", 1))]
    merged = []
    for device in range(devices):
        own = layers[len(layers) * device // devices : len(layers) * (device + 1) // devices]
        keys = {key for layer in own for key in layer if key.endswith(("_time", "_size")) and key != "output_size"}
        sums = {key: sum(layer.get(key, 0) for layer in own) for key in sorted(keys)}
        merged.append(sums | {"output_size": own[-1].get("output_size", 0)})
    return {key: value for key, value in pipeline.items() if key != "copies"} | {"layers": merged}


def planners() -> Tried:
    """Divisions of the layers by planners against equally many layers for each device, both as 1F1B."""
    cases: list[tuple[str, Any]] = [
        (name, instance_document(remat.example(f"pipelines/{name}")))
        for name in ("gpt2_xl_p8_m32", "bert_large_two_nodes")
    ]
    for depth, devices in (("50", 4), ("101", 8)):
        chain = generate("chain", "resnet", depth=depth, batch=8)
        cases.append((f"ResNet-{depth}, {devices} devices", as_pipeline(chain, devices, 4 * devices)))
    rows = []
    for name, pipeline in cases:
        even = remat.solve(by_count(pipeline), algorithm="1f1b")
        assert even.makespan is not None
        cells = []
        for planner in PLANNERS:
            result = solved(pipeline, planner)
            quicker = None if result is None or result.makespan is None else even.makespan / result.makespan
            cells.append("none" if quicker is None else f"{quicker:.3f}")
        rows.append((name, *cells))
    return Tried(("pipeline", "1f1b, equal times", *PLANNERS[1:]), tuple(rows))


# --- parameters -------------------------------------------------------------------------------------------------------

BILLION = 10**9
STAGES = 48


def sharded(parameters: int, zero: int, ranks: int) -> dict[str, Any]:
    """Return a chain of equal stages with Adam in mixed precision: 2, 2 and 12 bytes for each parameter."""
    each = parameters // STAGES
    stage = {
        "forward_time": 2,
        "backward_time": 4,
        "output_size": 1,
        "saved_size": 1,
        "repeat": STAGES,
        "update_time": 1,
    }
    stage |= {"parameter_size": 2 * each, "parameter_gradient_size": 2 * each, "optimizer_size": 12 * each}
    machine = {
        "memories": [{"name": "device"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [{"source": "device", "target": "device", "bandwidth": "25GB/s"}],
    }
    document = {"schema": "remat.instance/3", "kind": "chain", "input_size": 1, "stages": [stage], "machine": machine}
    return document | {"sharding": {"data": ranks, "zero": zero}}


def largest(zero: int, ranks: int, budget: int) -> int:
    """Return the most parameters, in tenths of a billion, that fit a device."""
    few, many = 0, 20_000
    while few < many:
        middle = (few + many + 1) // 2
        result = remat.solve(sharded(middle * BILLION // 10, zero, ranks), algorithm="zero", budget={"device": budget})
        few, many = (middle, many) if result.columns is not None else (few, middle - 1)
    return few


def zero() -> Tried:
    """Memory of 7.5 billion parameters on 64 devices, and the largest models in 32 GB for each device."""
    rows = []
    for stage in range(4):
        peak = the_peak(remat.solve(sharded(7_500_000_000, stage, 64), algorithm="zero"))
        models = [f"{largest(stage, ranks, 32 * BILLION) / 10:.1f}" for ranks in (4, 16, 64)]
        rows.append((f"ZeRO {stage}", f"{peak / BILLION:.1f} GB", *models))
    header = ("stage", "7.5 billion on 64 devices", *(f"largest on {ranks}" for ranks in (4, 16, 64)))
    return Tried(header, tuple(rows))


CLAIMS: Mapping[str, Callable[[], Tried]] = {
    "pofo": pofo,
    "checkmate": checkmate,
    "offloading": offloading,
    "trees": trees,
    "h-revolve": h_revolve,
    "through-time": through_time,
    "zero-bubble": zero_bubble,
    "planners": planners,
    "zero": zero,
}


def section(name: str) -> re.Pattern[str]:
    """Return the pattern of a table in the page."""
    return re.compile(rf"(<!-- claim {re.escape(name)} -->\n\n)((?:\|.*\n)*)(\n<!-- table end -->)")


def run(names: Sequence[str] = (), *, write: bool = False) -> None:
    """Print tables, and put them into the page if wanted."""
    for name in names or CLAIMS:
        with Stopwatch() as watch:
            tried = CLAIMS[name]()
        table(name, tried.header, tried.rows)
        sys.stdout.write(f"{watch.cpu:.1f} CPU s\n\n")
        if write:
            put(name, tried)


def put(name: str, tried: Tried) -> None:
    """Write a table into the page."""
    text, count = section(name).subn(lambda found: found[1] + tried.markdown() + found[3], PAGE.read_text())
    assert count == 1, f"the page has no place for {name}"
    PAGE.write_text(text)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*CLAIMS, []], metavar="NAME", help=", ".join(CLAIMS))
    parser.add_argument("--write", action="store_true", help="put the tables into docs/explanation/claims.md")
    given = parser.parse_args()
    run(given.names, write=given.write)


if __name__ == "__main__":
    main()
