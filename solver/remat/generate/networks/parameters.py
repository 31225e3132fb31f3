"""Parameters, gradients and optimizer states as values of a chain, for one of several ranks with a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remat.generate import check
from remat.generate.check import Number
from remat.generate.devices import HOST_LINK, NETWORK
from remat.generate.document import Document
from remat.generate.networks.operations import Device

HOMES = ("static", "none", "device", "host", "nvme", "any")
STATE_HOMES = ("host", "device", "nvme", "any")
ACCUMULATIONS = ("same", "fp32")
FLOAT32 = 4
MOST_ZERO = 3


MOMENTS = {
    # bytes of an optimizer's moments per parameter
    "adam": 8,  # Kingma and Ba 2015: two in fp32
    "adam8": 2,  # Dettmers et al. 2022: two of 8 bits
    "momentum": 4,
    "adafactor": 0,  # Shazeer and Stern 2018: of each matrix one for every row and every column
    "sgd": 0,
    "none": 0,
}
OPTIMIZERS = tuple(MOMENTS)
STATES = {
    # bytes of an optimizer's state per parameter at 16 and at 32 bit; Adam's at 16 bit hold a master copy
    "adam": (12, 8),
    "sgd": (0, 0),
    "none": (0, 0),
}
BARE = ("sgd", "none")
"""Optimizers that by default update parameters in their precision, without a master copy."""


@dataclass(frozen=True, kw_only=True)
class States:
    """Data of each parameter, and the memories that hold them.

    Parameters
    ----------
    optimizer : str
        ``adam``, ``adam8``, ``momentum``, ``adafactor``, ``sgd`` or ``none``; the last two have no states.
    master : bool, optional
        Whether the states of 16-bit parameters hold a copy of these in fp32; default: where there are states.
    accumulation : {"same", "fp32"}
        Type in which gradients are accumulated: that of the parameters, or fp32.
    parameters, states : str
        Their memory between iterations: ``device``, ``host``, ``nvme`` (behind the host), or ``any`` (the schedule
        chooses). ``static`` parameters, with their gradients and states, are static memory; ``none`` omits them.
    frozen : bool
        Static parameters are not trained: they have neither gradients nor states.
    link : float, optional
        Bytes/s in each direction between device and host; default: `HOST_LINK`. If parameters and states stay on the
        device, the machine has a host only if `link` is given: for activations, without a processor.
    host_speed, nvme : float
        Speed of updates at the host, relative to the device; bytes/s between host and NVMe.
    data, zero : int
        Number of data-parallel ranks, and the ZeRO stage: what they partition in addition to the batch.
    bucket : int
        Bytes of gradients that are exchanged together.
    network, network_latency : float
        Bytes/s to the next rank, and latency of each message in seconds.
    staleness : int, optional
        Steps follow each other without end, with parameters that are this many updates old.
    """

    optimizer: str = "adam"
    master: bool | None = None
    accumulation: str = "same"
    parameters: str = "static"
    frozen: bool = False
    states: str = "host"
    link: float | None = None
    host_speed: float = 1 / 16
    nvme: float = 3e9
    data: int = 1
    zero: int = 0
    bucket: int = 0
    network: float = NETWORK
    network_latency: float = 0.0
    staleness: int | None = None

    def __post_init__(self) -> None:
        choices = {
            "optimizer": OPTIMIZERS,
            "accumulation": ACCUMULATIONS,
            "parameters": HOMES,
            "states": STATE_HOMES,
        }
        for name, known in choices.items():
            check.choice(name, getattr(self, name), known)
        for name in ("link", "nvme", "network", "network_latency"):
            if getattr(self, name) is None:
                continue
            number = check.number(name, getattr(self, name), positive=name != "network_latency")
            object.__setattr__(self, name, number)  # whole numbers as such
        object.__setattr__(self, "host_speed", checked_speed(self.host_speed, positive=False))
        check.integer("data", self.data, minimum=1)
        check.integer("zero", self.zero, minimum=0, maximum=MOST_ZERO)
        check.integer("bucket", self.bucket, minimum=0)
        if self.zero and self.data == 1:
            raise ValueError(
                f"zero {self.zero} distributes states over several ranks, but data, the number of ranks, is 1"
            )
        if not isinstance(self.frozen, bool):
            raise ValueError(f"frozen must be true or false, not {self.frozen!r:.60}")
        if self.frozen and self.parameters not in ("static", "none"):
            raise ValueError(f"frozen parameters have no updates and are static memory, not {self.parameters}")
        if self.parameters in ("static", "none") and (self.data > 1 or self.staleness is not None):
            key = "data" if self.data > 1 else "staleness"
            raise ValueError(f"{key} is of parameters that are values: give parameters device, host, nvme or any")
        if self.staleness is not None:
            check.integer("staleness", self.staleness, minimum=0)

    @property
    def only_on_device(self) -> bool:
        """Whether parameters and states are nowhere but on the device between iterations."""
        return self.parameters == self.states == "device"

    def has_master(self, element: int) -> bool:
        """Whether the optimizer's states include an fp32 copy of parameters of the given element size."""
        return element < FLOAT32 and (self.optimizer not in BARE if self.master is None else self.master)

    def gradient_bytes(self, element: int) -> int:
        """Bytes in which the gradient of a parameter stays to the update."""
        return FLOAT32 if self.accumulation == "fp32" else element

    def state_bytes(self, element: int, count: int, factors: int) -> int:
        """Bytes of the optimizer's states of so many parameters, whose matrices have so many rows and columns."""
        factored = FLOAT32 * factors if self.optimizer == "adafactor" else 0
        master = FLOAT32 if self.has_master(element) else 0
        return (MOMENTS[self.optimizer] + master) * count + factored

    def static_bytes(self, element: int, count: int, factors: int) -> int:
        """Bytes of parameters, gradients and states on one rank that has all of them."""
        if self.parameters == "none":
            return 0
        if self.frozen:
            return element * count
        return (element + self.gradient_bytes(element)) * count + self.state_bytes(element, count, factors)


def with_parameters(
    document: Document,
    counts: Sequence[int],
    factors: Sequence[int],
    *,
    states: States,
    element: int,
    device: Device,
) -> Document:
    """Return a chain's document with parameters instead of static memory.

    Parameters
    ----------
    document : dict
        Kind ``chain``, in seconds and bytes.
    counts, factors : sequence of int
        Parameters of each listed stage, and rows and columns of their matrices.
    states : States
    element : int
        Bytes of a parameter, and of its gradient as a backward makes it.
    device : Device

    Returns
    -------
    dict
        In the lowest schema that can say it. An update takes the device the time of its memory traffic: every byte that
        it reads or writes, once.
    """
    master = states.has_master(element)
    sizes = [
        (element * count, states.gradient_bytes(element) * count, states.state_bytes(element, count, rows))
        for count, rows in zip(counts, factors, strict=True)
    ]
    return with_values(document, sizes, states=states, master=master, device=device)


def with_values(
    document: Document, sizes: Sequence[tuple[int, int, int]], *, states: States, master: bool, device: Device
) -> Document:
    """Return a chain's document with parameters as values, where each stage's bytes are known.

    Parameters
    ----------
    sizes : sequence of (int, int, int)
        Bytes of parameters, of their gradients, and of optimizer states, of each listed stage.
    master : bool
        Whether the states have a copy of the parameters.
    document, states, device
        As of `with_parameters`.
    """
    stages: list[dict[str, Any]] = []
    for stage, (size, gradient, state) in zip(document["stages"], sizes, strict=True):
        moved = (2 if master else 3) * size + (gradient - size) + 2 * state
        given = {"parameter_size": size, "optimizer_size": state, "update_time": moved / device.bandwidth}
        if gradient != size:
            given |= {"parameter_gradient_size": gradient, "bucket_size": size}
        stages.append(stage | (given if size else {}))
    kept = {key: value for key, value in document.items() if key != "static_memory"}
    kept |= {"stages": stages, "machine": _machine(states)}
    kept |= {"parameter_memory": states.parameters, "optimizer_memory": states.states}
    kept |= {"master_copy": True} if master else {}
    if states.data > 1:
        kept["sharding"] = {"data": states.data, "zero": states.zero} | (
            {"bucket": states.bucket} if states.bucket else {}
        )
    if states.staleness is not None:
        kept["staleness"] = states.staleness
    newer = states.data > 1 or states.staleness is not None or "any" in (states.parameters, states.states)
    newer = newer or any("bucket_size" in stage for stage in stages)
    return kept | {"schema": "remat.instance/3" if newer else "remat.instance/2"}


def _machine(states: States) -> dict[str, Any]:
    """Return a device, a host and NVMe if used, and the link to the other ranks."""
    machine = offloading_machine(HOST_LINK if states.link is None else states.link, states.host_speed)
    if states.only_on_device:
        machine["processors"] = machine["processors"][:1]
        if states.link is None:
            machine |= {"memories": machine["memories"][:1], "links": []}
    if "nvme" in (states.parameters, states.states):
        machine["memories"].append({"name": "nvme"})
        for source, target, channel in (("host", "nvme", "h2n"), ("nvme", "host", "n2h")):
            way = {"source": source, "target": target, "bandwidth": states.nvme, "channel": channel}
            machine["links"].append(way)
    if states.data > 1:
        latency = {"latency": states.network_latency} if states.network_latency else {}
        around = {"source": "device", "target": "device", "bandwidth": states.network, **latency, "channel": "network"}
        machine["links"].append(around)
    return {key: listed for key, listed in machine.items() if listed}


def offloading_machine(link: Number, host_speed: Number) -> Document:
    """Return a device and its host, and a link of `link` bytes/s in each direction.

    Each has a processor; at speed 0, the host has none.
    """
    cpu = {"name": "cpu", "memory": "host", **({} if host_speed == 1 else {"speed": host_speed})}
    return {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}, *([cpu] if host_speed else [])],
        "links": [
            {"source": "device", "target": "host", "bandwidth": link, "channel": "d2h"},
            {"source": "host", "target": "device", "bandwidth": link, "channel": "h2d"},
        ],
    }


def update_traffic(element: int, state: int, *, mixed: bool) -> int:
    """Return the bytes that an update reads and writes for each parameter; in `mixed` the state has a master copy."""
    return 2 * element + 2 * state + (0 if mixed else element)


def checked_speed(given: float, *, positive: bool = True) -> Number:
    """Return the speed of the host's processor after checking its range."""
    speed = check.number("host_speed", given, positive=positive)
    if speed > 1:
        raise ValueError(f"host_speed must be at most 1, not {speed}")
    return speed
