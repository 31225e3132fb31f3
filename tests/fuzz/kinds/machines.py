"""Machines: several processors, several memories, or both, listed in any order."""

NAMES = (("device", "host", "disk"), ("gpu", "cpu memory", "nvme"), ("b", "a", "0"), ("dev", 'hóst "x"', "disk"))
"""Names of the working memory and the memories behind it."""

FORMS = ("processors", "host", "host", "host", "disk", "both", "apart")


def machine(draw, form=None):
    """Draw a machine.

    Parameters
    ----------
    draw : Draw
    form : str, optional
        ``processors`` in one memory; a ``host``; a ``disk`` behind or beside it; ``both`` several processors and a
        host; a second memory ``apart``, which no link reaches.
    """
    form = draw.pick(FORMS) if form is None else form
    device, host, disk = draw.pick(NAMES)
    memories = [{"name": device}]
    processors = [{"name": "gpu", "memory": device}]
    if form in ("processors", "both"):
        if draw.chance(2):
            processors[0]["count"] = draw.whole(2, 3)
        else:
            processors.append({"name": "slow", "memory": device, "speed": draw.pick([1, 0.5, 0.25, 0.3])})
    links = []
    if form != "processors":
        memories.append({"name": host})
        links += _links(draw, device, host, processors) if form != "apart" else []
        if draw.chance(3):
            processors.append({"name": "cpu", "memory": host, "speed": draw.pick([1, 0.5, 0.3])})
    if form == "disk":
        memories.append({"name": disk})
        links += _links(draw, draw.pick([host, device]), disk, processors)
    for memory in memories[1:]:
        draw.seldom(memory, 4, capacity=lambda: draw.size(20))
    return {"memories": memories, "processors": processors, **({"links": links} if links else {})}


def _links(draw, one, other, processors):
    """Draw two links: full duplex, on one bus, or on a processor's own time; now and then one of them is missing."""
    first = processors[0]["name"] if "count" not in processors[0] else "x"
    channel = draw.pick([None, None, None, "bus", "bus", first])
    links = []
    for source, target in ((one, other), (other, one)):
        link = {"source": source, "target": target}
        draw.seldom(link, 2, bandwidth=lambda: draw.pick([1, 2, 3, 5, 0.5, 1000]))
        draw.seldom(link, 3, latency=draw.time)
        links.append(link if channel is None else link | {"channel": channel})
    return links[: 1 if draw.chance(10) else 2]


def memories_of(drawn):
    """Return the names of the memories; a document without a machine has one called `memory`."""
    return [entry["name"] for entry in drawn.get("machine", {"memories": [{"name": "memory"}]})["memories"]]


def working_memory(drawn):
    """Return the memory of the first processor of speed 1, or None where storage levels or devices make the machine."""
    if "storage" in drawn or drawn["kind"] == "pipeline":
        return None
    processors = drawn.get("machine", {}).get("processors", [{"memory": "memory"}])
    return next(one["memory"] for one in processors if one.get("speed", 1) == 1)


def shuffle(draw, drawn):
    """List memories, links and storage levels of a document in any order."""
    owner = drawn.get("machine", {})
    for listed in (owner.get("memories"), owner.get("links"), drawn.get("storage")):
        if listed and draw.chance(3):
            draw.random.shuffle(listed)
