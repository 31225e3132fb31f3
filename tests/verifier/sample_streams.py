"""Drawn task graphs that are run for one sample after the other, and patterns for them."""

import math

from remat.instance import load
from remat.instance.lowering import machine_of, samples_of
from remat.placement import place_stream

HUB, MESH = "hub", "mesh"


def stream(chance, *, tasks=5, memories=3, shape=None, room=None, copies=1):
    """Return a `dag` document with a stream on several devices, around a hub or fully connected."""
    shape = shape or chance.choice([HUB, MESH])
    names = [f"m{k}" for k in range(chance.randint(2, memories))]
    processors = [{"name": f"p{k}", "memory": name} for k, name in enumerate(names)]
    if shape == HUB and chance.random() < 0.5:
        processors = processors[1:]
    ends = [
        (one, other) for one in names for other in names if one != other and (shape == MESH or names[0] in (one, other))
    ]
    links = []
    for one, other in ends:
        link = {"source": one, "target": other}
        if chance.random() < 0.7:
            link["bandwidth"] = 1
        if chance.random() < 0.3:
            link["latency"] = chance.randint(0, 2)
        if chance.random() < 0.2:
            link["delay"] = chance.randint(1, 3)
        own = [p["name"] for p in processors if p["memory"] in (one, other) and p["memory"] != names[0]]
        if shape == HUB and own and chance.random() < 0.5:
            link["channel"] = own[0]
        links.append(link)
    count = chance.randint(1, tasks)
    values, listed, inputs = [], [], []
    for k in range(count):
        values += [{"id": f"v{k}.{n}", "size": chance.randint(0, 4)} for n in range(chance.randint(0, 2))]
        made = [value["id"] for value in values if value["id"].startswith(f"v{k}.")]
        before = [value["id"] for value in values if value["id"].startswith("v") and value["id"] not in made]
        reads = chance.sample(before, min(len(before), chance.randint(0, 2)))
        if chance.random() < 0.7:
            weight = f"w{k}" if chance.random() < 0.8 or not inputs else chance.choice(inputs)["value"]
            if weight not in [entry["value"] for entry in inputs]:
                values.append({"id": weight, "size": chance.randint(0, 6)})
                entry = {"value": weight, "memory": "any"}
                inputs.append(entry | ({"copies": chance.randint(1, copies)} if copies > 1 else {}))
            reads = list(dict.fromkeys([*reads, weight]))
        task = {"id": f"t{k}", "time": chance.randint(0, 6), "reads": reads, "writes": made}
        if chance.random() < 0.2:
            task["workspace"] = chance.randint(1, 4)
        if chance.random() < 0.2:
            task["in_place"] = True
        listed.append(task)
    if room is not None:
        room = {name: chance.randint(*room) for name in names[shape == HUB :]}
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "stream": chance.randint(1, 4),
        "machine": {
            "memories": [
                {"name": name} | ({"capacity": room[name]} if room is not None and name in room else {})
                for name in names
            ],
            "processors": processors,
            "links": links,
        },
        "inputs": inputs,
        "values": values,
        "tasks": listed,
    }


def homes_of(chance, document, samples):
    """Return processors for the tasks of some samples, such that tasks with one input of one copy are together."""
    count = len(document["machine"]["processors"])
    found = []
    kept = {entry["value"]: chance.randrange(count) for entry in document["inputs"]}
    for _ in range(samples):
        own = []
        for task in document["tasks"]:
            weights = [kept[name] for name in task["reads"] if name in kept]
            own.append(weights[0] if weights else chance.randrange(count))
        found.append(own)
    return found


def pattern_of(document, homes):
    """Return a placed pattern as a schedule document."""
    instance = load(document)
    machine = machine_of(instance)
    graph = samples_of(instance, machine).graph
    placed = place_stream(graph, machine, homes)
    return placed, {"schema": "remat.schedule/2"} | placed.pattern.to_document(machine)


def spoilt(chance, schedule):
    """Change one thing of a pattern; times stay within the period."""
    pattern = [dict(entry) for entry in schedule["pattern"]]
    period = schedule["period"]
    entry = chance.choice(pattern)
    match chance.randrange(4):
        case 0:
            entry["start"] = chance.randrange(math.ceil(period))
        case 1:
            entry["shift"] = max(0, entry["shift"] + chance.choice([-1, 1]))
        case 2:
            pattern.remove(entry)
        case 3 if period > 1 and all(other["start"] < period - 1 for other in pattern):
            period -= 1
    return schedule | {"pattern": pattern, "period": period}
