"""Machines with memories behind links, and small chains for them."""

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
    """Build a device and a host, linked both ways (out, back); `disk` is (bandwidth, capacity) behind the host."""
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


@st.composite
def machines(draw, sizes=8):
    """Draw a machine: full or half duplex or synchronous, each way its own figures, hosts of all sizes."""
    speeds = st.sampled_from([1, 1, 2, 3, None])
    delays = st.sampled_from([0, 0, 0, 1, 2])
    shared = draw(st.sampled_from([None, None, "bus", "gpu"]))
    return machine(
        bandwidth=(draw(speeds), draw(speeds)),
        latency=(draw(delays), draw(delays)),
        channels=(shared, shared),
        host=draw(st.sampled_from([None, None, 2, 4, sizes])),
    )


@st.composite
def chains(draw, *, least=1, largest=3, **traits):
    """Draw a small chain on such a machine, with integer times and sizes."""
    small = st.integers(0, 3)
    stages = []
    for _ in range(draw(st.integers(least, largest))):
        one = stage(draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(small))
        if draw(st.booleans()):
            one["saved_size"] = draw(small)
        if draw(st.integers(1, 6)) == 6:
            one["backward_workspace"] = draw(small)
        if draw(st.integers(1, 6)) == 6:
            one["saving_forward_time"] = draw(small)
        if draw(st.integers(1, 6)) == 6:
            one["backward_reads"] = draw(st.lists(st.sampled_from(["input", "output", "saved"]), unique=True))
        if draw(st.integers(1, 6)) == 6:
            one["variants"] = [{}, {"saved_size": draw(small), "backward_time": draw(st.integers(0, 4))}]
        stages.append(one)
    more = {"in_place": True} if draw(st.integers(1, 4)) == 4 else {}
    return chain(*stages, machine=draw(machines()), input_size=draw(small), **more, **traits)
