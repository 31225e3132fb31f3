"""Conversion of the solution at a moment to a sequence of runs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from remat_algorithms.dag.moments.integer_facts import Facts
from remat_algorithms.dag.moments.program_solution import Moment

HALF, WHOLE = 0.5, 1.0 - 1e-6
"""Minimum shares for which a value counts as kept: if there is free memory, and if the solution must keep all of it."""


def runs_of(facts: Facts, at: int, moment: Moment, least: float = HALF) -> list[int]:
    """Return the runs of a solution: as listed up to the moment, then with each missing value recomputed when needed.

    Optional tasks run only if no other task computes a value that a run reads. The runs may not fit at other moments.

    Parameters
    ----------
    facts : Facts
    at : int
        The task whose first run is the moment.
    moment : Moment
    least : float
        The share of a value from which it is kept.

    Returns
    -------
    list of int
        Tasks. O(accesses).
    """
    kept = {value for value, share in moment.kept.items() if share >= least}
    away = {value for value, shares in moment.away.items() if value not in kept and sum(shares.values()) > 0.0}
    kept |= {value for value in facts.values if _stays_rather(facts, value)}
    again = {task: share for task, share in moment.again.items() if share > 0.0}
    here = {value for value in facts.values if facts.there[value]}
    sequence = _Sequence(facts, here, again)
    for task in facts.order[: facts.place[at] + 1]:
        sequence.supply(facts.reads[task])
        sequence.run(task)
    gone = {value for value in sequence.there if value not in kept and value not in away} - set(facts.writes[at])
    sequence.there -= {value for value in gone if not facts.pinned[value]}
    for task in facts.order[facts.place[at] + 1 :]:
        sequence.supply(facts.reads[task])
        sequence.run(task)
    sequence.supply(value for value in facts.values if facts.stays[value] or value in facts.ends)
    return sequence.runs


def _stays_rather(facts: Facts, value: int) -> bool:
    """Whether to keep a final value because the task that computes it reads more bytes, and no task reads its outputs.

    Another run of that task costs nothing in a program. As a run at the end, it would hold its inputs until then.
    """
    if not facts.stays[value]:
        return False
    unread = [task for task in facts.makers[value] if facts.unread[task]]
    return any(facts.size[value] < sum(facts.size[read] for read in facts.reads[task]) for task in unread)


class _Sequence:
    """Runs, and the values that are present after them."""

    def __init__(self, facts: Facts, there: Iterable[int], again: Mapping[int, float]) -> None:
        self.facts, self.there, self.again = facts, set(there), again
        self.runs: list[int] = []
        self.ran: set[int] = set()

    def run(self, task: int) -> None:
        self.runs.append(task)
        self.ran.add(task)
        self.there.update(self.facts.writes[task])

    def supply(self, values: Iterable[int]) -> None:
        """Run the producers of missing values, each after the producers of its own inputs."""
        for value in values:
            maker = self._maker(value, ())
            stack = [] if maker is None else [maker]
            entered = set(stack)
            while stack:
                task = stack[-1]
                makers = (self._maker(read, entered) for read in self.facts.reads[task])
                following = next((other for other in makers if other is not None), None)
                if following is None:
                    self.run(stack.pop())
                else:
                    entered.add(following)
                    stack.append(following)

    def _maker(self, value: int, entered: Container[int]) -> int | None:
        """Return the task that recomputes a missing value; None if it is present, or no task can compute it."""
        facts = self.facts
        if value in self.there:
            return None
        able = [
            task for task in facts.makers[value] if task not in entered and (facts.repeat[task] or task not in self.ran)
        ]
        return min(able, key=lambda task: (-self.again.get(task, 0.0), facts.time[task], task), default=None)
