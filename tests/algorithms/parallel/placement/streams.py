"""Drawn streams on accelerators around a host, and inference pipelines of the reference."""

TYPES = ("quick", "slow")


def star(chance, *, tasks=4, devices=2, room=None, host=False, copies=1, kept=1.0, training=False):
    """Return a stream on accelerators around a host, which may compute, too.

    `kept` is the share of tasks with private parameters; `training` adds a backward task to each task.
    """
    count = chance.randint(2, tasks)
    names = [f"a{k}" for k in range(chance.randint(1, devices))]
    kinds = [chance.choice(TYPES) for _ in names]
    values, listed, inputs = [], [], []
    for k in range(count):
        reads = [f"v{j}" for j in range(k) if chance.random() < 0.5]
        values.append({"id": f"v{k}", "size": chance.randint(0, 3)})
        time = {kind: chance.randint(0, 6) for kind in TYPES}
        if host and chance.random() < 0.8:
            time["host"] = chance.randint(4, 20)
        own = []
        if chance.random() < kept:
            values.append({"id": f"w{k}", "size": chance.randint(0, 5)})
            inputs.append({"value": f"w{k}", "memory": "any"} | ({"copies": copies} if copies > 1 else {}))
            own = [f"w{k}"]
        listed.append({"id": f"t{k}", "time": time, "reads": [*reads, *own], "writes": [f"v{k}"]})
        if training and own:
            gradients = [f"g{j}" for j in range(k) if f"v{j}" in reads and chance.random() < 0.8]
            values.append({"id": f"g{k}", "size": chance.randint(0, 3)})
            listed[-1]["phase"] = "forward"
            backward = {"id": f"b{k}", "time": {kind: 2 * t for kind, t in time.items()}, "phase": "backward"}
            listed.append(backward | {"reads": [*own, f"v{k}"], "writes": [f"g{k}"], "wanted": gradients})
    for task in listed:
        later = task.pop("wanted", [])
        for name in later:
            other = next((one for one in listed if one["id"] == f"b{name[1:]}"), None)
            if other is not None:
                other["reads"].append(task["writes"][0])
    channels = {name: chance.choice([None, name]) for name in names}
    links = []
    for name in names:
        for source, target in ((name, "host"), ("host", name)):
            link = {"source": source, "target": target, "bandwidth": 1}
            links.append(link | ({"channel": channels[name]} if channels[name] else {}))
    processors = [{"name": "cpu", "memory": "host", "type": "host"}] if host else []
    processors += [{"name": name, "memory": name, "type": kind} for name, kind in zip(names, kinds, strict=True)]
    capacity = {} if room is None else {name: chance.randint(*room) for name in names}
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "stream": 3,
        "machine": {
            "memories": [
                {"name": "host"},
                *({"name": name} | ({"capacity": capacity[name]} if name in capacity else {}) for name in names),
            ],
            "processors": processors,
            "links": links,
        },
        "inputs": inputs,
        "values": values,
        "tasks": listed,
    }


def inference(point, copies):
    """Return an inference pipeline of the reference: layers in a row, a time for each on each device, no transfers."""
    devices = range(len(point["memory"]))
    names = [f"m{k}" for k in devices]
    layers = range(len(point["time"]))
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "stream": 2,
        "machine": {
            "memories": [{"name": name, "capacity": size} for name, size in zip(names, point["memory"], strict=True)],
            "processors": [{"name": f"p{k}", "memory": names[k], "type": f"p{k}"} for k in devices],
            "links": [{"source": one, "target": other} for one in names for other in names if one != other],
        },
        "inputs": [{"value": f"w{k}", "memory": "any", "copies": copies} for k in layers],
        "values": [
            *({"id": f"w{k}", "size": size} for k, size in enumerate(point["parameters"])),
            *({"id": f"x{k}", "size": 0} for k in layers[:-1]),
        ],
        "tasks": [
            {
                "id": f"t{k}",
                "time": {f"p{d}": time for d, time in enumerate(row)},
                "reads": [f"w{k}", *([f"x{k - 1}"] if k else [])],
                "writes": [f"x{k}"] if k < layers[-1] else [],
            }
            for k, row in enumerate(point["time"])
        ],
    }
