"""Legal plans for a drawn pipeline: stages, and one order a device; and both judges of them."""

import json

from remat.schedule.steps import StepKind
from remat.schedule.writing import step_lines
from remat.solving.verifying import examine
from tests.oracles import lowering, orders, referee
from tests.verifier.judges import close

SCHEMA = "remat.schedule/2"


def limited(chance, document):
    """Return the document with some layers that only one of its types of devices can run."""
    entries = document["cluster"]["devices"]
    types = [entry.get("type", entry["name"]) for entry in entries]
    drawn = [(chance.choice(types), chance.random() < 0.4 and len(types) > 1) for _ in document["layers"]]

    def bound(works):
        pairs = zip(works, drawn, strict=True)
        return [work | (_on(work, kind) if cut else {}) for work, (kind, cut) in pairs]

    found = document | {"layers": bound(document["layers"])}
    if "parts" in document:
        found["parts"] = [part | {"layers": bound(part["layers"])} for part in document["parts"]]
    if "tokens" in document:
        rows = [row | {"layers": bound(row["layers"])} for row in document["tokens"]["slices"]]
        found["tokens"] = document["tokens"] | {"slices": rows}
    return found


def _on(work, kind):
    """Return what makes that only one type of device can run a work, and groups of it."""
    own = {"backward_time": {kind: _time(work["backward_time"], kind)}}
    if "tensor" in work:
        own["tensor"] = {count: group | _on(group, kind) for count, group in work["tensor"].items()}
    return own


def spread(chance, document):
    """Return the document with two of everything at least, and transfers that take time, and arrive later still."""
    entries = [entry | {"count": max(2, entry.get("count", 1))} for entry in document["cluster"]["devices"]]
    times = [layer["forward_time"] for layer in document["layers"]]
    times = [time for given in times for time in (given.values() if isinstance(given, dict) else [given])]
    names = [entry["name"] for entry in entries]
    if len(names) == 1 and chance.random() < 0.4:
        entries.append({"name": "other"})
    layers = document["layers"]
    if len(layers) == 1:
        layers = [layers[0] | {"repeat": max(2, layers[0].get("repeat", 1))}]
    level = {key: chance.choice(times) for key in ("latency", "delay") if chance.random() < 0.7}
    cluster = {"devices": entries, "levels": [level]}
    batches = max(2, document["micro_batches"])
    return document | {"layers": layers, "micro_batches": batches, "cluster": cluster}


def _time(time, kind):
    return time[kind] if isinstance(time, dict) else time


def draw_plan(chance, document, *, pairs=True):
    """Return `stages` and `orders` that can be run: some layers on several devices, some stages in pieces.

    `pairs`: some devices run a forward and a backward at once.

    An operation reads only results of operations drawn before it, which rules out deadlock.
    """
    on = lowering.machine(document)
    graph = lowering.lower(document, on)
    count = max(int(name[2:].split(".")[0]) for name in graph.tasks if name.startswith("Fe"))
    whole = []
    _cover(chance, (1, count), _able(graph, on), whole)
    stages = []
    for first, last, home in whole:
        stages += _shared(chance, document, (first, last), home, sorted(_able(graph, on)(first, last)))
    for first, last, _, _, of in list(stages):
        homes = {stage[2] for stage in stages if stage[0] <= last and first <= stage[1]}
        free = sorted(_able(graph, on)(first, last) - homes)
        if document.get("copies", 1) > len(homes) and free and chance.random() < 0.6:
            stages.append((first, last, chance.choice(free), chance.randint(1, of), of))
    chance.shuffle(stages)
    shown = [
        {"layers": _layers_shown(chance, first, last), "device": device} | ({"part": [part, of]} if of > 1 else {})
        for first, last, device, part, of in stages
    ]
    graph = lowering.lower(document, on, orders.degrees_of(document, {"stages": shown}))
    listed = _operations(chance, document, graph, stages)
    return {"schema": SCHEMA, "stages": shown, "orders": _linear(chance, graph, stages, listed, pairs=pairs)}


def _shared(chance, document, layers, home, able):
    """Return a stage as it is, or one for each part of its micro-batches, on as many devices as copies allow."""
    degrees = [1, *(document["samples"] // part["samples"] for part in document.get("parts", ()))]
    degree = chance.choice(degrees)
    homes = chance.sample(able, min(len(able), document.get("copies", 1), degree)) if degree > 1 else [home]
    return [(*layers, homes[k % len(homes)], k + 1, degree) for k in range(degree)]


def _able(graph, on):
    def able(first, last):
        tasks = [graph.tasks[f"Fe{layer}.0"] for layer in range(first, last + 1)]
        return {name for name, kind in on.types.items() if all(t.times is None or kind in t.times for t in tasks)}

    return able


def _cover(chance, layers, able, stages):
    """Cut layers into stages of any length, each on a device that can run it."""
    first, last = layers
    homes = sorted(able(first, last))
    if first < last and (not homes or chance.random() < 0.6):
        cut = chance.randint(first, last - 1)
        _cover(chance, (first, cut), able, stages)
        _cover(chance, (cut + 1, last), able, stages)
    else:
        stages.append((first, last, chance.choice(homes)))


def _layers_shown(chance, first, last):
    return chance.choice(({"from": first, "to": last}, list(range(first, last + 1))))


def _operations(chance, document, graph, stages):
    """Choose one of the stages with the same layers for each micro-batch and phase."""
    listed = []
    for batch in range(document["micro_batches"]):
        for first, last, part in sorted({(first, last, part) for first, last, _, part, _ in stages}):
            same = [index for index, stage in enumerate(stages) if (*stage[:2], stage[3]) == (first, last, part)]
            forward, backward, weight = (chance.choice(same) for _ in range(3))
            if chance.random() < 0.6:
                backward = weight = forward
            listed.append(("F", forward, batch))
            if not any(f"W{layer}.0" in graph.tasks for layer in range(first, last + 1)):
                listed.append(("B", backward, batch))
            elif chance.random() < 0.3:
                listed.append(("BW", backward, batch))
            else:
                listed += [("B", backward, batch), ("W", weight, batch)]
    return listed


def tasks_of(graph, stage, phase, batch):
    """Return the tasks of an operation on layers first .. last, of one part of the micro-batch."""
    first, last, _, part, of = stage
    kinds = {"F": ["Fe"], "BW": ["B", "W"]}.get(phase, [phase])
    names = [f"{kind}{layer}.{batch * of + part - 1}" for kind in kinds for layer in range(first, last + 1)]
    return [name for name in names if name in graph.tasks]


def _linear(chance, graph, stages, listed, *, pairs):
    """Put operations in a random order in which each follows what it reads, and deal them out to their devices."""
    makes, reads = {}, {}
    for operation in listed:
        tasks = tasks_of(graph, stages[operation[1]], operation[0], operation[2])
        makes |= {value: operation for name in tasks for value in graph.tasks[name].writes}
        reads[operation] = {value for name in tasks for value in graph.tasks[name].reads}
    needs = {op: {makes[value] for value in values if value in makes} - {op} for op, values in reads.items()}
    liking = chance.choice(({"F": 9}, {"B": 9, "BW": 9}, {"W": 9}, {}))  # eager forwards, eager backwards, ...
    orders_, done = {}, set()
    while len(done) < len(listed):
        ready = [op for op in listed if op not in done and needs[op] <= done]
        (chosen,) = chance.choices(ready, [liking.get(phase, 1) for phase, _, _ in ready])
        here = stages[chosen[1]][2]
        others = [op for op in ready if op[0] in ("B", "BW") and stages[op[1]][2] == here]
        pair = pairs and chosen[0] == "F" and others and chance.random() < 0.4
        both = [chosen, chance.choice(others)] if pair else [chosen]
        done.update(both)
        orders_.setdefault(here, []).append("&".join(f"{phase}{stage}.{batch}" for phase, stage, batch in both))
    return orders_


def played(document, plan):
    """Return the oracle's steps of a plan, as a document of steps."""
    on = lowering.machine(document)
    transfers = document["cluster"].get("transfers", "overlap")
    graph = lowering.lower(document, on, orders.degrees_of(document, plan))
    steps, initial, broken, _ = orders.steps_of(document, graph, on, plan, transfers)
    assert not broken, (document, plan, broken)
    return {"schema": SCHEMA, "initial": initial, "steps": steps}


def placed(document, plan):
    """Return the product's steps of a plan, as a document of steps."""
    found = examine(document, plan)
    assert found.report.ok, (document, plan, found.report.violations)
    steps = [json.loads(line) for line in step_lines(found.steps, found.graph, found.machine)]
    homes = {}
    for value, memory in found.steps.initial:
        homes.setdefault(found.graph.values[value], []).append(found.machine.memories[memory].name)
    return {"schema": SCHEMA, "initial": homes, "steps": steps}


def closes(document):
    """Whether a step ends with an exchange or updates, of which orders are the only plan."""
    if document.get("sharding"):
        return True
    exchange = document.get("exchange", "none") != "none" and document.get("copies", 1) > 1
    return exchange or any(layer.get("update_time", 0) for layer in document["layers"])


def open_ended(document):
    """Return the document without an exchange or updates at the end."""
    layers = [{key: value for key, value in layer.items() if key != "update_time"} for layer in document["layers"]]
    return {key: value for key, value in document.items() if key != "exchange"} | {"layers": layers}


def same_starts(document, plan):
    """Assert that both placers begin each run at the same time."""
    one, other = (
        {step["run"]: step["start"] for step in made(document, plan)["steps"] if "run" in step}
        for made in (played, placed)
    )
    assert one.keys() == other.keys()
    scale = max(one.values(), default=0)
    assert all(close(one[name], other[name], scale) for name in one), (document, plan)


def both(document, plan):
    """Return the verifier's report and the referee's on a schedule document."""
    return examine(document, plan).report, referee.check(document, plan)


def has_instants(document, plan):
    """Return whether a run takes almost no time, so that memory contents depend on the order of steps."""
    found = examine(document, plan)
    runs = found.steps.kind == StepKind.RUN
    lengths = (found.report.end - found.report.start)[runs]
    return bool(lengths.min() <= 1e-6 * found.report.makespan)


def same_verdict(report, verdict, *, peaks=True):
    """Assert that both judges measured the same of two lists of steps in which instants may be listed differently."""
    assert report.ok, report.violations
    assert verdict.ok, verdict.violations
    assert close(report.makespan, verdict.makespan, verdict.makespan)
    assert not peaks or report.peak_memory == verdict.peaks
    assert report.transferred == verdict.transferred
