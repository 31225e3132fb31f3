"""The machine of the benchmarks of offloading."""

from __future__ import annotations

from typing import Any


def host(bandwidth: float) -> dict[str, Any]:
    """Return a device with a host behind it, at so many GB/s each way."""
    ends = (("device", "host"), ("host", "device"))
    return {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [{"source": a, "target": b, "bandwidth": f"{bandwidth}GB/s"} for a, b in ends],
    }
