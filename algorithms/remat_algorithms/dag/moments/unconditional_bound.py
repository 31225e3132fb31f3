"""The bound of one moment for all schedules, independent of tasks that may run before or after it."""

from __future__ import annotations

from dataclasses import replace

from remat_algorithms.dag.moments.before_first_run import Free
from remat_algorithms.dag.moments.integer_facts import Facts, places_of


def surely(facts: Facts, at: int) -> tuple[Facts, list[int]]:
    """Return the facts without the tasks that may run before or after a moment, and these tasks.

    If such a task has run, its outputs may be gone, and it does not require their recomputation. If it has not run, it
    does not require its inputs at the moment. Without its reads, and with its outputs present at no cost, the program
    of the moment in the listed order of the other tasks therefore bounds all schedules.
    """
    undecided = [task for task, known in enumerate(Free(facts).before(at)) if known is None]
    if not undecided:
        return facts, []
    out = set(undecided)
    free = {value for task in undecided for value in facts.writes[task]}
    # Their effect is void, so they move to the end of the order.
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
