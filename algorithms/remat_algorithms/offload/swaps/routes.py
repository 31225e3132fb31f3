"""Routes out of a processor's memory and back, from the machine's links."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from remat.plugin import Machine, Number, OptionError, Problem


@dataclass(frozen=True, slots=True)
class Route:
    """A memory in which values can wait, and the links that lead there and back.

    Attributes
    ----------
    memory : int
        The waiting memory.
    out, back : tuple of int
        Links, in the order in which a value takes them; several if memories form a hierarchy.
    """

    memory: int
    out: tuple[int, ...]
    back: tuple[int, ...]

    def out_time(self, machine: Machine, size: int, ratio: Number | None = None) -> Number:
        """Return the transfer time out of a value with a compression ratio, alone on its links."""
        return sum(machine.links[link].with_ratio(ratio).time(size) for link in self.out)

    def back_time(self, machine: Machine, size: int, ratio: Number | None = None) -> Number:
        """Return the transfer time back of a value with a compression ratio, alone on its links."""
        return sum(machine.links[link].with_ratio(ratio).time(size) for link in self.back)


def device_of(machine: Machine) -> int:
    """Return the memory of the first processor."""
    return machine.processors[0].memory


def routes(machine: Machine) -> tuple[Route, ...]:
    """Return the routes from the first processor's memory, the fewest links first (none: nothing can be offloaded)."""
    device = device_of(machine)
    out = paths(machine, device)
    back = paths(machine, device, backward=True)
    found = [Route(memory, out[memory], back[memory]) for memory in out if memory in back and memory != device]
    return tuple(sorted(found, key=lambda route: (len(route.out) + len(route.back), route.memory)))


def required_routes(problem: Problem, name: str) -> tuple[Route, ...]:
    """Return the routes for an algorithm that only offloads.

    Raises
    ------
    remat.OptionError
        If the machine has no second memory, or none with links both ways.
    """
    machine = problem.machine
    found = routes(machine)
    if found:
        return found
    device = machine.memories[device_of(machine)].name
    raise OptionError(
        f"{name} needs a second memory with links from {device!r} and back, and this machine has none",
        argument="machine",
    )


def paths(
    machine: Machine, memory: int, *, backward: bool = False, avoided: int | None = None
) -> dict[int, tuple[int, ...]]:
    """Return the fewest links from a memory to each reachable one (or, `backward`, from each of those to it).

    No path leads through the memory `avoided`; one may end there.
    """
    found: dict[int, tuple[int, ...]] = {memory: ()}
    waiting = deque([memory])
    while waiting:
        here = waiting.popleft()
        if here == avoided:
            continue
        for index, link in enumerate(machine.links):
            start, end = (link.target, link.source) if backward else (link.source, link.target)
            if start == here and end not in found:
                found[end] = (index, *found[here]) if backward else (*found[here], index)
                waiting.append(end)
    return found
