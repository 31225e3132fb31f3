"""Schedules for captured programs: their events, and the plan file `remat.plan/1`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.joint import BOUNDARY
from remat.bridges.torch.recording import TorchError
from remat.documents import read_document
from remat.schedule.document import Copy, Drop, Run
from remat.solving.external_schedule import schedule_of
from remat.solving.result import Result
from remat.solving.verifying import examine


@dataclass(frozen=True, slots=True)
class Event:
    """A run of a task (None: none), and the values that are dropped at its end."""

    task: str | None
    drop: tuple[str, ...] = ()


def events_of(captured: Captured, schedule: Any) -> list[Event]:
    """Return a schedule's runs and drops in order; a document is verified first."""
    steps = _steps(captured, schedule)
    events: list[Event] = []
    for step in steps:
        match step:
            case Run():
                events.append(Event(step.task, step.drop))
            case Drop():
                events.append(Event(None, step.values))
            case Copy():
                raise TorchError(f"the schedule copies {step.value} to {step.target}; plans support only one memory")
    runs = [event.task for event in events if event.task is not None]
    unknown = next((name for name in runs if name not in captured.tasks), None)
    if unknown is not None or BOUNDARY not in runs:
        raise TorchError(f"the schedule is for another program: it runs {unknown or 'no ' + BOUNDARY}")
    return events


def _steps(captured: Captured, schedule: Any) -> Iterator[Any]:
    if not isinstance(schedule, Result):
        # Times depend on the costs; the order does not.
        document = dict(schedule if isinstance(schedule, Mapping) else read_document(schedule))
        document["steps"] = [
            {key: value for key, value in step.items() if key != "start"} for step in document.get("steps", ())
        ]
        document.pop("instance", None)
        schedule = examine(captured.instance(), document).as_result()
    if schedule.columns is None:
        raise TorchError(f"there is no schedule: {schedule.status}")
    yield from schedule.steps


def judge(captured: Captured, forward: Any, backward: Any, *, costs: Any = None) -> Result:
    """Convert another tool's partition into a verified schedule.

    Parameters
    ----------
    captured : Captured
    forward, backward : torch.fx.GraphModule
        As a `partition_fn` returns them for `captured.graph`: nodes have the names that they have there.

    Returns
    -------
    Result
        Peak and makespan are the verifier's. If the backward recomputes results of the forward, these runs are left
        out, in favour of the partition: the caller holds the results.
    """
    joint = captured.joint

    def runs(module: Any) -> list[str]:
        names = [node.name for node in module.graph.nodes if node.op == "call_function"]
        return [name for name in names if name in joint.tasks]

    def there_already(name: str) -> bool:
        return name in done and not joint.returned.isdisjoint(joint.tasks[name].writes) and not joint.nodes[name].random

    done = set(runs(forward))
    late = [name for name in runs(backward) if not there_already(name)]
    return schedule_of(captured.instance(costs), [*runs(forward), BOUNDARY, *late])
