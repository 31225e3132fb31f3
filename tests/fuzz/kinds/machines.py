"""Machines: several processors, or several memories, or both."""


def machine(draw):
    """Draw a machine: several processors, or several memories, or both."""
    form = draw.pick(["processors", "host", "host", "host", "disk", "both"])
    memories = [{"name": "device"}]
    processors = [{"name": "gpu", "memory": "device"}]
    if form in ("processors", "both"):
        if draw.chance(2):
            processors[0]["count"] = draw.whole(2, 3)
        else:
            processors.append({"name": "slow", "memory": "device", "speed": draw.pick([1, 0.5, 0.25, 0.3])})
    links = []
    if form != "processors":
        memories.append({"name": "host"})
        links += _links(draw, "device", "host", processors)
        if draw.chance(4):
            processors.append({"name": "cpu", "memory": "host", "speed": draw.pick([1, 0.5, 0.3])})
    if form == "disk":
        memories.append({"name": "disk"})
        links += _links(draw, draw.pick(["host", "device"]), "disk", processors)
    for memory in memories[1:]:
        draw.seldom(memory, 4, capacity=lambda: draw.size(20))
    return {"memories": memories, "processors": processors, **({"links": links} if links else {})}


def _links(draw, one, other, processors):
    """Two links, as a rule: full duplex, on a bus or on a processor's own time."""
    channel = draw.pick(
        [None, None, None, "bus", "bus", processors[0]["name"] if "count" not in processors[0] else "x"]
    )
    links = []
    for source, target in ((one, other), (other, one)):
        link = {"source": source, "target": target}
        draw.seldom(link, 2, bandwidth=lambda: draw.pick([1, 2, 5, 0.5, 1000]))
        draw.seldom(link, 3, latency=draw.time)
        links.append(link if channel is None else link | {"channel": channel})
    return links[: 1 if draw.chance(10) else 2]


def memories_of(drawn):
    """Return the memories' names; a document without a machine has one called `memory`."""
    return [entry["name"] for entry in drawn.get("machine", {"memories": [{"name": "memory"}]})["memories"]]
