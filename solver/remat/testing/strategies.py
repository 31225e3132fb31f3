"""Hypothesis strategies for small instance documents of all kinds.

They draw plain documents (`dict`), so that a falsifying example can be pasted into a file. Sizes and times are
small, with many zeros and ties, and now and then large or fractional: that is where algorithms go wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]
DocumentStrategy = st.SearchStrategy[Document]

SCALES = (1, 1, 1, 1, 3, 1000, 2**20 + 7, 2**40)
"""Sizes are small integers times one of these."""

LARGE = 10**12
"""Times around multiples of this differ by less than any tolerance for floats, and yet they differ."""

TIME_SCALES: tuple[int | float, ...] = (1, 1, 1, 1, 7, 1000, 0.5, 0.1, LARGE)


class _Figures:
    """Draws sizes and times of one instance, on one scale."""

    def __init__(self, draw: st.DrawFn, *, exact: bool) -> None:
        self._draw = draw
        self._scale = 1 if exact else draw(st.sampled_from(SCALES))
        self._time_scale = 1 if exact else draw(st.sampled_from(TIME_SCALES))

    def size(self, least: int = 0, most: int = 6) -> int:
        return self._draw(st.integers(least, most)) * self._scale

    def time(self, least: int = 0, most: int = 6) -> int | float:
        time = self._draw(st.integers(least, most)) * self._time_scale
        return time + self._draw(st.integers(0, 3)) if self._time_scale == LARGE else time

    def seldom(self, document: Document, key: str, value: Callable[[], Any], odds: int = 4) -> None:
        """Set a key in one document of `odds`, and leave its default in the others."""
        if self._draw(st.integers(1, odds)) == odds:
            document[key] = value()


def _head(draw: st.DrawFn, kind: str) -> Document:
    document: Document = {"schema": "remat.instance/1", "kind": kind}
    units = draw(st.sampled_from([None, None, {"time": "unit", "memory": "unit"}, {"time": "ms"}]))
    if units is not None:
        document["units"] = units
    return document


@st.composite
def machines(draw: st.DrawFn) -> Document:
    """Draw a machine with a second memory, or a second processor, or both."""
    processors: list[Document] = [{"name": "gpu", "memory": "device"}]
    if draw(st.booleans()):
        processors[0]["count"] = 2
    if draw(st.booleans()):
        return {"memories": [{"name": "device"}], "processors": processors}
    links = []
    for source, target in (("device", "host"), ("host", "device")):
        link: Document = {"source": source, "target": target}
        bandwidth = draw(st.sampled_from([None, 1, 2, 5]))
        if bandwidth is not None:
            link["bandwidth"] = bandwidth
        channel = draw(st.sampled_from([None, "bus"]))
        if channel is not None:
            link["channel"] = channel
        links.append(link)
    return {"memories": [{"name": "device"}, {"name": "host"}], "processors": processors, "links": links}


# --- chains -----------------------------------------------------------------------------------------------------------


@st.composite
def chains(
    draw: st.DrawFn, *, largest: int = 6, plain: bool = False, exact: bool = False, parameters: bool = False
) -> Document:
    """Draw a `chain` document.

    Parameters
    ----------
    largest : int
        Most stages, repeats counted.
    plain : bool
        Only what every chain algorithm must understand: one memory, nothing in place, each backward reads
        input, output and saved value.
    exact : bool
        Integer times and unscaled sizes, for comparison with exhaustive searches.
    parameters : bool
        Now and then with parameters, optimizer states and updates.
    """
    figures = _Figures(draw, exact=exact)
    document = _head(draw, "chain")
    count = draw(st.integers(1, largest))
    uniform = draw(st.integers(1, 4)) == 4
    if uniform:
        stages = [_stage(draw, figures, plain=plain) | {"repeat": count}]
    else:
        stages = [_stage(draw, figures, plain=plain) for _ in range(count)]
    document |= {"input_size": figures.size(), "stages": stages}
    figures.seldom(document, "loss", lambda: {"time": figures.time(), "workspace": figures.size()})
    figures.seldom(document, "input_gradient", lambda: False)
    figures.seldom(document, "static_memory", figures.size)
    if not plain:
        figures.seldom(document, "in_place", lambda: True, 6)
        figures.seldom(document, "backward_reads", lambda: draw(_READS), 6)
        figures.seldom(document, "machine", lambda: draw(machines()), 10)
    if parameters and draw(st.integers(1, 8)) == 8:
        _parameters(draw, figures, document)
    return document


def _parameters(draw: st.DrawFn, figures: _Figures, document: Document) -> None:
    """Give a chain parameters, some of them at another memory where there is one."""
    document["schema"] = "remat.instance/2"
    for stage in document["stages"]:
        stage["parameter_size"] = figures.size(1)
        figures.seldom(stage, "parameter_gradient_size", figures.size)
        figures.seldom(stage, "optimizer_size", figures.size, 2)
        figures.seldom(stage, "update_time", figures.time, 2)
    if draw(st.booleans()):
        document["machine"] = draw(machines())
    names = [memory["name"] for memory in document.get("machine", {"memories": ()})["memories"]]
    if len(names) > 1:
        figures.seldom(document, "parameter_memory", lambda: names[1], 2)
        figures.seldom(document, "optimizer_memory", lambda: names[1], 2)


_READS = st.lists(st.sampled_from(["input", "output", "saved"]), unique=True, max_size=3)


def _stage(draw: st.DrawFn, figures: _Figures, *, plain: bool) -> Document:
    stage: Document = {
        "forward_time": figures.time(),
        "backward_time": figures.time(),
        "output_size": figures.size(),
    }
    figures.seldom(stage, "saved_size", figures.size, 2)
    figures.seldom(stage, "forward_workspace", figures.size)
    figures.seldom(stage, "backward_workspace", lambda: figures.size(most=12))
    figures.seldom(stage, "saving_workspace", figures.size, 6)
    figures.seldom(stage, "saving_forward_time", figures.time, 6)
    figures.seldom(stage, "gradient_size", figures.size, 6)
    if not plain:
        figures.seldom(stage, "backward_reads", lambda: draw(_READS), 10)
    figures.seldom(stage, "variants", lambda: _variants(draw, figures, plain=plain), 6)
    return stage


def _variants(draw: st.DrawFn, figures: _Figures, *, plain: bool) -> list[Document]:
    """Draw alternatives that trade saved bytes for time, more or less."""
    variants = []
    for _ in range(draw(st.integers(1, 3))):
        variant: Document = {}
        figures.seldom(variant, "saved_size", figures.size, 2)
        figures.seldom(variant, "backward_time", figures.time, 2)
        figures.seldom(variant, "saving_forward_time", figures.time)
        figures.seldom(variant, "saving_workspace", figures.size)
        figures.seldom(variant, "backward_workspace", figures.size)
        if not plain:
            figures.seldom(variant, "backward_reads", lambda: draw(_READS), 6)
        variants.append(variant)
    return variants


# --- adjoints ---------------------------------------------------------------------------------------------------------


@st.composite
def adjoints(
    draw: st.DrawFn,
    *,
    largest: int = 8,
    uniform: bool | None = None,
    exact: bool = False,
    taped: bool | None = None,
    machine: bool = False,
) -> Document:
    """Draw an `adjoint` document.

    Parameters
    ----------
    largest : int
        Most steps.
    uniform : bool, optional
        Equal steps (True), steps of their own (False), or either.
    exact : bool
        Integer times and unscaled sizes.
    taped : bool, optional
        With tapes that can be stored (True), without (False), or either.
    machine : bool
        Now and then on a machine of its own, in place of storage.
    """
    figures = _Figures(draw, exact=exact)
    document = _head(draw, "adjoint")
    count = draw(st.integers(1, largest))
    equal = draw(st.integers(1, 4)) < 4 if uniform is None else uniform
    document["steps"] = count if equal else [_step(draw, figures) for _ in range(count)]
    figures.seldom(document, "forward_time", figures.time, 2)
    figures.seldom(document, "backward_time", figures.time, 2)
    figures.seldom(document, "state_size", figures.size, 2)
    figures.seldom(document, "adjoint_size", figures.size, 3)
    figures.seldom(document, "static_memory", figures.size)
    if taped is None:
        taped = draw(st.integers(1, 6)) == 6
    if taped:
        _tapes(draw, figures, document)
    if machine and draw(st.integers(1, 6)) == 6:
        document["machine"] = draw(machines())
        return document
    figures.seldom(document, "storage", lambda: _storage(draw, figures), 2)
    levels = [level["name"] for level in document.get("storage", ())]
    if levels:
        figures.seldom(document, "initial_state", lambda: draw(st.sampled_from(levels)))
    return document


def _tapes(draw: st.DrawFn, figures: _Figures, document: Document) -> None:
    """Give an adjoint tapes, often of a time of their own, and of sizes of their own where steps differ."""
    document["tape_size"] = figures.size()
    figures.seldom(document, "tape_time", figures.time, 2)
    for step in document["steps"] if isinstance(document["steps"], list) else ():
        figures.seldom(step, "tape_size", figures.size, 2)


def _step(draw: st.DrawFn, figures: _Figures) -> Document:
    step: Document = {}
    figures.seldom(step, "forward_time", figures.time, 2)
    figures.seldom(step, "backward_time", figures.time, 2)
    figures.seldom(step, "state_size", figures.size, 3)
    figures.seldom(step, "adjoint_size", figures.size)
    return step


def _storage(draw: st.DrawFn, figures: _Figures) -> list[Document]:
    levels = []
    for index in range(draw(st.sampled_from([1, 1, 2, 2, 3]))):
        level: Document = {"name": f"level{index}"}
        match draw(st.integers(0, 2)):
            case 0:
                level["slots"] = draw(st.integers(0, 4))
            case 1:
                level["capacity"] = figures.size(most=20)
        figures.seldom(level, "write_time", figures.time, 3)
        figures.seldom(level, "read_time", figures.time, 3)
        figures.seldom(level, "bandwidth", lambda: draw(st.integers(1, 5)))
        figures.seldom(level, "channel", lambda: draw(st.sampled_from(["bus", "disk"])), 6)
        levels.append(level)
    return levels


# --- task graphs ------------------------------------------------------------------------------------------------------


@st.composite
def dags(draw: st.DrawFn, *, largest: int = 7, plain: bool = False, exact: bool = False) -> Document:
    """Draw a `dag` document.

    Parameters
    ----------
    largest : int
        Most tasks.
    plain : bool
        One memory, every task required, one producer for each value, listed in topological order.
    exact : bool
        Integer times and unscaled sizes.
    """
    figures = _Figures(draw, exact=exact)
    document = _head(draw, "dag")
    inputs = [f"i{index}" for index in range(draw(st.integers(0, 2)))]
    sizes = {name: figures.size() for name in inputs}
    tasks: list[Document] = []
    for number in range(draw(st.integers(1, largest))):
        readable = sorted(sizes)
        reads = draw(st.lists(st.sampled_from(readable), unique=True, max_size=3)) if readable else []
        written = [f"v{number}{letter}" for letter in "ab"[: draw(st.sampled_from([1, 1, 1, 2, 0]))]]
        sizes |= {name: figures.size() for name in written}
        tasks.append({"id": f"t{number}", "time": figures.time(), "reads": reads, "writes": written})
        _traits(draw, figures, tasks[-1], plain=plain)
    if not plain:
        _alternatives(draw, figures, tasks)
        if draw(st.integers(1, 4)) == 4:
            tasks = draw(st.permutations(tasks))
    document |= {"values": [{"id": name, "size": size} for name, size in sizes.items()], "tasks": tasks}
    document["inputs"] = inputs
    if inputs:
        some_inputs = st.lists(st.sampled_from(inputs), unique=True)
        figures.seldom(document, "pinned_inputs", lambda: draw(some_inputs), 3)
    if sizes:
        some_values = st.lists(st.sampled_from(sorted(sizes)), unique=True, max_size=2)
        figures.seldom(document, "outputs", lambda: draw(some_values), 2)
    figures.seldom(document, "static_memory", figures.size)
    if not plain:
        figures.seldom(document, "machine", lambda: _machine_of_dag(draw, document), 8)
    return document


def _traits(draw: st.DrawFn, figures: _Figures, task: Document, *, plain: bool) -> None:
    figures.seldom(task, "workspace", lambda: figures.size(most=12), 3)
    figures.seldom(task, "in_place", lambda: True, 6)
    figures.seldom(task, "recomputable", lambda: False, 6)
    figures.seldom(task, "once", lambda: True, 6)
    if not plain and not task.get("once"):
        figures.seldom(task, "required", lambda: False, 3)
        figures.seldom(task, "parallel", lambda: {"max": 2, "alpha": 0.5}, 10)


def _alternatives(draw: st.DrawFn, figures: _Figures, tasks: list[Document]) -> None:
    """Give some value a second producer, which reads no more than the first one does."""
    makers = [task for task in tasks if task["writes"]]
    if makers and draw(st.integers(1, 3)) == 3:
        first = draw(st.sampled_from(makers))
        second = {"id": "other", "time": figures.time(), "reads": first["reads"][:1], "writes": first["writes"][:1]}
        tasks.append(second | {"required": False})


def _machine_of_dag(draw: st.DrawFn, document: Document) -> Document:
    machine: Document = draw(machines())
    if len(machine["memories"]) > 1 and document["inputs"] and draw(st.booleans()):
        moved = document["inputs"][-1]
        document["inputs"] = [*document["inputs"][:-1], {"value": moved, "memory": "host"}]
    return machine


# --- trees ------------------------------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn, *, largest: int = 9, plain: bool = False, exact: bool = False) -> Document:
    """Draw a `tree` document.

    Parameters
    ----------
    largest : int
        Most nodes.
    plain : bool
        One memory and one processor.
    exact : bool
        Integer times and unscaled sizes.
    """
    figures = _Figures(draw, exact=exact)
    document = _head(draw, "tree")
    count = draw(st.integers(1, largest))
    shape = draw(st.sampled_from(["any", "any", "chain", "star", "bushy"]))
    parent = [-1]
    for node in range(1, count):
        match shape:
            case "chain":
                parent.append(node - 1)
            case "star":
                parent.append(0)
            case "bushy":
                parent.append((node - 1) // 2)
            case _:
                parent.append(draw(st.integers(0, node - 1)))
    label = draw(st.permutations(range(count)))
    named = [0] * count
    for node, above in enumerate(parent):
        named[label[node]] = -1 if above == -1 else label[above]
    document |= {"parent": named, "output_size": [figures.size() for _ in range(count)]}
    figures.seldom(document, "workspace", lambda: [figures.size() for _ in range(count)], 2)
    figures.seldom(document, "time", lambda: [figures.time() for _ in range(count)], 2)
    figures.seldom(document, "orientation", lambda: "out", 3)
    figures.seldom(document, "static_memory", figures.size)
    if not plain:
        figures.seldom(document, "machine", lambda: draw(machines()), 10)
        figures.seldom(document, "parallel", lambda: {"max": 2, "alpha": 0.5}, 10)
    return document


# --- pipelines --------------------------------------------------------------------------------------------------------


@st.composite
def pipelines(
    draw: st.DrawFn,
    *,
    largest: int = 6,
    exact: bool = False,
    streams: bool = True,
    cuts: bool = False,
    tensor: bool = False,
) -> Document:
    """Draw a `pipeline` document.

    Parameters
    ----------
    largest : int
        Most layers, and most micro-batches.
    exact : bool
        Integer times and unscaled sizes.
    streams : bool
        Some of them without end, weights changing while micro-batches are under way.
    cuts : bool
        Some of them with sequences that are cut into slices, or with parts of micro-batches.
    tensor : bool
        Some of them with layers that two devices may run together.
    """
    figures = _Figures(draw, exact=exact)
    document = _head(draw, "pipeline") | {"schema": "remat.instance/3"}
    count = draw(st.integers(1, largest))
    equal = draw(st.booleans())
    split = draw(st.integers(1, 3))  # no layer in halves, all of them, or some
    types = ["fast", "slow"] if draw(st.integers(1, 5)) == 5 else []
    layers = [_layer(draw, figures, split, types) for _ in range(1 if equal else count)]
    if equal:
        layers[0]["repeat"] = count
    devices: list[Document] = [{"name": "gpu", "count": draw(st.integers(1, 4))}]
    if types:
        devices = [{"name": name, "count": draw(st.integers(1, 2))} for name in types]
    document |= {
        "layers": layers,
        "micro_batches": draw(st.integers(1, largest)),
    }
    cluster: Document = {"devices": devices}
    level: Document = {}
    figures.seldom(level, "bandwidth", lambda: draw(st.integers(1, 5)), 2)
    figures.seldom(level, "latency", figures.time, 3)
    figures.seldom(level, "delay", figures.time, 3)
    if level:
        cluster["levels"] = [level]
    document["cluster"] = cluster
    if streams and draw(st.integers(1, 4)) == 4:
        document["weights"] = draw(st.sampled_from(["stash", "double", "single"]))
        if document["weights"] == "double":
            document["update_every"] = draw(st.integers(1, largest))
        if document["weights"] == "single":
            figures.seldom(layers[0], "discrepancy_size", figures.size, 2)
    else:
        _skip(draw, layers)
        figures.seldom(document, "copies", lambda: 2, 2)
        figures.seldom(cluster, "host", lambda: _host(draw, figures), 4)
        if draw(st.integers(1, 4)) == 4:
            document["exchange"] = "ring"
            figures.seldom(layers[-1], "update_time", figures.time, 2)
        for layer in layers if draw(st.integers(1, 3)) == 3 else ():
            layer["paired_time"] = _paired_time(layer, types, draw(st.integers(0, 2)))
        if cuts and "copies" in document and draw(st.integers(1, 3)) == 3:
            document |= _parts(draw, figures, layers, types)
        if cuts and "copies" not in document and draw(st.integers(1, 4)) == 4:
            document["tokens"] = _cut(draw, figures, layers, types)
            document["micro_batches"] = draw(st.integers(1, 2)) * len(document["tokens"]["cut"])
    figures.seldom(document, "backward_reads", lambda: draw(_READS), 4)
    if tensor and not document.keys() & {"weights", "tokens", "parts"} and draw(st.integers(1, 4)) == 4:
        _let_share(draw, figures, layers, types)
    return document


def _let_share(draw: st.DrawFn, figures: _Figures, layers: list[Document], types: list[str]) -> None:
    """Draw what two devices have that run a layer together, and what they wait for; of some layers only, perhaps."""
    for layer in layers:
        if "paired_time" not in layer and draw(st.integers(1, 4)) > 1:
            work = _work(draw, figures, layer, types)
            for name in ("forward_collective_size", "backward_collective_size"):
                figures.seldom(work, name, figures.size, 2)
            layer["tensor"] = {"2": work}


def _host(draw: st.DrawFn, figures: _Figures) -> Document:
    """Draw a memory behind the devices."""
    host: Document = {"bandwidth": draw(st.integers(1, 5))}
    figures.seldom(host, "latency", figures.time, 3)
    figures.seldom(host, "delay", figures.time, 3)
    figures.seldom(host, "memory", figures.size, 4)
    return host


_OF_WORK = (
    *("forward_time", "backward_time", "weight_time", "output_size", "saved_size", "weight_saved_size"),
    *("gradient_size", "forward_workspace", "backward_workspace"),
)


def _cut(draw: st.DrawFn, figures: _Figures, layers: list[Document], types: list[str]) -> Document:
    """Draw slices of a sequence, each with times and sizes of its own, and the cut that they are."""
    cut = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    rows: list[Document] = []
    for number, size in enumerate(cut):
        works = [_work(draw, figures, layer, types) for layer in layers]
        for work in works:
            figures.seldom(work, "cache_gradient_size", figures.size, 2)
        rows.append({"tokens": size, "before": sum(cut[:number]), "layers": works})
    return {"length": sum(cut), "slices": rows, "cut": cut}


def _parts(draw: st.DrawFn, figures: _Figures, layers: list[Document], types: list[str]) -> Document:
    """Draw what halves and thirds of a micro-batch take."""
    sizes = draw(st.sampled_from([[3], [2], [3, 2]]))
    parts = [{"samples": size, "layers": [_work(draw, figures, layer, types) for layer in layers]} for size in sizes]
    return {"samples": 6, "parts": parts}


def _work(draw: st.DrawFn, figures: _Figures, layer: Document, types: list[str]) -> Document:
    """Draw other times and sizes for a layer, which the same types of devices can run."""
    other = _layer(draw, figures, 2 if "weight_time" in layer else 1, [])
    work = {key: other.get(key, 0) for key in _OF_WORK if key in layer or key in other}
    for key in _OF_WORK if types else ():
        if isinstance(layer.get(key), dict):
            work[key] = dict.fromkeys(layer[key], work[key])
    return work


def _layer(draw: st.DrawFn, figures: _Figures, split: int, types: list[str]) -> Document:
    def time() -> Any:
        by_type = types and draw(st.integers(0, 1)) == 1
        return {name: figures.time() for name in types} if by_type else figures.time()

    layer: Document = {"forward_time": time(), "backward_time": time()}
    figures.seldom(layer, "saved_size", figures.size, 1)
    figures.seldom(layer, "output_size", figures.size, 2)
    figures.seldom(layer, "gradient_size", figures.size, 6)
    figures.seldom(layer, "forward_workspace", figures.size)
    figures.seldom(layer, "backward_workspace", figures.size)
    figures.seldom(layer, "parameter_size", figures.size, 2)
    figures.seldom(layer, "parameter_gradient_size", figures.size, 6)
    figures.seldom(layer, "optimizer_size", figures.size)
    if split == 2 or (split == 3 and draw(st.booleans())):
        layer["weight_time"] = figures.time(least=1)
        figures.seldom(layer, "weight_saved_size", figures.size, 2)
    return layer


def _skip(draw: st.DrawFn, layers: list[Document]) -> None:
    """Let some layers read the outputs of others than the one before."""
    if len(layers) < 3 or draw(st.integers(1, 3)) < 3:
        return
    for number, layer in enumerate(layers):
        layer["name"] = f"l{number}"
        earlier = [f"l{k}" for k in range(number - 1)]
        if not earlier or draw(st.integers(0, 1)):
            continue
        named = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=2, unique=True))
        layer["reads"] = ["previous", *named] if draw(st.integers(0, 1)) else [*named, "previous"]
    if draw(st.booleans()):
        _branch(draw, layers)


def _branch(draw: st.DrawFn, layers: list[Document]) -> None:
    """Let some layers not read the one before, where another one does."""
    for layer in layers[1:]:
        if draw(st.booleans()):
            layer["reads"] = [name for name in layer.get("reads", ["previous"]) if name != "previous"]
    for number, following in enumerate(layers[1:]):
        read = {name for layer in layers for name in layer.get("reads", ())}
        if "previous" not in following.get("reads", ["previous"]) and f"l{number}" not in read:
            following["reads"] = [*following["reads"], "previous"]


def _paired_time(layer: Document, types: list[str], share: int) -> Any:
    """Return the time of forward and backward at once: the least, the sum, or between."""

    def between(of_type: str) -> int | float:
        given = (layer["forward_time"], layer["backward_time"], layer.get("weight_time", 0))
        forward, backward, weight = (time[of_type] if isinstance(time, dict) else time for time in given)
        more: int | float = min(forward, backward)
        together: int | float = weight + max(forward, backward) + (0, more // 2, more)[share]
        return together

    return {name: between(name) for name in types} if types else between("")


# --- joins ------------------------------------------------------------------------------------------------------------


@st.composite
def joins(draw: st.DrawFn, *, largest: int = 5, plain: bool = False, exact: bool = False) -> Document:
    """Draw a `join` document: up to three chains, some of them equal.

    Parameters
    ----------
    largest : int
        Most stages of all chains, repeats counted.
    plain : bool
        One memory, nothing in place, each backward reads input, output and saved value.
    exact : bool
        Integer times and unscaled sizes.
    """
    figures = _Figures(draw, exact=exact)
    document = _head(draw, "join") | {"schema": "remat.instance/3"}
    count = draw(st.sampled_from([1, 2, 2, 2, 3])) if largest > 2 else draw(st.integers(1, largest))
    most = largest // count
    chains = []
    for _ in range(count):
        stages = [_stage(draw, figures, plain=plain) for _ in range(draw(st.integers(1, most)))]
        chains.append({"input_size": figures.size(), "stages": stages})
    if draw(st.integers(1, 3)) == 3:
        chains = [chains[0]] * count
    document["chains"] = chains
    figures.seldom(document, "loss", lambda: {"time": figures.time(), "workspace": figures.size()})
    figures.seldom(document, "input_gradient", lambda: False)
    figures.seldom(document, "static_memory", figures.size)
    if not plain:
        figures.seldom(document, "in_place", lambda: True, 6)
        figures.seldom(document, "backward_reads", lambda: draw(_READS), 3)
        figures.seldom(document, "machine", lambda: draw(machines()), 10)
    return document


def documents(kind: str) -> DocumentStrategy:
    """Return the strategy for documents of a kind."""
    match kind:
        case "chain":
            return chains(parameters=True)
        case "adjoint":
            return st.one_of(adjoints(machine=True), adjoints(taped=True, machine=True))
        case "dag":
            return dags()
        case "tree":
            return trees()
        case "pipeline":
            return pipelines(cuts=True, tensor=True)
        case "join":
            return joins()
    raise ValueError(f"there is no kind {kind!r}")
