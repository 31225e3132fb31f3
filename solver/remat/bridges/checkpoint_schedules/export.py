"""Plans of remat as schedules of the public package `checkpoint_schedules`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from remat.bridges.checkpoint_schedules.actions import BridgeAction, Read, Write, bridge_actions, storage_types, tidy
from remat.bridges.checkpoint_schedules.events import Walker, layout_of
from remat.errors import MissingExtraError, OptionError
from remat.solving.result import Result


def to_checkpoint_schedules(plan: Result, *, storage: Mapping[str, str] | None = None) -> Any:
    """Return a plan as a schedule of the public package `checkpoint_schedules`, for pyadjoint, Firedrake, tlm_adjoint.

    Parameters
    ----------
    plan : Result
        The result of an adjoint, from `remat.solve`.
    storage : mapping of str to str, optional
        ``"RAM"`` or ``"DISK"`` for each level that the plan uses. Default: the first is RAM, the second DISK; one level
        alone is RAM, unless its name is disk.

    Returns
    -------
    checkpoint_schedules.CheckpointSchedule
        For one adjoint calculation, with its `max_n` known.

    Raises
    ------
    remat.MissingExtraError
        If the package is not installed: ``pip install 'remat[adjoint]'``.
    remat.OptionError
        If the plan has no schedule, more than two levels, or steps that no action expresses (see
        `remat.bridges.checkpoint_schedules.actions`).
    """
    try:
        package: Any = import_module("checkpoint_schedules")
    except ImportError:
        raise MissingExtraError("to_checkpoint_schedules", "adjoint") from None
    steps, types, actions = _plan(plan, storage)

    class Planned(package.CheckpointSchedule):  # type: ignore[misc]
        """A schedule that remat has planned."""

        def __init__(self) -> None:
            super().__init__(steps)
            self._exhausted = False

        def _iterator(self) -> Iterator[Any]:
            for action in actions:
                made = _made(package, action)
                if action.name == "Forward":
                    self._n = made.n1
                elif action.name == "Reverse":
                    self._r += 1
                elif action.name in ("Copy", "Move"):
                    self._n = made.n
                elif action.name == "EndReverse":
                    self._exhausted = True
                yield made

        @property
        def is_exhausted(self) -> bool:
            """Whether the schedule has concluded."""
            return self._exhausted

        def uses_storage_type(self, storage_type: Any) -> bool:
            """Whether the schedule uses a type of storage."""
            return storage_type in {package.StorageType[kind] for kind in types}

    return Planned()


def actions_for_checkpoint_schedules(
    plan: Result, *, storage: Mapping[str, str] | None = None
) -> Iterator[BridgeAction]:
    """Yield the actions of `to_checkpoint_schedules` without the package: class names, and arguments.

    Parameters and errors are the same.
    """
    return _plan(plan, storage)[2]


def _plan(plan: Result, storage: Mapping[str, str] | None) -> tuple[int, set[str], Iterator[BridgeAction]]:
    """Return the number of steps, the storage types in use, and the actions."""
    layout = layout_of(plan)
    if layout is None:
        raise OptionError("checkpoint_schedules is for adjoints (time loops); this result is of another kind")
    if plan.columns is None:
        raise OptionError(f"there is no schedule to convert: the result is {plan.status}")
    memories = [memory.name for memory in plan.machine.memories]
    events = list(Walker(layout, memories).walk(plan.columns))
    given = {memories[place]: 0 for place in _places_of_x0(plan)}
    tidied = tidy(events, given)
    used = [name for name in memories if any(isinstance(e, (Read, Write)) and e.level == name for e in tidied)]
    types = storage_types(used, storage) if used else {}
    steps = layout.last + 1
    # Convert everything at once, so that inexpressible plans are refused before iteration.
    return steps, set(types.values()), iter(list(bridge_actions(tidied, steps, types)))


def _places_of_x0(plan: Result) -> list[int]:
    index = plan.machine.memory_index
    return [index[place.memory] for place in plan.graph.inputs if place.memory is not None and index[place.memory] > 0]


def _made(package: Any, action: BridgeAction) -> Any:
    """Return the package's object for an action."""
    arguments = [package.StorageType[value] if isinstance(value, str) else value for value in action.arguments]
    return getattr(package, action.name)(*arguments)
