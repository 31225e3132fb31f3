"""Machines with memories behind links, and small chains for them."""

from random import Random

from hypothesis import strategies as st


def machine(
    *,
    bandwidth=(1, 1),
    latency=(0, 0),
    channels=(None, None),
    host=None,
    disk=None,
    device=None,
):
    """Build a device and a host with links (out, back); `disk` is (bandwidth, capacity) behind the host."""
    memories = [{"name": "device", "capacity": device}, {"name": "host", "capacity": host}]
    ends = (("device", "host"), ("host", "device"))
    links = [
        {"source": source, "target": target, "bandwidth": bandwidth[i], "latency": latency[i], "channel": channels[i]}
        for i, (source, target) in enumerate(ends)
    ]
    if disk is not None:
        memories.append({"name": "disk", "capacity": disk[1]})
        links.append({"source": "host", "target": "disk", "bandwidth": disk[0]})
        links.append({"source": "disk", "target": "host", "bandwidth": disk[0]})
    return {"memories": memories, "processors": [{"name": "gpu", "memory": "device"}], "links": links}


def stage(forward, backward, size, **more):
    return {"forward_time": forward, "backward_time": backward, "output_size": size, **more}


def chain(*stages, machine, input_size=1, **more):
    head = {"schema": "remat.instance/1", "kind": "chain", "units": {"time": "unit", "memory": "unit"}}
    return head | {"input_size": input_size, "stages": list(stages), "machine": machine, **more}


def any_machine(rng):
    """Draw a machine: full or half duplex or synchronous, independent links, hosts of all sizes."""
    shared = rng.choice([None, None, "bus", "gpu"])
    return machine(
        bandwidth=(rng.choice([1, 1, 2, 3, None]), rng.choice([1, 1, 2, 3, None])),
        latency=(rng.choice([0, 0, 0, 1, 2]), rng.choice([0, 0, 0, 1, 2])),
        channels=(shared, shared),
        host=rng.choice([None, None, None, 2, 4, 8]),
    )


@st.composite
def chains(draw, *, least=1, largest=3, quickest=0):
    """Draw a small chain on such a machine, with integer times (at least `quickest`) and sizes.

    Through a seed: draws of single figures are mostly alike and mostly zero.
    """
    rng = Random(draw(st.integers(0, 2**32 - 1)))
    stages = []
    for _ in range(rng.randint(least, largest)):
        one = stage(rng.randint(quickest, 4), rng.randint(quickest, 4), rng.randint(0, 3))
        more = {
            "saved_size": (2, rng.randint(0, 3)),
            "backward_workspace": (6, rng.randint(0, 3)),
            "saving_forward_time": (6, rng.randint(quickest, 4)),
            "backward_reads": (6, [kind for kind in ("input", "output", "saved") if rng.random() < 0.5]),
            "variants": (8, [{}, {"saved_size": rng.randint(0, 3), "backward_time": rng.randint(quickest, 4)}]),
        }
        stages.append(one | {key: value for key, (odds, value) in more.items() if rng.randrange(odds) == 0})
    traits = {"in_place": True} if rng.randrange(4) == 0 else {}
    loss = {"time": rng.randint(quickest, 2)}
    return chain(*stages, machine=any_machine(rng), input_size=rng.randint(0, 3), loss=loss, **traits)


FORWARD, BACKWARD = (2, 2, 3, 2, 2), (2, 2, 2, 3, 2)
ONE_BIG = (6, 1, 1, 1, 1)


def one_big_value(**traits):
    """Build five stages of which only x1 (6 of 12 units at the loss, which wants 10 more) is worth moving.

    No other value frees enough at a budget of 17. Each of its transfers takes 3, as long as F3 and B4. Any other copy
    takes more than 2, the time of each other task.
    """
    figures = {"bandwidth": (6, 6), "latency": (2, 2)} | traits
    stages = [
        stage(forward, backward, size, gradient_size=1, backward_reads=["input", "saved"])
        for forward, backward, size in zip(FORWARD, BACKWARD, ONE_BIG, strict=True)
    ]
    return chain(*stages, machine=machine(**figures), loss={"time": 1, "workspace": 10})
