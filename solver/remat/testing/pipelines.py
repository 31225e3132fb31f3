"""Hypothesis strategies for small pipelines: see `strategies`."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from remat.testing.figures import READS, Document, Figures, head


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
        Maximum number of layers, and of micro-batches.
    exact : bool
        Integer times and unscaled sizes.
    streams : bool
        Some as streams, with weights that change while micro-batches are in flight.
    cuts : bool
        Some with sequences cut into slices, or with parts of micro-batches.
    tensor : bool
        Some with layers that two devices may run together.
    """
    figures = Figures(draw, exact=exact)
    document = head(draw, "pipeline") | {"schema": "remat.instance/3"}
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
        document["weights"] = draw(st.sampled_from(["stash", "double", "single", "predicted"]))
        if document["weights"] == "double":
            document["update_every"] = draw(st.integers(1, largest))
        if document["weights"] in ("single", "predicted"):
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
    figures.seldom(document, "backward_reads", lambda: draw(READS), 4)
    if tensor and not document.keys() & {"weights", "tokens", "parts"} and draw(st.integers(1, 4)) == 4:
        _let_share(draw, figures, layers, types)
    return document


def _let_share(draw: st.DrawFn, figures: Figures, layers: list[Document], types: list[str]) -> None:
    """Draw the tensor-parallel figures and waits of two devices for all or some layers."""
    for layer in layers:
        if "paired_time" not in layer and draw(st.integers(1, 4)) > 1:
            work = _work(draw, figures, layer, types)
            for name in ("forward_collective_size", "backward_collective_size"):
                figures.seldom(work, name, figures.size, 2)
            layer["tensor"] = {"2": work}


def _host(draw: st.DrawFn, figures: Figures) -> Document:
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


def _cut(draw: st.DrawFn, figures: Figures, layers: list[Document], types: list[str]) -> Document:
    """Draw slices of a sequence with separate times and sizes, and their cut."""
    cut = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    rows: list[Document] = []
    for number, size in enumerate(cut):
        works = [_work(draw, figures, layer, types) for layer in layers]
        for work in works:
            figures.seldom(work, "cache_gradient_size", figures.size, 2)
        rows.append({"tokens": size, "before": sum(cut[:number]), "layers": works})
    return {"length": sum(cut), "slices": rows, "cut": cut}


def _parts(draw: st.DrawFn, figures: Figures, layers: list[Document], types: list[str]) -> Document:
    """Draw times and sizes of halves and thirds of a micro-batch."""
    sizes = draw(st.sampled_from([[3], [2], [3, 2]]))
    parts = [{"samples": size, "layers": [_work(draw, figures, layer, types) for layer in layers]} for size in sizes]
    return {"samples": 6, "parts": parts}


def _work(draw: st.DrawFn, figures: Figures, layer: Document, types: list[str]) -> Document:
    """Draw other times and sizes for a layer, which the same types of devices can run."""
    other = _layer(draw, figures, 2 if "weight_time" in layer else 1, [])
    work = {key: other.get(key, 0) for key in _OF_WORK if key in layer or key in other}
    for key in _OF_WORK if types else ():
        if isinstance(layer.get(key), dict):
            work[key] = dict.fromkeys(layer[key], work[key])
    return work


def _layer(draw: st.DrawFn, figures: Figures, split: int, types: list[str]) -> Document:
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
    """Let some layers read outputs of layers other than the previous one."""
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
    """Let some layers skip the previous layer's output if another layer reads it."""
    for layer in layers[1:]:
        if draw(st.booleans()):
            layer["reads"] = [name for name in layer.get("reads", ["previous"]) if name != "previous"]
    for number, following in enumerate(layers[1:]):
        read = {name for layer in layers for name in layer.get("reads", ())}
        if "previous" not in following.get("reads", ["previous"]) and f"l{number}" not in read:
            following["reads"] = [*following["reads"], "previous"]


def _paired_time(layer: Document, types: list[str], share: int) -> Any:
    """Return the time of a simultaneous forward and backward: the minimum, the sum, or a value between."""

    def between(of_type: str) -> int | float:
        given = (layer["forward_time"], layer["backward_time"], layer.get("weight_time", 0))
        forward, backward, weight = (time[of_type] if isinstance(time, dict) else time for time in given)
        more: int | float = min(forward, backward)
        together: int | float = weight + max(forward, backward) + (0, more // 2, more)[share]
        return together

    return {name: between(name) for name in types} if types else between("")
