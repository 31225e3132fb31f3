"""Plans from what the programs of moments say: what is kept there, what is away, and what is made again later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from remat_algorithms.joint.dag_offload_best.setting import Runs, Setting


@dataclass(frozen=True)
class Moment:
    """What lies where at the first run of a task.

    Attributes
    ----------
    task : int
    kept, away : collection of int
        Values in the processor's memory, and in other ones; what else has been made is made again when it is needed.
    """

    task: int
    kept: Collection[int]
    away: Collection[int]


def runs_of(setting: Setting, moments: Sequence[Moment]) -> Runs | None:
    """Return the listed order, with what is lost at some moments made again right before it is read.

    Parameters
    ----------
    setting : Setting
    moments : sequence of Moment
        In the order of their tasks' first runs.

    Returns
    -------
    Runs or None
        None where something that is lost cannot be made again. O(accesses).
    """
    at = {moment.task: moment for moment in moments}
    there = set(setting.given)
    tasks: list[int] = []
    for task in setting.listed:
        moment = at.get(task)
        if moment is not None:
            held = {*moment.kept, *moment.away, *setting.reads[task]} | setting.given
            there &= held
        again = _remade(setting, task, there)
        if again is None:
            return None
        for run in (*again, task):
            tasks.append(run)
            there.update(setting.writes[run])
    return Runs(tuple(tasks))


def _remade(setting: Setting, task: int, there: Collection[int]) -> list[int] | None:
    """Return the runs that make again what a task reads and is not there, in order; None if that cannot be."""
    runs: list[int] = []
    made: set[int] = set()
    opened: set[int] = set()
    stack = [(value, False) for value in reversed(setting.reads[task])]
    while stack:
        value, ready = stack.pop()
        if value in made or value in there:
            continue
        maker = setting.maker[value]
        if maker < 0:
            return None
        if ready:
            runs.append(maker)
            made.update(setting.writes[maker])
        elif value in opened:
            return None  # made from itself
        else:
            opened.add(value)
            stack.append((value, True))
            stack += [(read, False) for read in reversed(setting.reads[maker])]
    return runs
