"""Allocations of a snapshot of PyTorch's allocator (`torch.cuda.memory._dump_snapshot`), each with its line of code.

The file is a pickle. The reader imports and calls nothing: it accepts dictionaries, lists, tuples, numbers and texts,
which suffice for a snapshot, and refuses any other file.
"""

from __future__ import annotations

import pickle
from typing import Any

from remat.bridges.allocations.timeline import Allocations, Recorder
from remat.documents import read_bytes
from remat.errors import InstanceError, OptionError
from remat.messages import brief

LARGEST = 2**30
"""Bytes of a snapshot."""

MOST_MEMORY = 3 * 2**30
"""Bytes that it may take when it is read, by the bound of `_dearest`."""

_COSTS = {b"}": 240, b"]": 96, b")": 48, b"t": 64, b"\x85": 64, b"\x86": 72, b"\x87": 80, b"(": 16}


class _Plain(pickle.Unpickler):
    """An unpickler that knows no classes."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every class and function."""
        raise pickle.UnpicklingError(f"it asks for {module}.{name}"[:120])

    def persistent_load(self, pid: Any) -> Any:
        """Refuse references to other files."""
        raise pickle.UnpicklingError("it refers to other files")


def read_snapshot(path: str, device: int | None = None) -> Allocations:
    """Read the allocations of a snapshot.

    Parameters
    ----------
    path : str
    device : int, optional
        Number of the device; default: the one with the most allocations.

    Raises
    ------
    InstanceError
        If the file is not a snapshot with a history; a pickle that refers to a class is refused without running code.
    OptionError
        For a device that the snapshot does not have.
    """
    name, data = read_bytes(path, "snapshot", LARGEST)
    snapshot = _unpickled(name, data)
    del data
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("device_traces"), list):
        raise InstanceError(f"{name}: not a snapshot of PyTorch's allocator: device_traces is missing")
    traces = snapshot["device_traces"]
    number = _device(traces, device, name)
    return _allocations(name, traces[number], _there(snapshot, number))


def _unpickled(name: str, data: bytes) -> Any:
    import io

    dearest = 8 * len(data) + sum(cost * data.count(sign) for sign, cost in _COSTS.items())
    if dearest > MOST_MEMORY:
        raise InstanceError(f"{name}: it may take {dearest:,} bytes of memory; at most {MOST_MEMORY:,} are allowed")
    try:
        return _Plain(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise InstanceError(f"{name}: no plain pickle: {error}") from None
    except (RecursionError, MemoryError, OverflowError, UnicodeError):
        raise InstanceError(f"{name}: no plain pickle: it is nested too deeply, or too large") from None


def _device(traces: list[Any], device: int | None, name: str) -> int:
    if not all(isinstance(trace, list) for trace in traces) or not any(traces):
        raise InstanceError(
            f"{name}: the snapshot has no history; call torch.cuda.memory._record_memory_history() before the step"
        )
    if device is None:
        return max(range(len(traces)), key=lambda k: len(traces[k]))
    if not 0 <= device < len(traces):
        raise OptionError(f"the snapshot has {len(traces)} devices, counted from 0", argument="device")
    return device


def _there(snapshot: dict[str, Any], device: int) -> dict[int, int]:
    """Return the blocks that are allocated at the end, by address."""
    found: dict[int, int] = {}
    segments = snapshot.get("segments")
    for segment in segments if isinstance(segments, list) else []:
        if not isinstance(segment, dict) or segment.get("device", device) != device:
            continue
        address = segment.get("address", 0)
        blocks = segment.get("blocks")
        for block in blocks if isinstance(blocks, list) else []:
            if not isinstance(block, dict) or not isinstance(block.get("size"), int):
                continue
            own = block.get("address", address)
            if block.get("state") == "active_allocated" and isinstance(own, int):
                found[own] = block["size"]
            if isinstance(own, int):
                address = own + block["size"]
    return found


def _allocations(name: str, trace: list[Any], there: dict[int, int]) -> Allocations:
    """Pair allocations with their frees."""
    recorder = Recorder()
    labels: dict[str, int] = {}
    known: dict[int, int] = {}
    for number, event in enumerate(trace):
        try:
            action, address = event["action"], event["addr"] if event["action"] != "snapshot" else 0
            if action not in ("alloc", "free_completed"):
                continue
            # Events without a time are in their order.
            now, bytes_ = float(event.get("time_us", number)), int(event["size"])
            if not (abs(now) < 2.0**62 and 0 <= bytes_ < 2**62):
                raise ValueError("out of range")
            if action == "alloc":
                frames = event.get("frames")
                key = id(frames)  # frames are shared by events; the snapshot keeps them alive
                if key not in known:
                    known[key] = labels.setdefault(_line(frames), len(labels))
                recorder.allocate(now, address, bytes_, known[key])
            else:
                recorder.free(now, address, bytes_)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InstanceError(f"{name}: event {number} is malformed: {error!r}"[:280]) from None
    others = sum(bytes_ for address, bytes_ in there.items() if address not in recorder.live)
    return recorder.allocations(list(labels), recorder.before + others)


def _line(frames: Any) -> str:
    """Return the innermost line of Python outside PyTorch; else the innermost frame."""
    if not isinstance(frames, list) or not frames:
        return "(no frames)"
    plain = [frame for frame in frames if isinstance(frame, dict)]
    own = [
        frame
        for frame in plain
        if str(frame.get("filename", "")).endswith(".py") and "/torch/" not in str(frame.get("filename", ""))
    ]
    if not (own or plain):
        return "(no frames)"
    frame = (own or plain)[0]
    file = str(frame.get("filename", "?")).replace("\\", "/").rpartition("/")[2]
    return f"{file[:60]}:{brief(frame.get('line', '?'))} {str(frame.get('name', '?'))[:60]}"
