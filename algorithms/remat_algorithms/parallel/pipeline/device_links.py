"""Links between devices, and the resources that their transfers occupy.

Two transfers take turns exactly if their links occupy a common resource (`Machine.held_by_link`), as for the verifier.
Each link without a named channel has a separate one.
"""

from __future__ import annotations

from remat.plugin import Machine


def links_between(machine: Machine, one: int, other: int) -> tuple[int, int]:
    """Return the links (by index) between the memories of two devices: from one to the other, and back.

    Raises
    ------
    MissingLinkError
        If a direction has no link.
    """
    here, there = (machine.processors[device].memory for device in (one, other))
    for ends in ((here, there), (there, here)):
        machine.link_between(*ends)
    return machine.link_index[here, there], machine.link_index[there, here]


def are_linked(machine: Machine, one: int, other: int) -> bool:
    """Whether two devices have the same memory, or links in both directions."""
    here, there = (machine.processors[device].memory for device in (one, other))
    return here == there or {(here, there), (there, here)} <= machine.link_index.keys()


def occupied_between(machine: Machine, one: int, other: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the resources (by index) that transfers from one device to another occupy, and those of transfers back.

    Raises
    ------
    MissingLinkError
        If a direction has no link.
    """
    if machine.processors[one].memory == machine.processors[other].memory:
        return (), ()
    out, back = links_between(machine, one, other)
    return machine.held_by_link[out], machine.held_by_link[back]
