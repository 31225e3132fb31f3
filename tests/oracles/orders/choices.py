"""The choices of a plan for an instance with open decisions."""

from tests.oracles.lowering import WORK, ratio

from .operations import layers_of


def divided(document, schedule):
    """Return the instance with the micro-batches that a schedule chooses, or the slices of sequences.

    Other sizes of micro-batches than the chosen one are parts of it, if they are smaller.
    """
    if not isinstance(schedule, dict):
        return document
    if schedule.get("samples") is not None and schedule["samples"] != document["samples"]:
        chosen, every = schedule["samples"], document["samples"] * document["micro_batches"]
        document = _of_size(document, chosen) | {"micro_batches": every // chosen}
    elif document.get("sizes"):
        document = _of_size(document, document["samples"])
    if schedule.get("cut") is not None and document["tokens"].get("cut") is None:
        cut = schedule["cut"]
        tokens, batches = document["tokens"] | {"cut": cut}, document["micro_batches"] * len(cut)
        document = document | {"tokens": tokens, "micro_batches": batches}
    return document


def _of_size(document, samples):
    own = [{key: layer[key] for key in (*WORK, "paired_time") if key in layer} for layer in document["layers"]]
    rows = {document["samples"]: own} | {row["samples"]: row["layers"] for row in document["sizes"]}
    layers = [
        {key: value for key, value in layer.items() if key not in (*WORK, "paired_time")} | work
        for layer, work in zip(document["layers"], rows[samples], strict=True)
    ]
    parts = [{"samples": less, "layers": works} for less, works in rows.items() if less < samples]
    parts += document.get("parts") or []
    return document | {"layers": layers, "samples": samples, "sizes": None, "parts": parts}


def degrees_of(document, schedule):
    """Return, for each layer, how many devices share every micro-batch; None if no stage has a `part`."""
    given = schedule.get("stages") if isinstance(schedule, dict) else None
    if not given or all("part" not in stage for stage in given):
        return None
    count = sum(layer.get("repeat", 1) for layer in document["layers"])
    of = {layer: stage.get("part", [1, 1])[1] for stage in given for layer in layers_of(stage["layers"])}
    return [of.get(layer, 1) for layer in range(1, count + 1)]


GROUPED = (
    *("forward_time", "backward_time", "weight_time", "paired_time", "output_size", "saved_size", "weight_saved_size"),
    *("gradient_size", "forward_workspace", "backward_workspace", "parameter_size", "parameter_gradient_size"),
    *("optimizer_size", "update_time", "tensor"),
)


def in_groups(document, machine, schedule):
    """Return the instance as seen by devices that share stages, and a map from each device to the one that it mirrors.

    A layer's time includes the ring that adds up the bytes in the entry. The ring has 2 (t - 1) rounds; each lasts as
    long as the slowest link between neighbours takes for a t-th of the bytes.
    """
    given = schedule.get("stages") if isinstance(schedule, dict) else None
    groups = [stage for stage in given or () if stage.get("tensor", 1) > 1]
    if not groups:
        return document, {}
    names, follows, layers = list(machine.processors), {}, []
    for layer in document["layers"]:
        layers += [{**layer, "repeat": 1} for _ in range(layer.get("repeat", 1))]
    for stage in groups:
        count, first = stage["tensor"], names.index(stage["device"])
        own = names[first : first + count]
        follows |= dict.fromkeys(own[1:], own[0])
        ring = [machine.link(one, other) for one, other in zip(own, [*own[1:], own[0]], strict=True)]
        for number in layers_of(stage["layers"]):
            layer = layers[number - 1]
            if "tensor" not in layer:  # on another group of these, too
                continue
            work = dict(layer["tensor"][str(count)])
            for phase in ("forward", "backward"):
                size = work.pop(f"{phase}_collective_size", 0)
                rounds = [r.latency + r.delay + (ratio(size, count * r.bandwidth) if r.bandwidth else 0) for r in ring]
                time, wait = work[f"{phase}_time"], 2 * (count - 1) * max(rounds)
                later = {kind: one + wait for kind, one in time.items()} if isinstance(time, dict) else time + wait
                work[f"{phase}_time"] = later
            layers[number - 1] = {key: value for key, value in layer.items() if key not in GROUPED} | work
    return document | {"layers": layers}, follows
