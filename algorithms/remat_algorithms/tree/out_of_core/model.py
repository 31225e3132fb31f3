"""Memories of an out-of-core algorithm: the working memory and the disk."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from remat.plugin import Machine, OptionError, Options, Problem


class DiskOptions(Options):
    """Options of all out-of-core algorithms."""

    disk: str | None = Field(
        None,
        description="memory that receives evicted values; default: the first one with links to and from the "
        "processor's memory",
    )


@dataclass(frozen=True)
class Store:
    """The processor's memory and the disk to which values are evicted.

    Attributes
    ----------
    capacity : int or None
        Bytes for the tree in the memory, after the static bytes; may be negative. None means unbounded.
    static : int
    disk : int or None
        Index of the memory to evict to; None without one.
    disk_capacity : int or None
    free_links : bool
        Whether transfers take no time.
    """

    capacity: int | None
    static: int
    disk: int | None
    disk_capacity: int | None
    free_links: bool

    @staticmethod
    def of(problem: Problem, options: DiskOptions) -> Store:
        """Find the disk.

        Raises
        ------
        remat.OptionError
            If the option names an unknown memory, or one without links in both directions.
        """
        machine = problem.machine
        disk = _find_disk(machine, options.disk)
        static = problem.graph.static_memory
        links = [] if disk is None else [machine.links[machine.link_index[way]] for way in ((0, disk), (disk, 0))]
        return Store(
            capacity=None if problem.budget is None else problem.budget - static,
            static=static,
            disk=disk,
            disk_capacity=None if disk is None else machine.memories[disk].capacity,
            free_links=all(link.bandwidth is None and link.latency == 0 for link in links),
        )


def _find_disk(machine: Machine, name: str | None) -> int | None:
    linked = [
        index
        for index in range(1, len(machine.memories))
        if (0, index) in machine.link_index and (index, 0) in machine.link_index
    ]
    if name is None:
        return linked[0] if linked else None
    index = machine.memory_index.get(name)
    if index is None:
        known = ", ".join(map(repr, machine.memory_index))
        raise OptionError(
            f"unknown memory {name!r:.60}, or one without links both ways; this machine has {known}", option="disk"
        )
    if index not in linked:
        raise OptionError(
            f"{name!r} is not another memory with links to and from {machine.memories[0].name!r}; "
            "give it both in the machine's links",
            option="disk",
        )
    return index
