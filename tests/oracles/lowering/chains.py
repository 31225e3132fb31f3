"""Lower chains, with parameters and ranks, and joins of chains."""

import math
import re
from dataclasses import replace
from fractions import Fraction

from .records import Graph, Task, ratio


def lower_chain(document, on):
    first = on.first
    stages = []
    for given in document["stages"]:
        stage = {
            "forward_time": given["forward_time"],
            "saving_time": given.get("saving_forward_time", given["forward_time"]),
            "backward_time": given["backward_time"],
            "output_size": given["output_size"],
            "saved_size": given.get("saved_size", 0),
            "gradient_size": given.get("gradient_size", given["output_size"]),
            "forward_workspace": given.get("forward_workspace", 0),
            "saving_workspace": given.get("saving_workspace", given.get("forward_workspace", 0)),
            "backward_workspace": given.get("backward_workspace", 0),
            "backward_reads": given.get("backward_reads", document.get("backward_reads", ["input", "output", "saved"])),
        }
        if given.get("variants"):
            own = {"saving_forward_time": "saving_time"}
            named = [{own.get(key, key): value for key, value in v.items()} for v in given["variants"]]
            stage["variants"] = [stage | variant for variant in named]
        stage["parameters"] = _parameters(given)
        stages += [stage] * given.get("repeat", 1)
    loss = document.get("loss") or {}
    input_size = document["input_size"]
    graph = chain_graph(
        stages=stages,
        input_size=input_size,
        input_gradient_size=input_size if document.get("input_gradient", True) else 0,
        loss=Task(loss.get("time", 0), (f"x{len(stages)}",), (f"y{len(stages)}",), loss.get("workspace", 0), once=True),
        in_place=document.get("in_place", False),
        saving=True,
        inputs=[("x0", first)],
        first=first,
        static=document.get("static_memory", 0),
    )
    return replace(_train(graph, document, stages, on), ratios=_ratios(document, graph))


def _ratios(document, graph):
    """Return the shares of x and s that a link sends, where the document gives them."""
    found, stages = {"x0": document.get("input_ratio")}, []
    for given in document["stages"]:
        stages += [given] * given.get("repeat", 1)
    for i, given in enumerate(stages, 1):
        found[f"x{i}"] = given.get("output_ratio")
        saved = [name for name in graph.values if re.fullmatch(rf"s{i}(\.\d+)?", name)]
        found |= dict.fromkeys(saved, given.get("saved_ratio"))
    return {name: share for name, share in found.items() if share is not None}


def _parameters(stage):
    """Return the inputs of a stage's update, or None for a stage without one."""
    size, state = stage.get("parameter_size", 0), stage.get("optimizer_size", 0)
    if size == state == 0:
        return None
    gradient = stage.get("parameter_gradient_size")
    gradient = size if gradient is None else gradient
    bucket = stage.get("bucket_size")
    return {
        "size": size,
        "gradient": gradient,
        "state": state,
        "time": stage.get("update_time", 0),
        "bucket": gradient if bucket is None else bucket,
        "workspace": bucket or 0,
    }


def _train(graph, document, stages, on):
    """Add parameters and their updates to a chain, as one of several ranks has them."""
    first = on.first
    tasks, values, inputs, outputs = dict(graph.tasks), dict(graph.values), list(graph.inputs), list(graph.outputs)
    at = {"w": document.get("parameter_memory") or first, "o": document.get("optimizer_memory") or first}
    follows = {}
    ranks, zero, full = 1, 0, 0
    if document.get("sharding"):
        ranks, zero = document["sharding"]["data"], document["sharding"].get("zero", 0)
        full = document["sharding"].get("bucket", 0)
    exchanged = []
    for i, stage in enumerate(stages, 1):
        needs = stage["parameters"]
        if needs is None:
            continue
        size, gradient, state = needs["size"], needs["gradient"], needs["state"]
        shares = rank_shares({"w": size, "g": gradient, "o": state}, ranks, zero)
        for letter, bytes_ in (("w", size), ("o", state)):
            if bytes_ > 0:
                values |= {f"{letter}{i}": shares[letter], f"n{letter}{i}": shares[letter]}
                if at[letter] == "any" and "any" not in on.memories:
                    follows[f"{letter}{i}"] = f"n{letter}{i}"
                    continue
                inputs.append((f"{letter}{i}", at[letter]))
                outputs.append((f"n{letter}{i}", at[letter]))
        values[f"g{i}"] = shares["g"]
        used = f"f{i}" if zero == 3 else f"w{i}"
        reduced = ranks > 1 and (gradient > 0 or (zero > 1 and needs["bucket"] > 0))
        made = f"b{i}" if reduced and zero > 1 else f"g{i}"
        for name, task in list(tasks.items()):
            match = re.fullmatch(rf"(F|Fe|B){i}(\.\d+)?", name)
            if match and size > 0:
                task = replace(task, reads=(*task.reads, used))
            if match and match[1] == "B":
                room = task.workspace + (needs["workspace"] if made == f"g{i}" else 0)
                task = replace(task, writes=(*task.writes, made), workspace=room)
            tasks[name] = task
        if reduced:
            values |= {f"b{i}": needs["bucket"]} if zero > 1 else {f"r{i}": 0}
            exchanged.append((i, needs["bucket"] if zero > 1 else gradient))
        reads = {f"g{i}"}
        reads |= {f"o{i}"} if state > 0 else set()
        reads |= {f"r{i}"} if reduced and zero < 2 else set()
        if size > 0 and not (document.get("master_copy", False) and state > 0):
            reads.add(f"w{i}")
        new = [f"no{i}"] if state > 0 else []
        if size > 0 and zero in (1, 2):
            values[f"p{i}"] = -(-size // ranks)
            new.append(f"p{i}")
            tasks[f"P{i}"] = around(on, ranks, size, [f"p{i}"], [f"nw{i}"])
        elif size > 0:
            new.append(f"nw{i}")
        if size > 0 and zero == 3:
            values[f"f{i}"] = size
            gather = around(on, ranks, size, [f"w{i}"], [f"f{i}"])
            tasks[f"P{i}"] = replace(gather, once=False, required=False)
        time = ratio(needs["time"], ranks) if zero else needs["time"]
        tasks[f"U{i}"] = Task(time, tuple(sorted(reads)), tuple(new), in_place=True, once=True)
    while exchanged:
        together = [exchanged.pop()]
        while exchanged and sum(bytes_ for _, bytes_ in together) < full:
            together.append(exchanged.pop())
        size = sum(bytes_ for _, bytes_ in together)
        pair = ("b", "g") if zero > 1 else ("g", "r")
        reads, made = ([f"{letter}{i}" for i, _ in together] for letter in pair)
        tasks[f"A{together[-1][0]}"] = around(on, ranks, size, reads, made, twice=zero == 0)
    free = frozenset(follows)
    return Graph(tasks, values, inputs, graph.pinned, outputs, graph.static, free, follows=follows)


def of_layer(layer):
    """Return the bytes of a layer's parameters, their gradients and the optimizer's states."""
    size, gradient = layer.get("parameter_size", 0), layer.get("parameter_gradient_size")
    return {"w": size, "g": size if gradient is None else gradient, "o": layer.get("optimizer_size", 0)}


def rank_shares(sizes, ranks, zero, but=""):
    """Return one rank's bytes of a stage; the sharded part is rounded up as one string of bytes."""
    shared = [letter for since, letter in ((3, "w"), (2, "g"), (1, "o")) if zero >= since and letter != but]
    found, before = dict(sizes), 0
    for letter in shared:
        until = before + sizes[letter]
        found[letter] = math.ceil(Fraction(until, ranks)) - math.ceil(Fraction(before, ranks))
        before = until
    return found


def around(on, ranks, size, reads, made, twice=False, place=None):
    """Return a collective as one of so many ranks sees it: ranks - 1 rounds, or twice as many."""
    place = place or next(iter(on.processors.values()))
    link = on.link(place, place)
    rounds = (ranks - 1) * (2 if twice else 1)
    time = 0 if link is None else link.latency + link.delay
    if link is not None and link.bandwidth is not None:
        time += ratio(size, ranks * link.bandwidth)
    parts = ((tuple(reads), tuple(made), place),)
    sent = math.ceil(Fraction(size * (ranks - 1), ranks)) * (2 if twice else 1)
    return Task(rounds * time, tuple(reads), tuple(made), once=True, parts=parts, sent=sent)


def chain_graph(*, stages, input_size, input_gradient_size, loss, in_place, saving, inputs, first, static):
    """Build F, Fe, B and loss over x, s and y; `saving` says whether Fe and s exist."""
    values, tasks = {"x0": input_size}, {}
    for i, stage in enumerate(stages, 1):
        values[f"x{i}"] = stage["output_size"]
        tasks[f"F{i}"] = Task(
            stage["forward_time"],
            (f"x{i - 1}",),
            (f"x{i}",),
            stage["forward_workspace"],
            in_place=in_place,
            required=False,
        )
        for dot, way in _ways(stage) if saving else []:
            values[f"s{i}{dot}"] = way["saved_size"]
            tasks[f"Fe{i}{dot}"] = Task(
                way["saving_time"],
                (f"x{i - 1}",),
                (f"x{i}", f"s{i}{dot}"),
                way["saving_workspace"],
                in_place=in_place,
                required=False,
            )
    tasks["loss"] = Task(loss.time, loss.reads, loss.writes, loss.workspace, in_place=in_place, once=True)
    values["y0"] = input_gradient_size
    for i, stage in reversed(list(enumerate(stages, 1))):
        values[f"y{i}"] = stage["gradient_size"]
        for dot, way in _ways(stage):
            named = {"input": f"x{i - 1}", "output": f"x{i}", "saved": f"s{i}{dot}"}
            reads = [f"y{i}"] + [named[kind] for kind in named if kind in way["backward_reads"]]
            tasks[f"B{i}{dot}"] = Task(
                way["backward_time"],
                tuple(reads),
                (f"y{i - 1}",),
                way["backward_workspace"],
                in_place=in_place,
                required=not dot,
                recomputable=not dot,
                once=not dot,
            )
    return Graph(tasks, values, inputs, frozenset(), [("y0", first)], static)


def _ways(stage):
    """Return (suffix of the names, figures) of each variant of a stage; a single variant has no suffix."""
    variants = stage.get("variants") or [stage]
    if len(variants) == 1:
        return [("", variants[0])]
    return [(f".{number}", variant) for number, variant in enumerate(variants, 1)]


def lower_join(document, on):
    """Lower each chain separately, number its names, and replace the losses by a single one."""
    shared = {key: document[key] for key in ("in_place", "backward_reads", "input_gradient") if key in document}
    values, inputs, outputs, forwards, backwards, ratios = {}, [], [], {}, {}, {}
    loss = document.get("loss") or {}
    reads, writes = [], []
    for j, chain in enumerate(document["chains"], 1):
        graph = lower_chain(chain | shared | {"kind": "chain"}, on)

        def numbered(name, j=j):
            letters = name.rstrip("0123456789.")
            return f"{letters}{j}.{name[len(letters) :]}"

        values |= {numbered(name): size for name, size in graph.values.items()}
        ratios |= {numbered(name): share for name, share in graph.ratios.items()}
        inputs += [(numbered(name), memory) for name, memory in graph.inputs]
        outputs += [(numbered(name), memory) for name, memory in graph.outputs]
        for name, task in graph.tasks.items():
            read, written = tuple(map(numbered, task.reads)), tuple(map(numbered, task.writes))
            if name == "loss":
                reads += read
                writes += written
                continue
            part = backwards if name.startswith("B") else forwards
            part[numbered(name)] = replace(task, reads=read, writes=written)
    met = Task(loss.get("time", 0), tuple(reads), tuple(writes), loss.get("workspace", 0))
    met = replace(met, in_place=document.get("in_place", False), once=True)
    tasks = forwards | {"loss": met} | backwards
    return Graph(tasks, values, inputs, frozenset(), outputs, document.get("static_memory", 0), ratios=ratios)
