"""Layer graphs for accelerators and CPUs, as the public repository dnn-partitioning has them, become streams.

The format has `nodes`, `edges` with a time in milliseconds, the numbers of CPUs and accelerators, and the bytes of an
accelerator. A node has times in milliseconds on a CPU and on an accelerator, and resident bytes on the accelerator
that runs it. It also has a colour class (nodes of one class share a device) and a flag for the backward pass.

An accelerator sends each output that others read once to the memory of the CPUs, and fetches each input once from
there. Both take the time of the edge, during which the accelerator does not compute. Transfers cost CPUs nothing.

Edge times take precedence over edge bytes, because their ratios differ between files of that repository (some are off
by 1000/1024^2 ...). The importer chooses the link bandwidth that reproduces the times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from remat.bridges.placement_profiles.reading import Source, count, listed, name_of, number, read_source, size, text
from remat.errors import InstanceError, OptionError
from remat.instance import DagInstance, digest, instance_from_document
from remat.instance.lowering import machine_of, samples_of
from remat.instance.machine import MOST_PROCESSORS
from remat.messages import brief
from remat.placement import place_stream
from remat.units import LARGEST_SIZE, LARGEST_TIME, Number

DEVIATION = 1e-12
"""Share by which the time of an edge may differ from that of its bytes."""

SEEN = 8
"""Samples of the stream that are looked at step by step, by default."""

HOST, CPU, ACCELERATOR = "host", "cpu", "accelerator"


@dataclass(frozen=True, slots=True)
class Imported:
    """A stream imported from a profile.

    Attributes
    ----------
    instance : DagInstance
    notes : tuple of str
    names : mapping of int to str
        The task of each node, by its number in the profile.
    colours : mapping of int to int
        The colour class of each node.
    """

    instance: DagInstance
    notes: tuple[str, ...]
    names: dict[int, str]
    colours: dict[int, int]


@dataclass(frozen=True, slots=True)
class _Node:
    number: int
    name: str
    cpu: Number
    accelerator: Number | None
    size: int
    colour: int
    backward: bool


def import_partitioning(
    source: Source,
    *,
    accelerators: int | None = None,
    cpus: int | None = None,
    memory: int | str | None = None,
    samples: int = SEEN,
    name: str | None = None,
) -> Imported:
    """Make a stream of a layer graph.

    Parameters
    ----------
    source : path, open file or dict
    accelerators, cpus : int, optional
        Number of each; default: from the profile.
    memory : int or str, optional
        Bytes of each accelerator; default: from the profile.
    samples : int
        Samples that are scheduled step by step.
    name : str, optional
        Default: the file's.

    Returns
    -------
    Imported
        An instance of kind ``dag`` with a `stream`, times in ms, sizes in bytes. Each colour class is an input in one
        memory that all its nodes read. It has their bytes and keeps them together.

    Raises
    ------
    InstanceError
        If the profile is invalid, or edges from one node differ in time.
    """
    document = read_source(source)
    nodes = list(_nodes(document))
    made, notes = _Outputs.of(document, {node.number for node in nodes})
    names = _names(nodes)
    backward = any(node.backward for node in nodes)
    classes: dict[int, int] = {}
    for node in nodes:
        classes[node.colour] = classes.get(node.colour, 0) + node.size
    tasks = []
    for node in nodes:
        times = {} if node.accelerator is None else {ACCELERATOR: node.accelerator}
        task: dict[str, Any] = {"id": names[node.number], "time": {CPU: node.cpu} | times}
        task["reads"] = [f"in{node.colour}", *(f"out{before}" for before in made.read.get(node.number, ()))]
        task["writes"] = [f"out{node.number}"] if node.number in made.size else []
        if backward:
            task["phase"] = "backward" if node.backward else "forward"
        tasks.append(task)
    some, others = _processors(document, accelerators, cpus)
    room = size(document, "maxSizePerFPGA", "$") if memory is None else memory
    machine = _machine(some, others, room, made.bandwidth)
    if not others:
        for task in tasks:
            task["time"].pop(CPU)
    instance = instance_from_document(
        {
            "schema": "remat.instance/3",
            "kind": "dag",
            "name": name or name_of(source, "profile"),
            "source": "imported from a profile of dnn-partitioning",
            "units": {"time": "ms"},
            "machine": machine,
            "inputs": [{"value": f"in{colour}", "memory": "any"} for colour in classes],
            "values": [
                *({"id": f"in{colour}", "size": total} for colour, total in classes.items()),
                *({"id": f"out{number}", "size": amount} for number, amount in made.size.items()),
            ],
            "tasks": tasks,
            "stream": samples,
        }
    )
    assert isinstance(instance, DagInstance)
    return Imported(instance, notes, names, {node.number: node.colour for node in nodes})


def _processors(document: dict[str, Any], accelerators: int | None, cpus: int | None) -> tuple[int, int]:
    """Return the numbers of accelerators and CPUs."""
    some = count(document, "maxFPGAs", "$") if accelerators is None else accelerators
    others = count(document, "maxCPUs", "$") if cpus is None else cpus
    if not some + others:
        raise InstanceError("neither an accelerator nor a CPU", "$.maxFPGAs")
    if some + others > MOST_PROCESSORS:
        raise InstanceError(f"more than {MOST_PROCESSORS} accelerators and CPUs", "$.maxFPGAs")
    return some, others


def _nodes(document: dict[str, Any]) -> Iterator[_Node]:
    seen: set[int] = set()
    for index, entry in enumerate(listed(document, "nodes")):
        path = f"$.nodes[{index}]"
        own = count(entry, "id", path)
        if own in seen:
            raise InstanceError(f"a second node {own}", f"{path}.id")
        seen.add(own)
        able = bool(number(entry, "supportedOnFpga", path))
        yield _Node(
            own,
            text(entry, "name", path) or f"node{own}",
            number(entry, "cpuLatency", path),
            number(entry, "fpgaLatency", path) if able else None,
            size(entry, "size", path),
            count(entry, "colorClass", path) if "colorClass" in entry else own,
            bool(number(entry, "isBackwardNode", path)) if "isBackwardNode" in entry else False,
        )
    if not seen:
        raise InstanceError("a profile without nodes", "$.nodes")


def _names(nodes: list[_Node]) -> dict[int, str]:
    """Return a task's name for each node: the node's own, with its number where several have it."""
    common = Counter(node.name for node in nodes)
    return {node.number: node.name if common[node.name] == 1 else f"{node.name}#{node.number}" for node in nodes}


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Outputs of nodes: bytes by node, readers, and bytes per millisecond."""

    size: dict[int, int]
    read: dict[int, list[int]]
    bandwidth: float

    @staticmethod
    def of(document: dict[str, Any], known: set[int]) -> tuple[_Outputs, tuple[str, ...]]:
        """Read the edges."""
        read: dict[int, list[int]] = defaultdict(list)
        cost: dict[int, Number] = {}
        given: dict[int, int] = {}
        for index, entry in enumerate(listed(document, "edges")):
            path = f"$.edges[{index}]"
            ends = [count(entry, key, path) for key in ("sourceId", "destId")]
            for key, end in zip(("sourceId", "destId"), ends, strict=True):
                if end not in known:
                    raise InstanceError(f"no node {end}", f"{path}.{key}")
            time = number(entry, "cost", path)
            if cost.setdefault(ends[0], time) != time:
                raise InstanceError(
                    f"{time} ms, and another edge from node {ends[0]} takes {cost[ends[0]]} ms: it is sent once",
                    f"{path}.cost",
                )
            given[ends[0]] = size(entry, "size", path) if "size" in entry else 0
            if ends[0] not in read[ends[1]]:
                read[ends[1]].append(ends[0])
        bandwidth = _bandwidth(cost, given)
        bytes_, worst = {}, 0.0
        for source, time in cost.items():
            amount = given[source]
            if abs(amount / bandwidth - time) > DEVIATION * time:
                if time * bandwidth > LARGEST_SIZE:
                    what = f"{time} ms at {bandwidth:.10g} bytes/ms are more bytes than the largest size, 2^62"
                    raise InstanceError(f"the output of node {source}: {what}", "$.edges")
                amount = round(time * bandwidth)
            bytes_[source] = amount
            worst = max(worst, abs(amount / bandwidth - time))
        others = sum(bytes_[source] != given[source] for source in cost)
        notes = []
        if others:
            notes.append(
                f"the bytes of {others} of {len(cost)} outputs follow from their time at {bandwidth:.10g} bytes/ms, "
                f"not from the profile's bytes; times are exact within {worst:.2g} ms"
            )
        return _Outputs(bytes_, read, bandwidth), tuple(notes)


def _bandwidth(cost: dict[int, Number], given: dict[int, int]) -> Number:
    """Return the bytes per millisecond of most edges; if no edge has both, a value that keeps times exact to 1e-12."""
    known = (given[source] / time for source, time in cost.items() if time and given[source])
    ratios = Counter(ratio for ratio in known if 0 < ratio <= LARGEST_TIME)
    if not ratios:
        return 1e12
    most, _ = max(ratios.items(), key=lambda item: (item[1], item[0]))
    return int(most) if most == int(most) else most


def _machine(accelerators: int, cpus: int, capacity: int | str, bandwidth: Number) -> dict[str, Any]:
    """Return accelerators around the memory of the CPUs; transfers block their computation."""
    names = [f"{ACCELERATOR}{index}" for index in range(accelerators)]
    processors: list[dict[str, Any]] = []
    if cpus:
        processors.append({"name": CPU, "memory": HOST, "type": CPU, "count": cpus})
    processors += [{"name": name, "memory": name, "type": ACCELERATOR} for name in names]
    ways = [ends for name in names for ends in ((name, HOST, name), (HOST, name, name))]
    return {
        "memories": [{"name": HOST}, *({"name": name, "capacity": capacity} for name in names)],
        "processors": processors,
        "links": [
            {"source": source, "target": target, "bandwidth": bandwidth, "channel": name}
            for source, target, name in ways
        ],
    }


@dataclass(frozen=True, slots=True)
class ImportedSplit:
    """A `remat.schedule/2` document of a split, with notes."""

    schedule: dict[str, Any]
    notes: tuple[str, ...]


def import_split(imported: Imported, source: Source) -> ImportedSplit:
    """Make a schedule of a split: which nodes each accelerator and CPU runs.

    Parameters
    ----------
    imported : Imported
    source : path, open file or dict
        ``{"fpgas": [{"nodes": [1, 2]}, ...], "cpus": [...]}``. An unlisted node follows its colour class.

    Returns
    -------
    ImportedSplit
        A modulo schedule with the shortest period in which the transfers fit.

    Raises
    ------
    InstanceError
        If the document is not a split of this profile.
    """
    document = read_source(source)
    instance = imported.instance
    machine = machine_of(instance)
    samples = samples_of(instance, machine)
    assert samples is not None
    homes: dict[int, int] = {}
    for key, kind in (("fpgas", ACCELERATOR), ("cpus", CPU)):
        own = [index for index, processor in enumerate(machine.processors) if processor.type == kind]
        for place, entry in enumerate(listed(document, key) if key in document else ()):
            nodes = entry.get("nodes")
            path = f"$.{key}[{place}].nodes"
            if not isinstance(nodes, list):
                raise InstanceError("expected a list of nodes", path)
            if nodes and place >= len(own):
                raise InstanceError(f"there are {len(own)} of these", path)
            for node in nodes:
                if type(node) is not int or node not in imported.names:
                    raise InstanceError(f"no node {brief(node)}", path)
                if node in homes:
                    raise InstanceError(f"node {node} is listed twice", path)
                homes[node] = own[place]
    of_class = {imported.colours[node]: home for node, home in homes.items()}
    everywhere = [-1] * len(samples.graph.tasks)
    for node, task in imported.names.items():
        home = homes.get(node, of_class.get(imported.colours[node]))
        if home is None:
            raise InstanceError(f"node {node} and its colour class are on no device", "$")
        everywhere[samples.graph.task(task)] = home
    try:
        placed = place_stream(samples.graph, machine, [everywhere])
        least = place_stream(samples.graph, machine, [everywhere], longer=0)
    except OptionError as error:
        raise InstanceError(str(error), "$") from None
    notes = []
    if placed.pattern.period > least.pattern.period:
        verb = "fits" if placed.fits else "does not fit even"
        notes.append(
            f"the busiest device of the split is busy for {least.pattern.period:.10g} ms per sample; its memory, with "
            f"the values in flight, {verb} at a period of {placed.pattern.period:.10g} ms"
        )
    about = {"instance": {"name": instance.name, "digest": digest(instance)}}
    document = {"schema": "remat.schedule/2"} | about | placed.pattern.to_document(machine)
    return ImportedSplit(document, tuple(notes))
