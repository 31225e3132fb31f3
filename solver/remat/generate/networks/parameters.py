"""Parameters, gradients and optimizer states as values of a chain, on a device with a host behind it."""

from __future__ import annotations

from collections.abc import Sequence

from remat.generate import check
from remat.generate.check import Number
from remat.generate.document import Document
from remat.generate.networks.operations import Device

HOMES = ("static", "device", "host")

STATES = {
    # bytes of an optimizer's state per parameter at 16 and at 32 bit; Adam's at 16 bit hold a master copy
    "adam": (12, 8),
    "sgd": (0, 0),
    "none": (0, 0),
}


def with_parameters(
    document: Document,
    counts: Sequence[int],
    *,
    home: str,
    optimizer: str,
    element: int,
    device: Device,
    link: Number,
    host_speed: Number,
) -> Document:
    """Return a chain's document with parameters instead of static memory.

    Parameters
    ----------
    document : dict
        Kind ``chain``, in seconds and bytes.
    counts : sequence of int
        Parameters of each listed stage.
    home : {"device", "host"}
        Where the parameters lie between iterations; optimizer states lie at the host.
    optimizer : {"adam", "sgd", "none"}
        The latter two have no state: parameters are updated from their gradients alone.
    element : int
        Bytes of a parameter, and of its gradient.
    device : Device
    link : float
        Bandwidth each way between device and host, bytes/s.
    host_speed : float
        Speed of the host's processor, the device's being 1.

    Returns
    -------
    dict
        In ``remat.instance/2``. An update takes the device the time of its memory traffic: every byte that it reads
        or writes, once.
    """
    mixed = element == 2 and optimizer == "adam"
    state = STATES[optimizer][element == 4]
    moved = update_traffic(element, state, mixed=mixed)
    stages = [
        stage
        | (
            {
                "parameter_size": element * count,
                "optimizer_size": state * count,
                "update_time": moved * count / device.bandwidth,
            }
            if count
            else {}
        )
        for stage, count in zip(document["stages"], counts, strict=True)
    ]
    kept = {key: value for key, value in document.items() if key != "static_memory"}
    kept |= {"schema": "remat.instance/2", "stages": stages, "machine": offloading_machine(link, host_speed)}
    return kept | {"parameter_memory": home, "optimizer_memory": "host"} | ({"master_copy": True} if mixed else {})


def offloading_machine(link: Number, host_speed: Number) -> Document:
    """Return a device and its host, with a link each way of `link` bytes/s, and a processor at each."""
    return {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [
            {"name": "gpu", "memory": "device"},
            {"name": "cpu", "memory": "host", **({} if host_speed == 1 else {"speed": host_speed})},
        ],
        "links": [
            {"source": "device", "target": "host", "bandwidth": link, "channel": "d2h"},
            {"source": "host", "target": "device", "bandwidth": link, "channel": "h2d"},
        ],
    }


def update_traffic(element: int, state: int, *, mixed: bool) -> int:
    """Return the bytes that an update reads and writes for each parameter; in `mixed` the state has a master copy."""
    return 2 * element + 2 * state + (0 if mixed else element)


def checked_speed(given: float) -> Number:
    """Return the speed of the host's processor after checking its range."""
    speed = check.number("host_speed", given, positive=True)
    if speed > 1:
        raise ValueError(f"host_speed must be at most 1, not {speed}")
    return speed
