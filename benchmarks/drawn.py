"""Drawn instances of a given size, by form: what the benchmarks of time limits and of `auto` solve."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]

LARGE = (1000, 2000, 3000, 5000, 10_000)
"""Steps, stages, tasks or nodes of large instances."""

LARGE_PIPELINES = ((24, 8, 32), (48, 16, 64), (96, 16, 64), (64, 8, 128), (48, 8, 256))
"""Layers, devices and micro-batches of large pipelines."""


class Draw(random.Random):
    """Random numbers, and the sizes of what is drawn with them."""

    def __init__(
        self,
        seed: str,
        sizes: Sequence[int] = LARGE,
        pipelines: Sequence[tuple[int, int, int]] = LARGE_PIPELINES,
    ) -> None:
        super().__init__(seed)
        self.sizes, self.pipelines = tuple(sizes), tuple(pipelines)


@dataclass(frozen=True)
class Case:
    """An instance document and the budgets with which it is solved."""

    document: Document
    budget: Any = None
    arguments: Document = field(default_factory=dict[str, Any])


def _times(draw: Draw, count: int) -> list[int]:
    return [draw.randint(1, 100) for _ in range(count)]


def _count(draw: Draw, most: int = 10_000) -> int:
    return draw.choice([size for size in draw.sizes if size <= most])


def _share(draw: Draw) -> str:
    return f"{draw.choice([5, 15, 30, 60, 90])}%"


def _links(one: str, other: str, **figures: Any) -> list[Document]:
    return [{"source": source, "target": target, **figures} for source, target in ((one, other), (other, one))]


def with_host(*, processors: int = 1) -> Document:
    return {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device", "count": processors}],
        "links": _links("device", "host", bandwidth=2),
    }


def _adjoint(draw: Draw, *, own: bool = False, tape: bool = False, levels: int = 0) -> Case:
    count = _count(draw)
    steps: Any = count
    if own:
        steps = [
            {"forward_time": draw.randint(1, 9), "backward_time": draw.randint(1, 9), "state_size": draw.randint(1, 9)}
            for _ in range(count)
        ]
    document: Document = {"schema": "remat.instance/1", "kind": "adjoint", "steps": steps}
    if tape:
        document |= {"tape_size": 3, "tape_time": 2}
    slots = (draw.choice([5, 30, 200]), draw.choice([20, 100]), draw.choice([100, 1000, count]))
    quick = {"name": "memory", "slots": slots[0]}
    slower = [{"name": f"level{k}", "slots": slots[k], "write_time": 2 * k, "read_time": k} for k in range(1, levels)]
    if levels and draw.random() < 0.4:
        slower = [level | {"channel": "disk"} for level in slower]
    if levels:
        return Case(document | {"storage": [quick, *slower]})
    return Case(document, draw.choice(["5%", "30%", "1%"]))


def _chain(draw: Draw, *, hosted: bool = False, variants: bool = False, parameters: bool = False) -> Case:
    kinds = []
    for _ in range(20):
        stage: Document = {
            "forward_time": draw.randint(1, 100),
            "backward_time": draw.randint(1, 200),
            "output_size": draw.randint(1, 100),
            "saved_size": draw.randint(0, 300),
        }
        if variants:
            stage["variants"] = [{}, {"saved_size": draw.randint(0, 100), "backward_time": draw.randint(100, 300)}]
        if parameters:
            stage |= {"parameter_size": draw.randint(1, 100), "optimizer_size": 200, "update_time": 3}
        kinds.append(stage)
    stages = [draw.choice(kinds) for _ in range(_count(draw))]
    schema = "remat.instance/2" if parameters else "remat.instance/1"
    document: Document = {"schema": schema, "kind": "chain", "input_size": 10, "stages": stages}
    if hosted:
        document["machine"] = with_host()
        if parameters and draw.random() < 0.5:
            document["optimizer_memory"] = "host"
    return Case(document, _share(draw))


def _dag(draw: Draw, machine: Document | None = None, most: int = 10_000) -> Case:
    count = _count(draw, most)
    width, back = draw.choice([1, 2, 3]), draw.choice([3, 10, 100])
    tasks, values = [], []
    for k in range(count):
        reads = sorted({f"v{k - draw.randint(1, min(k, back))}" for _ in range(width)}) if k else []
        tasks.append({"id": f"t{k}", "time": draw.randint(1, 100), "reads": reads, "writes": [f"v{k}"]})
        values.append({"id": f"v{k}", "size": draw.randint(1, 100)})
    document: Document = {"schema": "remat.instance/2", "kind": "dag", "tasks": tasks, "values": values}
    if draw.random() < 0.5:
        document["outputs"] = [f"v{count - 1}"]
    if machine is not None:
        document["machine"] = machine
    return Case(document, _share(draw))


def _training(draw: Draw, machine: Document | None = None) -> Case:
    """Draw a network's forward and backward, with skip connections, as a task graph."""
    layers = _count(draw) // 2
    tasks: list[Document] = []
    sizes = {"x0": 10}
    for k in range(1, layers + 1):
        skip = [f"x{draw.randrange(max(0, k - 9), k)}"] if draw.random() < 0.3 else []
        reads = list(dict.fromkeys([f"x{k - 1}", *skip]))
        tasks.append({"id": f"F{k}", "time": draw.randint(1, 50), "reads": reads, "writes": [f"x{k}"]})
        sizes[f"x{k}"] = draw.randint(1, 100)
    sizes[f"y{layers}"] = 1
    tasks.append({"id": "loss", "time": 1, "reads": [f"x{layers}"], "writes": [f"y{layers}"]})
    for k in range(layers, 0, -1):
        reads = [*tasks[k - 1]["reads"], f"x{k}", f"y{k}"]
        tasks.append({"id": f"B{k}", "time": draw.randint(1, 99), "reads": reads, "writes": [f"y{k - 1}"]})
        sizes[f"y{k - 1}"] = draw.randint(1, 100)
    values = [{"id": name, "size": size} for name, size in sizes.items()]
    document: Document = {"schema": "remat.instance/2", "kind": "dag", "tasks": tasks, "values": values}
    document |= {"inputs": ["x0"], "outputs": ["y0"]}
    if machine is not None:
        document["machine"] = machine
    return Case(document, _share(draw))


def _processors() -> Document:
    processors = [{"name": "fast", "memory": "device", "count": 3}, {"name": "slow", "memory": "device", "speed": 0.5}]
    return {"memories": [{"name": "device"}], "processors": processors}


def _tree(draw: Draw, machine: Document | None = None) -> Case:
    count, back = _count(draw), draw.choice([1, 3, 100, 10_000])
    parent = [-1, *(draw.randint(max(0, node - back), node - 1) for node in range(1, count))]
    document: Document = {"schema": "remat.instance/2", "kind": "tree", "parent": parent}
    document |= {"output_size": _times(draw, count), "time": _times(draw, count)}
    if machine is not None:
        document["machine"] = machine
    return Case(document, _share(draw))


def _disk() -> Document:
    machine = with_host()
    return machine | {
        "memories": [*machine["memories"], {"name": "disk"}],
        "links": [*machine["links"], *_links("host", "disk", bandwidth=0.5)],
    }


def _pipeline(draw: Draw, *, hosted: bool = False, forwards: bool = False) -> Case:
    layers, devices, batches = draw.choice(draw.pipelines)
    kinds = []
    for _ in range(4):
        layer = {"forward_time": draw.randint(5, 20), "output_size": draw.randint(1, 9), "parameter_size": 50}
        if not forwards:
            layer |= {"backward_time": draw.randint(10, 40), "saved_size": draw.randint(5, 60)}
        kinds.append(layer)
    listed = [draw.choice(kinds) for _ in range(layers)]
    if draw.random() < 0.4:
        listed = [kinds[0] | {"repeat": layers}]
    cluster: Document = {"devices": [{"name": "gpu", "count": devices}], "levels": [{"bandwidth": 5}]}
    if hosted:
        cluster["host"] = {"bandwidth": 5}
    document: Document = {"schema": "remat.instance/3", "kind": "pipeline", "layers": listed, "cluster": cluster}
    document["micro_batches"] = batches
    if forwards:
        document["weights"] = "fixed"
    kept = sum(layer.get("saved_size", 9) * layer.get("repeat", 1) for layer in listed) // devices
    states = 4 * 50 * layers // devices
    return Case(document, None if forwards else states + kept * draw.choice([2, devices // 2, devices, 4 * devices]))


def _join(draw: Draw) -> Case:
    chains = []
    for _ in range(draw.choice([2, 3])):
        stages = [
            {"forward_time": draw.randint(1, 9), "backward_time": draw.randint(1, 9), "output_size": draw.randint(1, 9)}
            for _ in range(_count(draw, 5000))
        ]
        chains.append({"input_size": 5, "stages": stages})
    return Case({"schema": "remat.instance/3", "kind": "join", "chains": chains}, _share(draw))


def _stream(draw: Draw) -> Case:
    document = _dag(draw, most=2000).document | {"schema": "remat.instance/3", "stream": 4}
    document.pop("outputs", None)
    names = [f"m{k}" for k in range(4)]
    links = [{"source": a, "target": b, "bandwidth": 5} for a in names for b in names if a != b]
    document["machine"] = {
        "memories": [{"name": name} for name in names],
        "processors": [{"name": f"p{k}", "memory": names[k]} for k in range(4)],
        "links": links,
    }
    return Case(document)


FORMS: dict[str, Callable[[Draw], Case]] = {
    "adjoint": lambda draw: _adjoint(draw),
    "adjoint-levels": lambda draw: _adjoint(draw, levels=draw.choice([2, 3])),
    "adjoint-unequal": lambda draw: _adjoint(draw, own=True, levels=draw.choice([0, 2])),
    "adjoint-tape": lambda draw: _adjoint(draw, tape=True, levels=draw.choice([0, 1, 2])),
    "chain": lambda draw: _chain(draw),
    "chain-host": lambda draw: _chain(draw, hosted=True),
    "chain-variants": lambda draw: _chain(draw, variants=True, hosted=draw.random() < 0.5),
    "chain-parameters": lambda draw: _chain(draw, parameters=True, hosted=True),
    "dag": lambda draw: draw.choice([_dag, _training])(draw),
    "dag-host": lambda draw: draw.choice([_dag, _training])(draw, with_host()),
    "dag-processors": lambda draw: draw.choice([_dag, _training])(draw, _processors()),
    "tree": lambda draw: _tree(draw),
    "tree-disk": lambda draw: _tree(draw, _disk()),
    "tree-processors": lambda draw: _tree(draw, _processors()),
    "pipeline": lambda draw: _pipeline(draw),
    "pipeline-host": lambda draw: _pipeline(draw, hosted=True),
    "pipeline-forwards": lambda draw: _pipeline(draw, forwards=True),
    "join": _join,
    "stream": _stream,
}
"""Each part of the benchmark, and what draws its instances."""
