"""Machines for the tests of offloading, as documents."""

from __future__ import annotations

from typing import Any

import pytest

import remat


def two_memories(
    out: float | str | None, back: float | str | None = None, *, channels: tuple[str, str] = ("out", "in"), **more: Any
) -> dict[str, Any]:
    """Build a device and a host; `back` is `out` where it is not given, `more` goes to both links."""
    links = []
    for source, target, bandwidth, channel in (
        ("device", "host", out, channels[0]),
        ("host", "device", out if back is None else back, channels[1]),
    ):
        link: dict[str, Any] = {"source": source, "target": target, "channel": channel} | more
        if bandwidth is not None:
            link["bandwidth"] = bandwidth
        links.append(link)
    return {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": links,
    }


def assert_ways_are_needed(document: dict[str, Any], algorithm: str) -> None:
    """Assert that an offload-only algorithm requires a second memory and links in both directions."""
    machine = two_memories(1)
    budget = {"device": 10}
    with pytest.raises(remat.OptionError, match="a second memory"):
        remat.solve(document, algorithm=algorithm)
    with pytest.raises(remat.OptionError, match="links from 'device' and back"):
        remat.solve(document, algorithm=algorithm, machine=machine | {"links": machine["links"][:1]}, budget=budget)
    with pytest.raises(remat.OptionError, match="links from 'device' and back"):
        remat.solve(document, algorithm=algorithm, machine=machine | {"links": machine["links"][1:]}, budget=budget)
