"""`remat.torch.execute`: run a training step according to a schedule, with or without a host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.hosted_execution import HostedInterpreter, moved_of
from remat.bridges.torch.interpreter import Execution, Interpreter, given_tensors
from remat.bridges.torch.measure import allocator_peak
from remat.bridges.torch.plans import events_of
from remat.bridges.torch.weightless import check_data


def execute(captured: Captured, schedule: Any, inputs: Any = None, *, allocator: bool = False) -> Execution:
    """Run a training step according to a schedule.

    Parameters
    ----------
    captured : Captured
    schedule : remat.Result, path or dict
        A document is verified first. With copies to a host, it is executed as a program whose copies start between
        runs; on the CPU, they are plain copies.
    inputs : (args, kwargs), optional
        As in the call that was captured; by default those of that call.
    allocator : bool
        Also measure the bytes that the allocator hands out; this takes time.

    Returns
    -------
    Execution

    Raises
    ------
    TorchError
        For programs whose loss is no scalar.
    """
    moved = moved_of(captured, schedule)
    events: Iterable[Any] = () if moved is not None else events_of(captured, schedule)
    given = given_tensors(captured, inputs)
    check_data(given)
    if moved is None:
        interpreter = Interpreter(captured, given)
    else:
        interpreter = HostedInterpreter(captured, given, moved.program)
        events = interpreter.steps()
    if not allocator:
        return interpreter.run(events)
    done, peak = allocator_peak(lambda: interpreter.run(events))
    return replace(done, allocator_peak=peak)
