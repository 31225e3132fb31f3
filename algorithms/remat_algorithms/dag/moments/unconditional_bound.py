"""What one moment says of all schedules, without asking when tasks run whose place the schedule decides."""

from __future__ import annotations

from dataclasses import replace

from remat_algorithms.dag.moments.before_first_run import Free
from remat_algorithms.dag.moments.integer_facts import Facts, places_of


def surely(facts: Facts, at: int) -> tuple[Facts, list[int]]:
    """Return the facts without the tasks that may run before a moment or after it, and these.

    If such a task has run, what it makes may be gone, and need not be made again for it; if it has not, what it reads
    need not be there on its account. So without its reads, and with what it makes free and there, the program of the
    moment in the listed order of the others bounds all schedules.
    """
    undecided = [task for task, known in enumerate(Free(facts).before(at)) if known is None]
    if not undecided:
        return facts, []
    out = set(undecided)
    free = {value for task in undecided for value in facts.writes[task]}
    # Whatever they do: at the end of the order they do it.
    order = [task for task in facts.order if task not in out] + [task for task in facts.order if task in out]
    return (
        replace(
            facts,
            order=order,
            place=places_of(order, len(facts.place)),
            reads=[[] if task in out else row for task, row in enumerate(facts.reads)],
            users=[[user for user in row if user not in out] for row in facts.users],
            makers=[[] if value in free else row for value, row in enumerate(facts.makers)],
            size=[0 if value in free else size for value, size in enumerate(facts.size)],
            here=[here or value in free for value, here in enumerate(facts.here)],
        ),
        undecided,
    )
