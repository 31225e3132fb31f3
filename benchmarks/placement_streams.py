"""Streams of samples for the benchmark of placements: drawn graphs of layers, and accelerators around a host."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

Edges = list[list[int]]
"""For each layer, the earlier ones that it reads."""

FAMILIES = ("layered", "towers", "inception", "residual", "training")


def layered(draw: random.Random) -> Edges:
    """Return layers of two to four, each of which reads one or two of the layer before."""
    edges: Edges = [[] for _ in range(draw.randint(2, 4))]
    before = list(range(len(edges)))
    while len(edges) < 40:
        here = range(len(edges), len(edges) + draw.randint(2, 4))
        edges += [sorted(draw.sample(before, draw.randint(1, 2))) for _ in here]
        before = list(here)
    return [*edges, before]


def towers(draw: random.Random) -> Edges:
    """Return two or three chains that meet, and go on as one."""
    edges: Edges = []
    ends = []
    for _ in range(draw.randint(2, 3)):
        for k in range(draw.randint(8, 16)):
            edges.append([len(edges) - 1] if k else [])
        ends.append(len(edges) - 1)
    edges.append(ends)
    for _ in range(draw.randint(4, 8)):
        edges.append([len(edges) - 1])
    return edges


def inception(draw: random.Random) -> Edges:
    """Return blocks of three or four branches of one to three layers, joined after each block."""
    edges: Edges = [[]]
    while len(edges) < 40:
        add_block(edges, [draw.randint(1, 3) for _ in range(draw.randint(3, 4))])
    return edges


def residual(draw: random.Random) -> Edges:
    """Return a chain in which some layers read an earlier one, too."""
    edges: Edges = [[]]
    while len(edges) < 45:
        skipped = [len(edges) - draw.randint(2, 4)] if draw.random() < 0.4 and len(edges) > 4 else []
        edges.append([*skipped, len(edges) - 1])
    return edges


def add_block(edges: Edges, lengths: Sequence[int]) -> None:
    """Add parallel branches of so many layers each after the last layer, and one that joins them."""
    last, ends = len(edges) - 1, []
    for length in lengths:
        for k in range(length):
            edges.append([len(edges) - 1] if k else [last])
        ends.append(len(edges) - 1)
    edges.append(ends)


def of_down_sets(draw: random.Random, count: int) -> Edges:
    """Return layers in blocks of branches that have exactly so many down-sets.

    Blocks one after the other have sum (d - 1) + 1 of them, and branches of n_1, n_2, ... layers the product of n + 1.
    """
    edges: Edges = [[]]
    left = count - 2
    largest = max(6, count // 8)
    while left > 12:
        lengths = [draw.randint(1, 6) for _ in range(draw.randint(2, 5))]
        sets = 1
        for length in lengths:
            sets *= length + 1
        if left // 12 <= sets <= min(left, largest):
            add_block(edges, lengths)
            left -= sets
    for _ in range(left):
        edges.append([len(edges) - 1])
    return edges


GRAPHS = {"layered": layered, "towers": towers, "inception": inception, "residual": residual, "training": residual}


def stream(
    draw: random.Random,
    edges: Edges,
    machine: dict[str, Any],
    *,
    passing: float = 0.15,
    times: dict[str, float] | None = None,
    training: bool = False,
    spread: int = 2,
) -> dict[str, Any]:
    """Return a stream: each layer reads parameters of its own, which lie in one memory.

    Parameters
    ----------
    passing : float
        Bytes of an output, as a mean share of a layer's time: at bandwidth 1 that is what it takes.
    times : dict of str to float, optional
        How many times slower each type of processor is than the quickest; drawn anew for each layer, by a third.
    spread : int
        The longest layers take up to 2^spread times as long as the others.
    training : bool
        A backward of twice the time for each layer, which reads its parameters and its output.
    """
    kinds = times or {"accelerator": 1.0}
    values: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    followers: list[list[int]] = [[] for _ in edges]
    for k, read in enumerate(edges):
        for other in read:
            followers[other].append(k)
    for k, read in enumerate(edges):
        base = 2 ** draw.randint(0, spread) * draw.randint(50, 150)
        time = {
            kind: max(1, round(base * slower * (draw.uniform(0.67, 1.33) if slower > 1 else 1)))
            for kind, slower in kinds.items()
        }
        made = (
            [
                {
                    "id": f"x{k}",
                    "size": max(1, round(draw.uniform(0, 2) * passing * 100 * (2 ** (spread + 1) - 1) / (spread + 1))),
                }
            ]
            if followers[k]
            else []
        )
        values += [{"id": f"w{k}", "size": draw.randint(20, 200)}, *made]
        tasks.append(
            {
                "id": f"F{k}",
                "time": time,
                "reads": [f"w{k}", *(f"x{j}" for j in read)],
                "writes": [value["id"] for value in made],
            }
        )
        if training:
            tasks[-1]["phase"] = "forward"
    for k in reversed(range(len(edges))) if training else ():
        gradient = [{"id": f"y{k}", "size": values_size(values, f"x{k}")}] if edges[k] else []
        values += gradient
        own = [f"x{k}"] if followers[k] else []
        tasks.append(
            {
                "id": f"B{k}",
                "time": {kind: 2 * one for kind, one in tasks[k]["time"].items()},
                "reads": [f"w{k}", *own, *(f"y{j}" for j in followers[k])],
                "writes": [value["id"] for value in gradient],
                "phase": "backward",
            }
        )
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "stream": 2,
        "machine": machine,
        "inputs": [{"value": f"w{k}", "memory": "any"} for k in range(len(edges))],
        "values": values,
        "tasks": tasks,
    }


def values_size(values: list[dict[str, Any]], name: str) -> int:
    """Return the size of a value of a document, or 30 where there is none."""
    return next((value["size"] for value in values if value["id"] == name), 30)


def around_a_host(
    devices: Sequence[tuple[str, int | None, float]], *, waits: bool = True, reach: str = "host"
) -> dict[str, Any]:
    """Return accelerators (type, capacity, bandwidth) around a host that computes nothing.

    `waits`: a device computes nothing while it sends or receives. With `reach` "all" there are links between any two
    instead, of the lesser bandwidth, and transfers go on beside the work.
    """
    names = [f"a{k}" for k in range(len(devices))]
    links: list[dict[str, Any]] = []
    if reach == "host":
        for name, (_, _, bandwidth) in zip(names, devices, strict=True):
            for source, target in ((name, "host"), ("host", name)):
                link = {"source": source, "target": target, "bandwidth": bandwidth}
                links.append(link | ({"channel": name} if waits else {}))
    else:
        for source, (_, _, one) in zip(names, devices, strict=True):
            for target, (_, _, other) in zip(names, devices, strict=True):
                if source != target:
                    links.append({"source": source, "target": target, "bandwidth": min(one, other)})
    memories = [
        {"name": name} | ({} if room is None else {"capacity": room})
        for name, (_, room, _) in zip(names, devices, strict=True)
    ]
    return {
        "memories": [*([{"name": "host"}] if reach == "host" else []), *memories],
        "processors": [
            {"name": name, "memory": name, "type": kind} for name, (kind, _, _) in zip(names, devices, strict=True)
        ],
        "links": links,
    }


def equal(draw: random.Random, family: str, count: int) -> dict[str, Any]:
    """Return a stream of a family on so many equal accelerators around a host."""
    edges = GRAPHS[family](draw)
    machine = around_a_host([("accelerator", None, 1)] * count)
    return stream(draw, edges, machine, training=family == "training", spread=draw.randint(0, 3))
