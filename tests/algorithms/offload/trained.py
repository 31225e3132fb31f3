"""Chains with parameters for the tests, on a device and a host, and closed formulas of their times."""

import random


def machine(*, down=2, up=2, speed=0.5, host_processor=True, **capacities):
    """Return a device and a host, full duplex; `down` is the bandwidth to the host."""
    processors = [{"name": "gpu", "memory": "device"}]
    if host_processor:
        processors.append({"name": "cpu", "memory": "host", "speed": speed})
    return {
        "memories": [{"name": name, "capacity": capacities.get(name)} for name in ("device", "host")],
        "processors": processors,
        "links": [
            {"source": "device", "target": "host", "bandwidth": down, "channel": "d2h"},
            {"source": "host", "target": "device", "bandwidth": up, "channel": "h2d"},
        ],
    }


def chain(*stages, parameters="device", **more):
    """Return a chain of these stages with optimizer states at the host."""
    document = {"schema": "remat.instance/2", "kind": "chain", "units": {"time": "unit", "memory": "unit"}}
    document |= {"machine": machine(), "parameter_memory": parameters, "optimizer_memory": "host", "input_size": 1}
    return document | {"stages": list(stages), **more}


def stage(forward=2, backward=4, parameters=4, *, output=1, saved=1, optimizer=12, update=1, **more):
    return {
        "forward_time": forward,
        "backward_time": backward,
        "output_size": output,
        "saved_size": saved,
        "parameter_size": parameters,
        "optimizer_size": optimizer,
        "update_time": update,
        **more,
    }


def drawn(seed, *, longest=6, **more):
    """Draw a chain whose stages differ in everything."""
    chance = random.Random(f"trained {seed}")
    stages = [
        stage(
            chance.randint(1, 6),
            chance.randint(1, 9),
            2 * chance.randint(1, 6),
            output=chance.randint(0, 4),
            saved=chance.randint(0, 5),
            optimizer=chance.choice((0, 6, 24)),
            update=chance.randint(0, 4),
            parameter_gradient_size=2 * chance.randint(0, 6),
        )
        for _ in range(chance.randint(1, longest))
    ]
    document = chain(*stages, loss={"time": chance.randint(0, 3)}, master_copy=chance.random() < 0.5, **more)
    document["machine"] = machine(
        down=chance.choice((1, 2)), up=chance.choice((1, 2)), speed=chance.choice((0.5, 0.25, 1))
    )
    return document


def gradient_of(given):
    return given.get("parameter_gradient_size", given["parameter_size"])


def tail(document, ends, *, comes_back):
    """Return the end of the last update or of the last upload of parameters: a permutation flow shop.

    `ends` are the ends of the backwards, by stage. Gradient transfer, update and upload run in the order in which the
    backwards end; each machine serves one at a time.
    """
    links, cpu = document["machine"]["links"], document["machine"]["processors"][1]
    gone = updated = back = 0
    for given, end in sorted(zip(document["stages"], ends, strict=True), key=lambda pair: pair[1]):
        gone = max(gone, end) + gradient_of(given) / links[0]["bandwidth"]
        updated = max(updated, gone) + given["update_time"] / cpu["speed"]
        back = max(back, updated) + given["parameter_size"] / links[1]["bandwidth"]
    return max(back if comes_back else updated, *ends)
