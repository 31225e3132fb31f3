"""Machines: several processors, several memories, or both, listed in any order."""

NAMES = (("device", "host", "disk"), ("gpu", "cpu memory", "nvme"), ("b", "a", "0"), ("dev", 'hóst "x"', "disk"))
"""Names of the working memory and of further memories."""

BANDWIDTHS = (1, 2, 3, 5, 0.5, 1000, 1e9)
"""The last one lets copies take less than an instant, next to other times."""

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
        if draw.chance(2 if form == "apart" else 3):
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
        draw.seldom(link, 2, bandwidth=lambda: draw.pick(BANDWIDTHS))
        draw.seldom(link, 3, latency=draw.time)
        links.append(link if channel is None else link | {"channel": channel})
    return links[: 1 if draw.chance(10) else 2]


def compress(draw, drawn):
    """Let links compress in one of six documents with links, and values have ratios where their kind allows it."""
    cluster = drawn.get("cluster") or {}
    hosts = [cluster["host"]] if cluster.get("host") else []
    links = [*(drawn.get("machine") or {}).get("links", []), *cluster.get("levels", []), *hosts]
    if not links or not draw.chance(6):
        return
    drawn["schema"] = "remat.instance/3"
    for link in links:
        draw.seldom(link, 2, ratio=lambda: draw.pick([1, 0.5, 0.25, 0.3]), codec=lambda: draw.pick([1, 3, 4, 0.5]))
    if drawn["kind"] == "dag":
        owners = [(value, ("ratio",)) for value in drawn.get("values", [])]
    elif drawn["kind"] == "chain":
        owners = [(drawn, ("input_ratio",)), *((stage, ("output_ratio", "saved_ratio")) for stage in drawn["stages"])]
    else:
        owners = []
    for owner, keys in owners if draw.chance(2) else ():
        for key in keys:
            draw.seldom(owner, 2, **{key: lambda: draw.pick([1, 0.5, 0.125, 0.3])})


CHANNELS = ("unnamed", "unnamed", "separate", "shared", "shared", "bus", "mixed", "crossed", "several", "processor")
"""The use of channels by links between devices."""


def of_devices(draw, devices, channels=None):
    """Draw a machine that replaces the cluster of a pipeline.

    Parameters
    ----------
    draw : Draw
    devices : sequence of (str, str)
        Names and types.
    channels : str, optional
        ``unnamed``; ``separate`` ones for each direction; ``shared`` by both directions; one ``bus`` or two for several
        pairs of devices; ``mixed``; ``crossed``: one for all links from a device, or to it; ``several`` for one link;
        that of a ``processor``.
    """
    channels = draw.pick(CHANNELS) if channels is None else channels
    names = [name for name, _ in devices]
    some_missing, in_a_row = draw.chance(6), draw.chance(6)
    links = []
    for here, source in enumerate(names):
        for there, target in enumerate(names):
            if here == there or (in_a_row and abs(here - there) > 1) or (some_missing and draw.chance(5)):
                continue
            link = {"source": source, "target": target}
            draw.seldom(link, 2, bandwidth=lambda: draw.pick([1, 2, 3, 0.5]), latency=draw.time)
            draw.seldom(link, 6, delay=draw.time)
            channel = _channel_between(draw, channels, names, here, there)
            links.append(link if channel is None else link | {"channel": channel})
    memories = [{"name": name} for name in names]
    for memory in memories:
        draw.seldom(memory, 6, capacity=lambda: draw.size(40))
    processors = [{"name": name, "memory": name, "type": kind} for name, kind in devices]
    if len(names) > 1 and draw.chance(8):  # two devices have one memory
        own, left = draw.random.sample(names, 2)
        processors[names.index(left)]["memory"] = own
        memories = [memory for memory in memories if memory["name"] != left]
        links = [link for link in links if left not in (link["source"], link["target"])]
    return {"memories": memories, "processors": processors, **({"links": links} if links else {})}


def _channel_between(draw, channels, names, here, there):
    one_way, both_ways = f"{here} to {there}", f"{min(here, there)} and {max(here, there)}"
    match channels:
        case "separate":
            return one_way
        case "shared":
            return both_ways
        case "bus":
            return draw.pick(["bus", "bus", "other", None])
        case "mixed":
            return draw.pick([None, one_way, both_ways, "bus", f"{names[there]}->{names[here]}"])
        case "crossed":
            return draw.pick([f"from {here}", f"to {there}", None])
        case "several":
            return draw.pick([None, [one_way, both_ways], ["bus", one_way], [names[here], names[there]]])
        case "processor":
            return draw.pick([None, names[here], names[there], draw.pick(names)])
    return None


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
