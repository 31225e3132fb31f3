"""Schedules of chains in one memory, as a program that runs stages follows them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Value = tuple[Literal["x", "s", "y"], int]
"""An activation, the saved values of a forward, or a gradient, by the number of its stage (0: the input)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A run of a stage, and the values that it frees at its end; the loss is a run of stage 0."""

    kind: Literal["F", "Fe", "loss", "B"]
    stage: int
    drop: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Forget:
    """Values that are freed between runs."""

    drop: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Back:
    """A value that comes back from another memory."""

    value: Value


def chain_steps(document: Mapping[str, Any], length: int) -> list[Stage | Forget]:
    """Return the steps of a schedule document of a chain with so many stages.

    Parameters
    ----------
    document : mapping
        In execution order, or with start times.
    length : int

    Returns
    -------
    list of Stage or Forget
        Every run finds what it reads. Nothing that a saving forward has read or made is freed and made again
        before the backward of its stage, since the saved graph would hold it.

    Raises
    ------
    ValueError
        For another program's schedule, variants of stages, copies to other memories, and such a value.
    """
    listed = list(document.get("steps", ()))
    if any("start" in step for step in listed):
        listed.sort(key=lambda step: step.get("start", 0))
    steps = [read_step(step, length) for step in listed]
    check_steps(steps, length)
    return steps


def read_step(step: Mapping[str, Any], length: int) -> Stage | Forget:
    """Read one step of a schedule document of a chain with so many stages."""
    if "copy" in step:
        raise ValueError(f"it copies {step['copy']} to {step.get('to')}; blocks have one memory")
    drop = tuple(_value(name, length) for name in step.get("drop", ()))
    if "run" not in step:
        return Forget(drop)
    name = str(step["run"])
    if name == "loss":
        return Stage("loss", 0, drop)
    found = re.fullmatch(r"(Fe|F|B)([1-9]\d*)", name)
    if found is None or int(found[2]) > length:
        raise ValueError(f"it runs {name!r}; expected F1 to B{length} and the loss")
    return Stage(found[1], int(found[2]), drop)  # type: ignore[arg-type]


def _value(name: Any, length: int) -> Value:
    found = re.fullmatch(r"([xsy])(\d+)", str(name))
    if found is None or int(found[2]) > length:
        raise ValueError(f"it drops {name!r}; expected activations x0 to x{length}, s1 to s{length}, y0 to y{length}")
    return found[1], int(found[2])  # type: ignore[return-value]


def check_steps(steps: Iterable[Stage | Forget | Back], length: int, *, apart: bool = False) -> None:
    """Follow the steps, and refuse runs without their reads.

    Parameters
    ----------
    steps : iterable
    length : int
    apart : bool
        Whether saved graphs do not hold the activations that their forwards have read and made.
    """
    resident: set[Value] = {("x", 0)}
    todo = [f"B{number}" for number in range(1, length + 1)]
    lost = False
    for step in steps:
        if isinstance(step, Back):
            resident.add(step.value)
            continue
        if isinstance(step, Stage):
            number = step.stage
            name = f"{step.kind}{number}" if number else "loss"
            for value in _reads(step, length):
                if value not in resident:
                    raise ValueError(f"{name} reads {value[0]}{value[1]}, which is not there")
            if step.kind in ("F", "Fe") and ("s", number) in resident:
                raise ValueError(f"it runs {name} while s{number} is resident, whose graph already holds its results")
            if step.kind == "B" and (not todo or todo.pop() != name):
                raise ValueError(f"{name} runs out of order or twice")
            if step.kind == "loss" and lost:
                raise ValueError("it runs the loss twice")
            lost = lost or step.kind == "loss"
            resident.update(_writes(step, length))
        resident.difference_update(step.drop)
        for kind, number in step.drop:
            if kind == "x" and ("s", number + 1) in resident and not apart:
                raise ValueError(f"it drops x{number}, which the graph of s{number + 1} holds; `rotor` drops no such")
    if todo or not lost:
        raise ValueError(f"it does not run {todo[-1] if todo else 'the loss'}")


def _reads(step: Stage, length: int) -> tuple[Value, ...]:
    match step.kind:
        case "loss":
            return (("x", length),)
        case "B":
            return ("x", step.stage - 1), ("s", step.stage), ("y", step.stage)
        case _:
            return (("x", step.stage - 1),)


def _writes(step: Stage, length: int) -> tuple[Value, ...]:
    match step.kind:
        case "loss":
            return (("y", length),)
        case "B":
            return (("y", step.stage - 1),)
        case "F":
            return (("x", step.stage),)
        case _:
            return ("x", step.stage), ("s", step.stage)
