"""Schedules with a host for captured programs, and their execution along a host-ordered program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.interpreter import Interpreter
from remat.bridges.torch.joint import BOUNDARY
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.transfers import Away, Transfers, transfers_for
from remat.documents import read_document
from remat.schedule.steps import StepKind
from remat.solving.host_order.moving import Moved, move
from remat.solving.host_order.program import Copy, Operation, Program, Run, Wait
from remat.solving.result import Result
from remat.solving.verifying import examine


def moved_of(captured: Captured, schedule: Any) -> Moved | None:
    """Return a schedule with copies as a program; None if it has none.

    Parameters
    ----------
    captured : Captured
    schedule : remat.Result, path or dict
        A document is placed and verified first: its order counts, its times depend on the costs.
    """
    if not isinstance(schedule, Result):
        document = dict(schedule if isinstance(schedule, Mapping) else read_document(schedule))
        steps = document.get("steps", ())
        if not any("copy" in step for step in steps):
            return None
        document["steps"] = [{key: value for key, value in step.items() if key != "start"} for step in steps]
        document.pop("instance", None)
        schedule = examine(captured.instance(), document).as_result()
    if schedule.columns is None or not (schedule.columns.kind == StepKind.COPY).any():
        return None
    moved = move(schedule)
    unknown = next((task for task in moved.program.graph.tasks if task not in captured.joint.tasks), None)
    if unknown is not None:
        raise TorchError(f"the schedule is for another program: it has {unknown}")
    _check_returned(captured, moved.program)
    return moved


def _check_returned(captured: Captured, program: Program) -> None:
    """Refuse a program that frees, after the forward, values that the caller of the module holds."""
    values, returned, turned = program.graph.values, captured.joint.returned, False
    for one in program.operations:
        drop: Iterable[int] = ()
        match one:
            case Run():
                turned = turned or program.graph.tasks[one.task] == BOUNDARY
                drop = one.drop
            case Wait():
                drop = [value for value, memory in one.drop if memory == 0]
            case _:
                pass
        held = next((values[value] for value in drop if turned and values[value] in returned), None)
        if held is not None:
            name = captured.joint.describe(held.partition(".")[0])
            raise TorchError(f"the schedule offloads {name}, which the module returns, so that its caller holds it")


class HostedInterpreter(Interpreter):
    """An interpreter of programs.

    Parameters
    ----------
    captured, given
        As for `Interpreter`.
    program : Program
    transfers : Transfers, optional
        By default those of the device of the inputs.
    """

    def __init__(
        self, captured: Captured, given: list[Any], program: Program, transfers: Transfers | None = None
    ) -> None:
        super().__init__(captured, given)
        self.program = program
        capacity = program.machine.memories[1].capacity
        self.transfers = transfers or transfers_for(given[0].device, capacity)
        self.away: dict[int, Away] = {}
        self.issued: dict[int, Away] = {}

    def steps(self) -> Iterable[tuple[int, Operation]]:
        """Return the operations with their places."""
        return enumerate(self.program.operations)

    def follow(self, event: Any, held: Mapping[str, list[str]]) -> None:
        """Do one operation; an event is its place in the program, and itself."""
        place, one = event
        values, joint = self.program.graph.values, self.captured.joint
        match one:
            case Run():
                self.step(joint.tasks[self.program.graph.tasks[one.task]])
                for value in one.drop:
                    self._forget(held, values[value])
            case Copy(source=0):
                names = (name for name in held.get(values[one.value], ()) if name in self.there)
                tensors = {name: self.there[name] for name in names}
                self.away[one.value] = self.issued[place] = self.transfers.offload(tensors)
            case Copy():
                self.issued[place] = self.away[one.value]
                self.there.update(self.transfers.reload(self.away[one.value]))
            case Wait():
                for copy in one.copies:
                    self.transfers.wait(self.issued.pop(copy))
                for value, memory in one.drop:
                    if memory == 0:
                        self._forget(held, values[value])
                    else:
                        self.transfers.release(self.away.pop(value))

    def _forget(self, held: Mapping[str, list[str]], value: str) -> None:
        for name in held.get(value, ()):
            self.there.pop(name, None)
