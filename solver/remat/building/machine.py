"""`remat.machine` and `remat.device`: the `machine` part of an instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from remat.building.columns import is_scalar, sequence_of
from remat.building.common import Size, Time, builder, renamed
from remat.errors import InstanceError
from remat.instance.loading import load_machine
from remat.instance.native import native
from remat.messages import brief
from remat.units import Units


@builder()
def machine(
    *,
    memories: Mapping[str, Size | Mapping[str, Any]] | Sequence[Mapping[str, Any]],
    processors: Mapping[str, str | Mapping[str, Any]] | Sequence[Mapping[str, Any]],
    links: Mapping[tuple[str, str], Any] | Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Describe a machine: memories, processors that work in them, and links between them.

    Parameters
    ----------
    memories : mapping of name to capacity, or sequence of dict
        Capacities are sizes; None is unbounded.
    processors : mapping of name to memory, or sequence of dict
        The first processor of speed 1 is the one on which times are measured.
    links : mapping of (source, target) to bandwidth, or sequence of dict
        Bandwidths are texts such as ``"25GB/s"``, or bytes per time unit; None is unlimited.

        An entry of any of these mappings may be a dict with keys of documents. Memories have `capacity` and `static`,
        processors `memory`, `type`, `speed` and `count`, links `bandwidth`, `latency`, `delay`, `energy`, `channel`,
        `ratio` and `codec`. In a sequence of dicts, memories and processors also have a `name`, and links `source` and
        `target`.

    Returns
    -------
    dict
        The `machine` part of a document, for `machine=` of the builders, `remat.solve` and others. Bare numbers mean
        the units of the instance with which it is used.

    Raises
    ------
    remat.InstanceError
        Names the argument, the index and the value.

    Examples
    --------
    >>> import remat
    >>> gpu = remat.machine(
    ...     memories={"device": "16GB", "host": None},
    ...     processors={"gpu": "device"},
    ...     links={("device", "host"): "25GB/s", ("host", "device"): "25GB/s"},
    ... )
    >>> gpu["memories"][0]
    {'name': 'device', 'capacity': '16GB'}
    """
    document = {
        "memories": _entries("memories", memories, partial(_entry, "capacity")),
        "processors": _entries("processors", processors, partial(_entry, "memory")),
        "links": _entries("links", links, _link),
    }
    _check(document)
    return document


@builder()
def device(
    capacity: Size = None,
    *,
    host: Size = None,
    link: Any = None,
    latency: Time = 0,
    name: str = "device",
    processor: str = "gpu",
) -> dict[str, Any]:
    """Describe one device and, with `link`, its host memory.

    Parameters
    ----------
    capacity : size, optional
        Bytes of its memory: ``"16GB"``; None is unbounded.
    host : size, optional
        Bytes of the host memory, which is called ``host``; None is unbounded.
    link : bandwidth, optional
        Bandwidth between device and host in each direction: ``"25GB/s"``. Without it there is no host.
    latency : time
        Time of each transfer in addition to size/bandwidth.
    name, processor : str
        Names of the memory and the processor.

    Returns
    -------
    dict
        As of `remat.machine`.

    Raises
    ------
    remat.InstanceError
        Names the argument and the value.

    Examples
    --------
    >>> import remat
    >>> [memory["name"] for memory in remat.device("16GB", host="64GB", link="25GB/s")["memories"]]
    ['device', 'host']
    """
    document: dict[str, Any] = {
        "memories": [{"name": name, "capacity": native(capacity)}],
        "processors": [{"name": processor, "memory": name}],
    }
    if link is None and (host is not None or latency):
        raise InstanceError("a host needs a link, such as link='25GB/s'", "link")
    if link is not None:
        document["memories"].append({"name": "host", "capacity": native(host)})
        both = ((name, "host"), ("host", name))
        way = {"bandwidth": native(link), "latency": native(latency)}
        document["links"] = [{"source": source, "target": target} | way for source, target in both]
    _check(
        document,
        (
            (r"^\$\.memories\[0\]\.capacity", "capacity"),
            (r"^\$\.memories\[1\]\.capacity", "host"),
            (r"^\$\.memories\[0\]\.name", "name"),
            (r"^\$\.processors\[0\]\.name", "processor"),
            (r"^\$\.links\[\d\]\.bandwidth", "link"),
            (r"^\$\.links\[\d\]\.latency", "latency"),
        ),
    )
    return document


def _entries(argument: str, given: Any, entry: Any) -> list[dict[str, Any]]:
    """Return the entries of a list in a document, from a mapping or a sequence of dicts."""
    if isinstance(given, Mapping):
        return [entry(native(key), native(value)) for key, value in given.items()]
    found = []
    for index, one in enumerate(sequence_of(argument, given, "dicts")):
        if not isinstance(one, Mapping):
            raise InstanceError(f"expected a dict, not {brief(one)}", f"{argument}[{index}]")
        found.append(native(dict(one)))
    return found


def _entry(key: str, name: Any, value: Any) -> dict[str, Any]:
    return {"name": name} | (value if isinstance(value, dict) else {key: value})


def _link(ends: Any, value: Any) -> dict[str, Any]:
    if is_scalar(ends) or len(ends) != 2:
        raise InstanceError(f"{brief(ends)} is not a pair (source, target) of memories", "links")
    more = value if isinstance(value, dict) else {"bandwidth": value}
    return {"source": ends[0], "target": ends[1]} | more


def _check(document: dict[str, Any], rules: tuple[tuple[str, str], ...] = ()) -> None:
    """Refuse a machine that no instance can use, in any units."""
    try:
        load_machine(document, Units())
    except InstanceError as error:
        raise renamed(error, rules) from None
