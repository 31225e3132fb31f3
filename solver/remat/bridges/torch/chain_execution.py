"""`remat.torch.apply`: run a module's blocks as a schedule of a chain says, in eager mode."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from remat.bridges.torch.applied_module import planned_copy
from remat.bridges.torch.blocks import (
    Block,
    BlockRunner,
    BlockStep,
    Saved,
    check_uncompiled,
    check_unplanned,
    check_unsharded,
    find_blocks,
    intercepted,
)
from remat.bridges.torch.host_updates.activations import Copy, Part, PartsRunner, SavedParts, Stays
from remat.bridges.torch.host_updates.blocks_program import (
    Event,
    Move,
    Ready,
    events_of,
    has_parameters,
    moves_activations,
    program_of,
)
from remat.bridges.torch.host_updates.chains import check_alone, device_of
from remat.bridges.torch.host_updates.optimizer import HostOptimizer
from remat.bridges.torch.host_updates.weights import Weights
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.documents import read_document
from remat.errors import OptionError
from remat.schedule.chain_steps import Forget, Stage, chain_steps
from remat.solving.result import Result


def apply(module: Any, schedule: Any, *, blocks: str | Sequence[str], optimizer: Any = None) -> Any:
    """Return the module with its blocks run as a schedule says; it is called, trained and saved as before.

    Without gradients (`torch.no_grad`) the blocks run as always.

    Parameters
    ----------
    module : torch.nn.Module
        Returns the loss. The returned module shares its parameters, buffers and submodules.
    schedule : remat.Result, path or dict
        A schedule of the module's `remat.torch.chain`.
    blocks : str or sequence of str
        As for `remat.torch.chain`.
    optimizer : HostOptimizer, optional
        A result of `remat.torch.host_optimizer`, for a `remat.Result` whose parameters are at a host. From then on, the
        blocks have their parameters on the device only while the schedule says so.

    Returns
    -------
    torch.nn.Module
        An instance of the module's class with the same keys in its `state_dict`. Its mode and attributes are its own.
        Copies and saved modules keep the plan and run their own blocks.

    Raises
    ------
    TorchError
        If the schedule is not one of a chain of these blocks, or drops a value that PyTorch's graph of a block holds.

    Notes
    -----
    A rerun repeats the random numbers and the autocast of a block's first run, and updates no running statistics. Hooks
    of a block's submodules run again at each recomputation; hooks of the block itself run once.
    """
    found = find_blocks(module, blocks)
    check_unplanned(module)
    check_uncompiled(module)
    check_unsharded(module.named_modules())
    if isinstance(schedule, Result) and schedule.columns is None:
        raise TorchError(f"there is no schedule: {schedule.status}")
    if has_parameters(schedule):
        return _apply_with_host(module, schedule, found, optimizer)
    if optimizer is not None:
        raise OptionError("it needs a remat.Result whose parameters are at a host", argument="optimizer")
    return planned_copy(module, _Steps(tuple(block.name for block in found), tuple(_steps_of(schedule, found))))


@dataclass(frozen=True)
class _Steps:
    """A plan of blocks whose parameters stay on the device.

    Attributes
    ----------
    names : tuple of str
        Names of the blocks.
    steps : tuple of Stage and Forget
    """

    names: tuple[str, ...]
    steps: tuple[Stage | Forget, ...]

    def run(self, module: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call `own`, the forward of the module, with its blocks run as planned."""
        if not torch.is_grad_enabled():
            return own(*args, **kwargs)
        blocks = [Block(name, module.get_submodule(name)) for name in self.names]
        return _Step(blocks, self.steps).call(own, args, kwargs)


def _apply_with_host(module: Any, schedule: Result, blocks: Sequence[Block], optimizer: Any) -> Any:
    """Return the module with blocks whose parameters are at a host between their uses."""
    if not isinstance(optimizer, HostOptimizer):
        raise OptionError(
            "the schedule has parameters at a host: give remat.torch.host_optimizer", argument="optimizer"
        )
    check_alone(module, blocks)
    late = getattr(schedule.instance, "staleness", None)
    if late and not optimizer.stale:
        raise OptionError(f"the schedule has a staleness of {late}, and the optimizer one of 0", argument="optimizer")
    program = program_of(schedule)
    with _refusing(blocks):
        events = events_of(program, len(blocks))
    weights = Weights(blocks, optimizer)
    stays = Stays(blocks, optimizer.memory, device_of(blocks), program) if moves_activations(program) else None
    planned = planned_copy(module, _HostedSteps(blocks, events, weights, stays))
    planned.__dict__["program"] = program
    return planned


@dataclass(frozen=True)
class _HostedSteps:
    """A plan of blocks whose parameters are at a host between their uses; it cannot be copied."""

    blocks: Sequence[Block]
    events: Sequence[Event]
    weights: Weights
    stays: Stays | None

    def run(self, module: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call `own`, the forward of the module, with its blocks run as planned."""
        blocks, weights = self.blocks, self.weights
        for block in blocks:
            if module.get_submodule(block.name) is not block.module:
                raise TorchError(f"{block.name} was replaced after apply: its parameters are not at the host")
        if torch.is_grad_enabled():
            with weights.running():
                return _HostedStep(blocks, self.events, weights, self.stays).call(own, args, kwargs)
        runner = BlockRunner(blocks)

        def handle(index: int, given: Any, named: Any) -> Any:
            with weights.there(index):
                return runner.forwards[index](*given, **named)

        with weights.running(), intercepted(blocks, handle):
            return own(*args, **kwargs)

    def __reduce_ex__(self, _: Any) -> Any:
        """Refuse copies and files: the host has one copy of the parameters."""
        raise TorchError("a module with parameters at the host cannot be copied or pickled; save its state_dict()")


def _steps_of(schedule: Any, blocks: Sequence[Block]) -> list[Stage | Forget]:
    """Return the steps of a schedule that these blocks can follow."""
    if isinstance(schedule, Result):
        schedule = schedule.to_dict()
    elif not isinstance(schedule, Mapping):
        schedule = read_document(os.fspath(schedule))
    with _refusing(blocks):
        return chain_steps(schedule, len(blocks))


@contextmanager
def _refusing(blocks: Sequence[Block]) -> Iterator[None]:
    """Refuse a schedule whose steps these blocks cannot follow."""
    try:
        yield
    except ValueError as error:
        raise TorchError(f"the schedule does not go with {len(blocks)} blocks: {error}") from None


class _Step(BlockStep):
    """One training step: the resident values, and the current position in the schedule."""

    def __init__(self, blocks: Sequence[Block], steps: Sequence[Event]) -> None:
        super().__init__(blocks)
        self.steps = steps
        self.next = 0
        self.made: Any = None
        self.saved: dict[int, Saved] = {}
        self.gradients: dict[int, Any] = {}

    def forward(self, index: int) -> Any:
        """Follow the schedule to the first run of a block, and return its result."""
        while self.made is None:
            step = self.steps[self.next]
            self._follow(step, wanted=index)
        made, self.made = self.made, None
        return made

    def backward(self, index: int, gradient: Any) -> Any:
        """Follow the schedule to the backward of a block, and return the gradient of its input."""
        count = len(self.runner.blocks)
        if index + 1 == count:
            self._pass_loss()
        self.gradients[index + 1] = gradient
        del gradient
        while self.next < len(self.steps):
            step = self.steps[self.next]
            if isinstance(step, Stage) and step.kind == "B":
                if step.stage != index + 1:
                    name = self.runner.blocks[index].name
                    raise TorchError(f"the gradient of block {name} arrives out of order or twice")
                found = self._backward(step)
                self._finish_drops()
                return found
            self._follow(step)
        raise TorchError("the graph of this step has run backward before; a schedule runs once")

    def _pass_loss(self) -> None:
        """Follow the schedule over the loss, which has run, unless an earlier backward has done so."""
        while self.next < len(self.steps):
            step = self.steps[self.next]
            if isinstance(step, Stage) and step.kind == "loss":
                self.next += 1
                self._drop(step.drop)
                return
            if isinstance(step, Stage) and step.kind == "B":
                return
            self._follow(step)

    def _finish_drops(self) -> None:
        while self.next < len(self.steps) and not isinstance(self.steps[self.next], Stage):
            self._follow(self.steps[self.next])

    def _follow(self, step: Event, wanted: int = -1) -> None:
        """Execute one step other than the loss or a backward."""
        self.next += 1
        if isinstance(step, (Move, Ready)):
            self._move(step)
            return
        if isinstance(step, Stage):
            index = step.stage - 1
            if step.kind == "F":
                made = self.plain(index)
            else:
                made, self.saved[step.stage] = self.saving(index)
            self.activations[step.stage] = made
            if index == wanted:
                self.made = made.detach()
        self._drop(step.drop)

    def _move(self, step: Move | Ready) -> None:
        """Move parameters or their gradients, or free them."""
        raise NotImplementedError

    def _backward(self, step: Stage) -> Any:
        saved = self.saved[step.stage]
        self.activations.pop(step.stage, None)  # no later step reads it, and PyTorch's graph frees it early
        found = self.runner.backward(saved, self.gradients[step.stage])
        self.next += 1
        if step.stage > 1:
            self.gradients[step.stage - 1] = found
        del saved
        self._drop(step.drop)
        return found

    def _drop(self, values: Sequence[tuple[str, int]]) -> None:
        homes: dict[str, dict[int, Any]] = {"x": self.activations, "s": self.saved, "y": self.gradients}
        for kind, number in values:
            homes[kind].pop(number, None)


class _HostedStep(_Step):
    """One training step whose blocks get their parameters from a host, and may have activations there."""

    def __init__(self, blocks: Sequence[Block], steps: Sequence[Event], weights: Weights, stays: Stays | None) -> None:
        super().__init__(blocks, steps)
        self.weights, self.stays = weights, stays
        self.away: dict[tuple[str, int], list[tuple[Part | None, Copy]]] = {}
        if stays is not None:
            self.runner = PartsRunner(blocks)

    def forward(self, index: int) -> Any:
        """Follow the schedule to the first run of a block, and through all events before the next run."""
        made = super().forward(index)
        self._finish_drops()
        return made

    def _pass_loss(self) -> None:
        super()._pass_loss()
        self._finish_drops()

    def _backward(self, step: Stage) -> Any:
        saved = self.saved[step.stage]
        if isinstance(saved, SavedParts):
            saved.bind(self.activations, step.stage)
        del saved
        found = super()._backward(step)
        self.saved.pop(step.stage, None)
        return found

    def _move(self, step: Move | Ready) -> None:
        if isinstance(step, Move):
            match step.kind:
                case "w":
                    self.weights.fetch(step.stage - 1)
                case "g":
                    self.weights.send(step.stage - 1)
                case _ if step.leaves:
                    self._send(step.kind, step.stage)
                case _:
                    self._fetch(step.kind, step.stage)
            return
        for move in step.moves:
            if move.kind in ("w", "g"):
                self.weights.wait(move.kind, move.stage - 1)
            for _, one in self.away.get((move.kind, move.stage), ()):
                one.wait()
        for kind, stage in step.drop:
            self.weights.release(stage - 1) if kind == "w" else self.weights.forget(stage - 1)
        for key in step.drop_at_host:
            for _, one in self.away.pop(key, ()):
                one.release()

    def _send(self, kind: str, stage: int) -> None:
        """Copy the result or the saved tensors of a block to the host."""
        assert self.stays is not None
        if kind == "x":
            name = self.runner.blocks[stage - 1].name if stage else "the input"
            self.away[kind, stage] = [(None, self.stays.send(self.activations[stage], f"the result of {name}"))]
        else:
            saved = self.saved[stage]
            assert isinstance(saved, SavedParts)
            self.away[kind, stage] = list(self.stays.send_parts(saved, stage))

    def _fetch(self, kind: str, stage: int) -> None:
        for part, one in self.away[kind, stage]:
            if part is None:
                self.activations[stage] = one.fetch()
            else:
                part.tensor = one.fetch()

    def _drop(self, values: Sequence[tuple[str, int]]) -> None:
        for value in values:
            if value[0] == "s" and value in self.away:
                for part, _ in self.away[value]:
                    assert part is not None
                    part.tensor = None
            else:
                super()._drop((value,))
