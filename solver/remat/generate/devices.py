"""The shipped table of devices: peak rates, bandwidth and memory, for generators, plans and the bridges."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from remat.errors import OptionError

DEFAULT = "A100"
"""The default device of generators and costs."""

HOST_LINK = 12 * 10**9
"""Bytes/s in each direction between a device and its host, if neither an option nor the table says it."""

NETWORK = 25 * 10**9
"""Bytes/s from each rank to the next, if no option says it."""

NEAR = 1.1
"""Factor within which two sizes are about the same memory."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The figures of a device for a roofline model, and its memory.

    Attributes
    ----------
    flops, bandwidth : float
        Operations and bytes per second.
    memory : int or None
        Bytes; None if the table has no entry.
    host_link : int or None
        Bytes per second in each direction between the device and its host; None if the table has no entry.
    """

    flops: float
    bandwidth: float
    memory: int | None = None
    host_link: int | None = None

    @property
    def link(self) -> float:
        """Bytes per second in each direction between the device and its host, by default `HOST_LINK`."""
        return self.host_link or HOST_LINK


@cache
def devices() -> dict[str, Any]:
    """Return the shipped table: ``flops`` by type, ``bandwidth``, ``memory``, ``host_link`` and ``source`` by name."""
    table: dict[str, Any] = json.loads((Path(__file__).parent / "devices.json").read_text())["devices"]
    return table


def rates(name: str, dtype: str, *, argument: str = "device") -> Rates:
    """Return the rates of a shipped device for a number type.

    Raises
    ------
    OptionError
        For an unknown name, or a type for which the device has no rate.
    """
    return rates_in(devices(), name, dtype, argument=argument)


def fastest_with(memory: int, dtype: str) -> list[str]:
    """Return the shipped devices with about so much memory: the nearest size, and of equal sizes the fastest, first."""
    found = []
    for name, entry in devices().items():
        own = int(entry.get("memory") or 0)
        if dtype in entry["flops"] and own <= NEAR * memory and memory <= NEAR * own:
            found.append((max(own, memory) / min(own, memory), -float(entry["flops"][dtype]), name))
    return [name for *_, name in sorted(found)]


def platform(name: str) -> str:
    """Return the type of a shipped device in PyTorch: ``cuda`` (GPUs of AMD, too) unless the table says otherwise."""
    return str(devices()[name].get("platform", "cuda"))


def rates_in(table: dict[str, Any], name: str, dtype: str, *, argument: str = "device") -> Rates:
    """Return the rates of a device from any table, as `rates` does for the shipped one."""
    if name not in table:
        raise OptionError(f"there is no device {name!r}; known are {', '.join(table)}", argument=argument)
    listed = table[name]["flops"]
    if dtype not in listed:
        raise OptionError(f"{name} has no rate for {dtype!r}, but for {', '.join(listed)}", argument=argument)
    memory, link = (None if found is None else int(found) for found in map(table[name].get, ("memory", "host_link")))
    return Rates(float(listed[dtype]), float(table[name]["bandwidth"]), memory, link)
