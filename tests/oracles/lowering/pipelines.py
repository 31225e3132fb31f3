"""Lower pipelines: layers and micro-batches, parts of micro-batches, and slices of sequences."""

import math
from dataclasses import replace
from fractions import Fraction

from .chains import of_layer, rank_shares
from .records import Graph, Task


def lower_pipeline(document, on, degrees):
    layers = [given for given in document["layers"] for _ in range(given.get("repeat", 1))]
    values, tasks, placeable = {}, {}, []
    edges = _edges(document["layers"])
    for number, layer in enumerate(layers, 1):
        sizes = of_layer(layer)
        shares = sizes
        if document.get("sharding"):
            zero, keep = document["sharding"].get("zero", 0), document["sharding"].get("keep", False)
            shares = rank_shares(sizes, document["sharding"]["data"], zero, "g" if keep else "")
        there = {f"{letter}{number}": shares[letter] for letter in "wgo" if sizes[letter] > 0}
        values |= there
        placeable += there
        if document.get("sharding") and (zero < 2 or keep) and layer.get("bucket_size"):
            layers[number - 1] = layer | {
                "backward_workspace": layer.get("backward_workspace", 0) + layer["bucket_size"]
            }
    cut = (document.get("tokens") or {}).get("cut")
    degrees = degrees or [1] * len(layers)
    for batch in range(document["micro_batches"] if max(degrees) > 1 else 0):
        for number, layer in enumerate(layers, 1):
            own = layer if degrees[number - 1] == 1 else _shared(document, number, degrees[number - 1])
            for part in range(degrees[number - 1]):
                made, done = _lower_layer(document, own, (number, edges), batch, on, (part, degrees))
                values |= made
                tasks |= {
                    name: replace(task, reads=tuple(v for v in task.reads if v[0] not in "wg" or v in placeable))
                    for name, task in done.items()
                }
    for batch in range(document["micro_batches"] if max(degrees) == 1 else 0):
        for number, layer in enumerate(layers if cut is None else _sliced(document, batch), 1):
            made, done = _lower_layer(document, layer, (number, edges), batch, on)
            if cut is not None:
                _chain_slices(made, done, layer, (number, batch), len(cut))
            values |= made
            tasks |= {
                name: replace(task, reads=tuple(v for v in task.reads if v[0] not in "wg" or v in placeable))
                for name, task in done.items()
            }
    return Graph(
        tasks,
        values,
        static=document.get("static_memory", 0),
        placeable=frozenset(placeable),
        copies=document.get("copies", 1),
    )


def lower_inference(document, on):
    """Return the graph of one micro-batch that only goes forwards."""
    layers = [given for given in document["layers"] for _ in range(given.get("repeat", 1))]
    edges = _edges(document["layers"])
    values, tasks, placeable = {}, {}, set()
    for number, layer in enumerate(layers, 1):
        values[f"x{number}"] = layer.get("output_size", 0)
        reads = [f"x{source}" for source, reader in edges if reader == number]
        if layer.get("parameter_size"):
            values[f"w{number}"] = layer["parameter_size"]
            placeable.add(f"w{number}")
            reads.append(f"w{number}")
        given = layer["forward_time"]
        by_type = given if isinstance(given, dict) else None
        least = min(given[kind] for kind in on.types.values() if kind in given) if by_type else given
        workspace = layer.get("forward_workspace", 0)
        tasks[f"F{number}"] = Task(least, tuple(reads), (f"x{number}",), workspace, times=by_type)
    return Graph(tasks, values, placeable=frozenset(placeable), copies=document.get("copies", 1))


WORK = (
    *("forward_time", "backward_time", "weight_time", "output_size", "saved_size", "weight_saved_size"),
    *("gradient_size", "forward_workspace", "backward_workspace", "cache_gradient_size"),
)


def _shared(document, number, degree):
    """Return a layer with the times and sizes of one of so many parts of a micro-batch."""
    (row,) = [part for part in document["parts"] if part["samples"] * degree == document["samples"]]
    index = [k for k, layer in enumerate(document["layers"]) for _ in range(layer.get("repeat", 1))][number - 1]
    layer = document["layers"][index]
    return {key: value for key, value in layer.items() if key not in (*WORK, "paired_time")} | row["layers"][index]


def _pieces(size, degrees, ends, batch, mine):
    """Cut the value that the first layer passes to others into pieces for each micro-batch.

    Returns the numbers of the pieces that the part `mine` = (part, of) of a layer has, and the sizes of all those that
    one part of the first layer makes.
    """
    every = math.lcm(*(degrees[layer - 1] for layer in ends))
    each = every // degrees[ends[0] - 1]
    part, of = mine
    numbers = [
        batch * every + k
        for k in range(every)
        if Fraction(part, of) <= Fraction(k, every) and Fraction(k + 1, every) <= Fraction(part + 1, of)
    ]
    return numbers, [size // each + (1 if k < size % each else 0) for k in range(each)]


def _sliced(document, batch):
    """Return the layers, repeats one by one, with the times and sizes of the slice that a micro-batch is."""
    tokens, number = document["tokens"], batch % len(document["tokens"]["cut"])
    size, before = tokens["cut"][number], sum(tokens["cut"][:number])
    (row,) = [one for one in tokens["slices"] if one["tokens"] == size and one.get("before", 0) == before]
    found = []
    for layer, work in zip(document["layers"], row["layers"], strict=True):
        kept = {key: value for key, value in layer.items() if key not in WORK and key != "paired_time"}
        found += [kept | work] * layer.get("repeat", 1)
    return found


def _chain_slices(values, tasks, layer, place, slices):
    """Let a slice's tasks of a layer read those of others of its sequence, as docs/reference/pipelines.md says."""
    number, batch = place
    mine, first, last = batch % slices, batch - batch % slices, slices - 1
    fore, back = f"Fe{number}.{batch}", f"B{number}.{batch}"
    earlier = tuple(f"s{number}.{first + j}" for j in range(mine))
    sums = tuple(f"c{number}.{first + j}" for j in range(min(mine + 1, last)))
    tasks[fore] = replace(tasks[fore], reads=(*tasks[fore].reads, *earlier))
    reads, writes = (*tasks[back].reads, *earlier), tasks[back].writes
    if mine < last:
        values[f"c{number}.{batch}"] = layer.get("cache_gradient_size", 0)
        reads += (*sums, f"q{number}.{batch + 1}")
    else:
        writes += sums
    if mine > 0:
        values[f"q{number}.{batch}"] = 0
        writes += (f"q{number}.{batch}",)
    tasks[back] = replace(tasks[back], reads=reads, writes=writes)


def _edges(layers):
    """Return (layer, one that reads its output) for all layers, counted from 1, repeats one by one."""
    edges, named, number = [], {}, 0
    for layer in layers:
        read = layer.get("reads", ["previous"])
        edges += [(number if name == "previous" else named[name], number + 1) for name in read]
        count = layer.get("repeat", 1)
        edges += [(number + k, number + k + 1) for k in range(1, count)]
        number += count
        named[layer.get("name")] = number
    return [edge for edge in edges if edge[0] > 0]


def _lower_layer(document, layer, place, batch, on, shared=None):
    """Return values and tasks of one layer and micro-batch, or of one part of it: `shared` = (part, degrees)."""
    number, edges = place
    part, degrees = shared or (0, [1] * max([number, *(reader for _, reader in edges)]))
    mine = (part, degrees[number - 1])

    def name(letter):
        return f"{letter}{number}.{batch * mine[1] + part}"

    weight = layer.get("weight_time", 0)
    halves = weight != 0
    saved, kept = layer.get("saved_size", 0), layer.get("weight_saved_size", 0)
    both = min(saved, kept) if halves else 0
    values = {name("s"): saved - both}
    if halves:
        values |= {name("v"): both, name("e"): kept - both}

    def out(own, size=0):
        ends = [own, *(reader for source, reader in edges if source == own)]
        numbers, sizes = _pieces(size, degrees, ends, batch, mine)
        return [f"x{own}.{k}" for k in numbers], sizes

    def back(edge, size=0):
        own, reader = edge
        numbers, sizes = _pieces(size, degrees, edge, batch, mine)
        return [f"y{own}.{k}" if reader == own + 1 else f"y{own}.{reader}.{k}" for k in numbers], sizes

    outputs, sizes = out(number, layer.get("output_size", 0))
    values |= dict(zip(outputs, sizes, strict=True))
    gradient = layer.get("gradient_size")
    given_back = []  # not for the last layer: the loss belongs to it
    for edge in edges:
        if edge[0] == number:
            names, sizes = back(edge, layer.get("output_size", 0) if gradient is None else gradient)
            values |= dict(zip(names, sizes, strict=True))
            given_back += names

    entry = [value for own, reader in edges if reader == number for value in out(own)[0]]
    leave = [value for edge in edges if edge[1] == number for value in back(edge)[0]]
    extra = layer.get("backward_reads")
    extra = document.get("backward_reads") if extra is None else extra
    extra = ["input", "output"] if extra is None else extra
    reads = [name("s"), f"w{number}"]
    reads += [name("v")] if halves else [f"g{number}"]
    reads += given_back
    reads += entry if "input" in extra else []
    reads += outputs if "output" in extra else []
    writes = [*outputs, name("s"), *([name("v")] if halves else [])]
    leave += [name("e")] if halves else []

    tasks = {
        name("Fe"): Task(0, (*entry, f"w{number}"), tuple(writes), layer.get("forward_workspace", 0), required=False),
        name("B"): Task(0, tuple(reads), tuple(leave), layer.get("backward_workspace", 0), once=True),
    }
    tasks[name("Fe")] = replace(tasks[name("Fe")], side="forward")
    tasks[name("B")] = replace(tasks[name("B")], side="backward")
    given = {name("Fe"): layer["forward_time"], name("B"): layer["backward_time"]}
    if halves:
        tasks[name("W")] = Task(
            0, (name("v"), name("e"), f"g{number}"), workspace=layer.get("backward_workspace", 0), once=True
        )
        given[name("W")] = weight
    able = set(on.types.values())
    together = layer.get("paired_time")
    if together is not None:
        spared = {}
        for kind in able:
            whole = [layer["forward_time"], layer["backward_time"], weight, together]
            *apart, at_once = [time.get(kind) if isinstance(time, dict) else time for time in whole]
            if at_once is not None and None not in apart:
                spared[kind] = max(0, sum(apart) - at_once)
        tasks[name("Fe")] = replace(tasks[name("Fe")], spared=spared)
        tasks[name("B")] = replace(tasks[name("B")], spared=spared)
    for time in (layer["forward_time"], layer["backward_time"], weight):
        able &= set(time) if isinstance(time, dict) else able
    for task, time in given.items():
        by_type = {kind: time[kind] if isinstance(time, dict) else time for kind in able}
        least = min(by_type.values(), default=0)
        typed = any(isinstance(other, dict) for other in (layer["forward_time"], layer["backward_time"], weight))
        tasks[task] = replace(tasks[task], time=least, times=by_type if typed else None)
    return values, tasks
