"""Changes of an instance or a machine that reduce a need, each with the bytes that are then needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remat.graph.taskgraph import GRADIENTS, PARAMETERS, STATES
from remat.instance.kinds import is_pipeline
from remat.plugin.problem import device_memories

if TYPE_CHECKING:
    from remat.graph.machine import Machine
    from remat.instance import Instance

MOST_SHARES = 1024
"""Maximum number of devices or ranks in a remedy."""

LEAST_SHARE = 5
"""Per cent of a batch, at the least, that a remedy names."""

TASK_ALONE = "a task alone takes"
TRAINING_ALONE = "parameters, gradients and states alone take"
TRAINING_OF_TASK = "parameters, gradients and states of a task alone take"
STATIC_ALONE = "static memory alone takes"
"""Why a remedy does not help."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy, and the minimum bytes of the memory with it, if activations do not change.

    Attributes
    ----------
    what : str
    need : int
        Necessary, not sufficient. If it is more than the capacity, the remedy alone is not enough.
    helps : bool
        False for a common remedy that does not help here.
    reason : str
        Why it does not help, before the bytes.
    """

    what: str
    need: int
    helps: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A need that exceeds a capacity, split by what a remedy can change.

    Attributes
    ----------
    size, capacity : int
    split : mapping of str to int
        Parameters, gradients and optimizer states of the memory, whether the need contains them or not.
    held : mapping of str to int
        Those that the need contains in addition to the critical task.
    touched : mapping of str to int
        Those that the critical task reads or writes.
    permanent : int
        Static bytes of no such purpose.
    task : int
        All bytes of the critical task.
    shared : bool
        Whether `split` is an equal share of each device of a pipeline.
    proved : bool
        Whether every schedule has this need.
    others : int
        What the largest task takes that touches no optimizer states.
    """

    size: int
    capacity: int
    split: Mapping[str, int]
    held: Mapping[str, int]
    touched: Mapping[str, int]
    permanent: int
    task: int
    shared: bool
    proved: bool
    others: int = 0

    @property
    def whatever_the_batch(self) -> int:
        """Bytes of the need that the size of the batch does not change."""
        return self.permanent + sum(self.held.values()) + sum(self.touched.values())

    def movable(self, *terms: str) -> int:
        """Return the bytes of terms that may leave the memory: all but those of a forward or backward that runs."""
        held = sum(self.held.get(term, 0) for term in terms)
        updates = STATES in self.touched
        return held + (sum(self.touched.get(term, 0) for term in terms) if updates else 0)


def remedies(instance: Instance, machine: Machine, need: Need, *, divisible: bool) -> Iterator[Remedy]:
    """Yield changes that reduce a need.

    Parameters
    ----------
    instance : Instance
    machine : Machine
    need : Need
    divisible : bool
        Whether a schedule may divide micro-batches or layers among devices.

    Yields
    ------
    Remedy

    Notes
    -----
    O(log of `MOST_SHARES`).
    """
    if is_pipeline(instance):
        yield from _more_devices(instance, machine, need, divisible=divisible)
    elif need.split:
        yield from _elsewhere(need)
        yield from _shared(instance, need)
    if instance.kind in ("chain", "pipeline"):
        yield from _smaller_batch(instance, machine, need, divisible=divisible)


def _more_devices(instance: Instance, machine: Machine, need: Need, *, divisible: bool) -> Iterator[Remedy]:
    first = machine.memories[machine.processors[0].memory]
    room, alone = first.capacity or 0, need.task + first.static
    if alone > room:
        if not divisible:
            yield Remedy("more devices", alone, helps=False, reason=TASK_ALONE)
        return
    devices = len(machine.processors)
    whole = sum(need.split.values()) * (devices if need.shared else 1)
    count = max(devices + 1, -(-whole // room) if room else 0)
    if whole and count <= MOST_SHARES:
        each = "" if instance.ranks == 1 else " of each rank"
        least = max(alone, -(-whole // count))
        yield Remedy(f"at least {count} devices{each}, for parameters, gradients and states of each", least)


def _elsewhere(need: Need) -> Iterator[Remedy]:
    left = need.movable(GRADIENTS, STATES)  # gradients go where the states are
    if not (need.split.get(STATES) and left):
        return
    yield Remedy("gradients and optimizer states at the host", max(need.others, need.size - left))
    if parameters := need.movable(PARAMETERS):
        yield Remedy("parameters at the host, too", max(need.others, need.size - left - parameters))


def _shared(instance: Instance, need: Need) -> Iterator[Remedy]:
    """Yield ZeRO stage 3, for the bytes that ranks do not share yet."""
    sharding = getattr(instance, "sharding", None)
    ranks, stage = instance.ranks, 0 if sharding is None else sharding.zero
    whole = [term for term, since in ((STATES, 1), (GRADIENTS, 2), (PARAMETERS, 3)) if stage < since]
    counted, count = need.movable(*whole), max(2, ranks)
    if not counted:
        return
    rest = need.size - counted
    while count < MOST_SHARES and rest + -(-counted // count) > need.capacity:
        count *= 2
    left = max(need.others, rest + -(-counted // count))
    if left <= need.capacity:
        who = "devices or ranks" if ranks == 1 else "ranks"
        yield Remedy(f"{count} {who} that share parameters, gradients and states (ZeRO stage 3)", left)


def _smaller_batch(instance: Instance, machine: Machine, need: Need, *, divisible: bool) -> Iterator[Remedy]:
    own, training = need.whatever_the_batch, sum(need.split.values())
    gradients = need.split.get(GRADIENTS, 0)
    begin = need.permanent + training - gradients  # whatever may leave later
    fixed = begin if begin > need.capacity else own
    if is_pipeline(instance):  # layers stay on their devices; gradients may leave for another memory
        others = len(machine.memories) > max(1, len(device_memories(instance, machine)))
        fixed = max(own, begin if others else begin + gradients)
    fixed_place = is_pipeline(instance) and not divisible
    certain = need.proved or fixed > own or fixed_place or len(machine.memories) == 1
    varying = need.size - fixed
    share = 100 * (need.capacity - fixed) // varying if varying > 0 else 0
    if share >= LEAST_SHARE:
        yield Remedy(f"a batch of at most {share} % of this one", fixed + varying * share // 100)
    elif need.capacity < fixed and certain:
        of_task = fixed == own and sum(need.touched.values()) > sum(need.held.values())
        reason = TRAINING_OF_TASK if of_task else TRAINING_ALONE if fixed > need.permanent else STATIC_ALONE
        yield Remedy("a smaller batch", fixed, helps=False, reason=reason)
