"""Build the machine of an instance document, or read that of a schedule."""

import math
from fractions import Fraction

from .adjoints import adjoint_steps, has_tape
from .records import Link, Machine


def machine(document, budget=None):
    """Build the machine of an instance document.

    Parameters
    ----------
    document : dict
        An instance.
    budget : int or dict, optional
        Overrides a capacity: that of the working memory, of the quickest storage level of an adjoint, of all devices
        of a pipeline; a dictionary those of the memories that it names ("" is that same one, or all).

    Returns
    -------
    Machine
    """
    if document.get("machine") is not None:
        built, budgeted = read_machine(document["machine"]), 0
    elif document.get("storage"):
        built, budgeted = _storage_machine(document), 1  # memories as listed, the quickest level first
    elif document.get("cluster") is not None:
        ranks = (document.get("sharding") or {}).get("data", 1)
        built, budgeted = _cluster_machine(document["cluster"], ranks), slice(None)
    else:
        built, budgeted = Machine({"memory": None}, {"processor": "memory"}, []), 0
    for name, size in (budget if isinstance(budget, dict) else {"": budget}).items():
        if size is not None:
            chosen = (list(built.processors.values()) if document.get("cluster") else list(built.memories))[budgeted]
            for memory in [name] if name else [chosen] if isinstance(chosen, str) else chosen:
                built.memories[memory] = size
    return built


def read_machine(document):
    """Read the `machine` object of an instance or of a schedule."""
    memories = {entry["name"]: entry.get("capacity") for entry in document["memories"]}
    first = next(iter(memories))
    processors, speeds, types = {}, {}, {}
    for entry in document.get("processors") or [{"name": "processor"}]:
        count = entry.get("count", 1)
        names = [entry["name"]] if count == 1 else [f"{entry['name']}{i}" for i in range(count)]
        for name in names:
            processors[name] = entry.get("memory", first)
            types[name] = entry.get("type") or ""
            if entry.get("speed", 1) != 1:
                speeds[name] = entry["speed"]
    links = []
    for number, entry in enumerate(document.get("links", [])):
        channel = entry.get("channel")
        if channel is None:
            channel = ("own channel of link", number)  # a tuple can be nobody else's name
        channel, *also = channel if isinstance(channel, list) else [channel]
        figures = _crossing(entry), entry.get("latency") or 0, channel, entry.get("delay") or 0
        links.append(Link(entry["source"], entry["target"], *figures, tuple(also), _packing(entry)))
    static = {entry["name"]: entry["static"] for entry in document["memories"] if entry.get("static")}
    measured = [name for name in processors if name not in speeds]  # whose speed is 1
    working = processors[measured[0]]
    memories = {working: memories[working]} | memories
    processors = {measured[0]: working} | processors
    return Machine(memories, processors, links, speeds, types, static)


def _packing(entry):
    """Return what a link that packs sends and packs per time, and the share that it sends; None for other links."""
    packs = entry.get("ratio", 1) != 1 or entry.get("codec") is not None
    return (entry.get("bandwidth"), entry.get("codec"), entry.get("ratio", 1)) if packs else None


def _crossing(entry):
    """Return the effective bandwidth of a link, limited by the transfer of packed bytes and by the codec."""
    if entry.get("ratio", 1) == 1 and entry.get("codec") is None:
        return entry.get("bandwidth")
    sent = [Fraction(str(entry.get("ratio", 1))) / Fraction(str(entry["bandwidth"]))] if entry.get("bandwidth") else []
    packed = [1 / Fraction(str(entry["codec"]))] if entry.get("codec") else []
    time = sum(sent + packed)
    if time == 0:
        return None
    return int(1 / time) if (1 / time).denominator == 1 else float(1 / time)


def _storage_machine(document):
    """Build the machine of an adjoint from its checkpoint levels."""
    steps = adjoint_steps(document)
    largest = max(step["state_size"] for step in steps)
    working = largest + max(step["adjoint_size"] for step in steps) + document.get("static_memory", 0)
    if has_tape(document):
        working += max(step["tape_size"] for step in steps)
    memories, links = {"working": working}, []
    for level in sorted(document["storage"], key=lambda level: _there_and_back(level, largest)):
        name = level["name"]
        memories[name] = level["slots"] * largest if level.get("slots") is not None else level.get("capacity")
        channel = level.get("channel") or "processor"
        bandwidth = level.get("bandwidth")
        links.append(Link("working", name, bandwidth, level.get("write_time", 0), channel))
        links.append(Link(name, "working", bandwidth, level.get("read_time", 0), channel))
    return Machine(memories, {"processor": "working"}, links)


def _there_and_back(level, size):
    """Return the sort key of levels: round-trip time of a state, capacity, name."""
    ways = 0 if level.get("bandwidth") is None else 2 * size / level["bandwidth"]
    capacity = level["slots"] * size if level.get("slots") is not None else level.get("capacity")
    time = level.get("write_time", 0) + level.get("read_time", 0) + ways
    return time, math.inf if capacity is None else capacity, level["name"]


def _cluster_machine(cluster, ranks=1):
    """Build the machine of a pipeline: devices, and a link for every ordered pair of them.

    Of the neighbours that are ranks, only the first exists, with a link to itself. The first level that splits no group
    of ranks connects all of them.
    """
    memories, types = {}, {}
    for entry in cluster["devices"]:
        count = entry.get("count", 1)
        for name in [entry["name"]] if count == 1 else [f"{entry['name']}{i}" for i in range(count)]:
            memories[name] = entry.get("memory")
            types[name] = entry.get("type") or entry["name"]
    links, count = [], len(memories)
    for other in [name for number, name in enumerate(memories) if number % ranks]:
        del memories[other], types[other]
    for a, source in enumerate(memories):
        for b, target in enumerate(memories):
            if a == b and ranks == 1:
                continue
            together = (
                [{a * ranks, b * ranks}]
                if a != b
                else [set(range(first, first + ranks)) for first in range(0, count, ranks)]
            )
            shared = [
                level
                for level in cluster.get("levels") or [{}]
                if level.get("devices") is None
                or all(len({device // level["devices"] for device in group}) == 1 for group in together)
            ]
            level = shared[0]
            figures = _crossing(level), level.get("latency") or 0
            held_up = {"overlap": (), "blocking": (source,)}.get(
                cluster.get("transfers") or "overlap", (source, target)
            )
            channel, delay = f"{source}->{target}", level.get("delay") or 0
            links.append(Link(source, target, *figures, channel, delay, held_up, _packing(level)))
    processors = {name: name for name in memories}
    if cluster.get("host") is not None:
        host = cluster["host"]
        memories["host"] = host.get("memory")
        for pair in [pair for name in processors for pair in ((name, "host"), ("host", name))]:
            figures = _crossing(host), host.get("latency") or 0
            links.append(Link(*pair, *figures, "->".join(pair), host.get("delay") or 0, (), _packing(host)))
    return Machine(memories, processors, links, types=types)
