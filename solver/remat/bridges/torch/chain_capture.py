"""`remat.torch.chain`: bytes and times of a module's blocks, measured in one training step, as a chain."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from remat.bridges.torch.blocks import Block, BlockStep, check_uncompiled, check_unplanned, check_unsharded, find_blocks
from remat.bridges.torch.host_updates.chains import BlockHost, check_alone, device_of
from remat.bridges.torch.measure import LiveStorages, microseconds, storages_in, unseen
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import pytree, torch
from remat.bridges.torch.step_memory import dominate
from remat.bridges.torch.transfers import HOST
from remat.errors import OptionError
from remat.instance import ChainInstance, load
from remat.solving.entry import solve
from remat.units import format_budget, format_size


def chain(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    blocks: str | Sequence[str],
    repeats: int = 3,
    away: Mapping[str, Any] | None = None,
    accumulate: bool = False,
) -> ChainInstance:
    """Measure a training step of a module, block by block, and return it as an instance of kind `chain`.

    The step keeps one block's saved tensors at a time. It leaves parameters, gradients, buffers and generators as they
    were.

    Parameters
    ----------
    module : torch.nn.Module
        Returns the loss, or a result that contains it.
    args, kwargs : sequence, mapping
        As the module is called; schedules are for these shapes.
    blocks : str or sequence of str
        Names of the submodules that are the stages: ``layers.*``. The module calls them one after the other, each once,
        with the result of the one before. Operators before the first and after the last block are not planned: their
        saved tensors count as static memory, and as workspace of the loss.
    repeats : int
        Steps that are timed; times are medians, in whole microseconds.
    away : mapping, optional
        The parameters of the blocks, their gradients and states are at a host: ``host`` (its bytes), ``optimizer``,
        and ``link`` and ``host_bandwidth``, which are measured by default, as for `remat.torch.compile`. With a
        ``staleness`` of 1, steps follow each other without end, and updates count one step later.
    accumulate : bool
        Gradients of all parameters exist before the step, as in the second of several backward passes before
        ``optimizer.step()``. They are not counted, so that a budget bounds activations, their gradients, and the
        gradient of one operator's parameters until it is added. By default, no gradient exists before the step
        (``zero_grad(set_to_none=True)``), and the gradients that the step makes count.

    Returns
    -------
    ChainInstance
        Bytes are those of live storages. Parameters, buffers and arguments are not counted. The gradient of an
        activation includes those of the parameters up to this point of the backward. A warning says so if gradients
        of parameters take more than half of the peak without recomputation.

    Raises
    ------
    TorchError
        If the module does not call its blocks as a chain, or a block cannot run again.
    """
    if repeats < 1:
        raise OptionError(f"expected a number of steps, at least 1, not {repeats}", argument="repeats")
    found = find_blocks(module, blocks)
    check_unplanned(module)
    check_uncompiled(module)
    check_unsharded(module.named_modules())
    given = (tuple(args), dict(kwargs or {}))
    host = None if away is None else _read_away(away, accumulate=accumulate)
    if host is not None:
        check_alone(module, found)
    with as_before(module, given):
        measured = _Bytes(module, found, given, accumulate=accumulate).step()
        timed = [_Times(module, found, given, accumulate=accumulate).step() for _ in range(repeats)]
    document = {
        "schema": "remat.instance/1",
        "kind": "chain",
        "name": type(module).__name__,
        "source": f"PyTorch, blocks {blocks if isinstance(blocks, str) else ', '.join(blocks)}; times measured",
        "units": {"time": "us", "memory": "B"},
        "in_place": True,
        **measured.document([block.name for block in found], timed, host),
    }
    if host is not None:
        document |= {"schema": "remat.instance/2", "machine": host.machine(device_of(found))}
        document |= {"parameter_memory": HOST, "optimizer_memory": HOST, **host.delayed()}
    instance: ChainInstance = load(document)  # type: ignore[assignment]
    note = "" if host is not None else _note_on_gradients(instance, measured.gradients)
    if note:
        warnings.warn(note, stacklevel=2)
    return instance


def _note_on_gradients(instance: ChainInstance, gradients: int) -> str:
    """Say so if gradients of parameters take more than half of what a schedule uses without recomputation."""
    peak = solve(instance, algorithm="keep-all").peak_memory["memory"]
    if not dominate(gradients, peak):
        return ""
    return (
        f"gradients of parameters take {format_size(gradients)}, and the peak without recomputation is "
        f"{format_budget(peak)}; recomputation does not reduce gradients; with accumulate=True they exist before the "
        "step, and the budget does not cover them"
    )


def _read_away(away: Mapping[str, Any], *, accumulate: bool) -> BlockHost:
    if accumulate:
        raise OptionError("gradients of earlier steps are at the host, not on the device", argument="accumulate")
    for name in away:
        if name not in BlockHost.__dataclass_fields__:
            known = ", ".join(BlockHost.__dataclass_fields__)
            raise OptionError(f"there is no {name!r}; known are {known}", argument="away")
    for name in ("host", "optimizer"):
        if name not in away:
            raise OptionError(f"no {name}: give away={{'host': '64GB', 'optimizer': 'adamw'}}", argument="away")
    return BlockHost(**away)


@contextmanager
def as_before(module: Any, given: Any) -> Iterator[None]:
    """Restore buffers, gradients and generators at the end."""
    tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    trained = [tensor for tensor in (*module.parameters(), *tensors) if tensor.requires_grad and tensor.is_leaf]
    gradients = [tensor.grad for tensor in trained]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    devices = {tensor.device for tensor in (*module.parameters(), *tensors) if tensor.device.type == "cuda"}
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            for tensor, gradient in zip(trained, gradients, strict=True):
                tensor.grad = gradient
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


class _Measured(BlockStep):
    """One training step in which every block runs forward, and again with saving when its gradient arrives."""

    def __init__(self, module: Any, blocks: Sequence[Block], given: Any, *, accumulate: bool) -> None:
        super().__init__(blocks)
        self.module = module
        self.given = given
        self.count = len(blocks)
        for tensor in (*module.parameters(), *_tensors(given)):
            if tensor.is_leaf:
                tensor.grad = torch.zeros_like(tensor) if accumulate and tensor.requires_grad else None

    def run(self) -> None:
        """Run forward and backward."""
        with torch.enable_grad():
            returned = self.call(self.module, *self.given)
        loss_of(returned).backward()


def _tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def loss_of(returned: Any) -> Any:
    """Return the loss: the first scalar of a floating-point type that has a gradient."""
    for tensor in _tensors(returned):
        if tensor.dim() == 0 and tensor.is_floating_point() and tensor.requires_grad:
            return tensor
    raise TorchError("the module returns no scalar that depends on the blocks: a loss is needed")


@dataclass
class _Stage:
    """Bytes of a block; `*_above` is how far a run rises above the level at its begin."""

    output: int = 0
    saved: int = 0
    reads_output: bool = True
    forward_above: int = 0
    saving_above: int = 0
    backward_above: int = 0
    gradient: int = 0
    parameters: int = 0


class _Bytes(_Measured):
    """The step in which bytes are counted."""

    def __init__(self, module: Any, blocks: Sequence[Block], given: Any, *, accumulate: bool) -> None:
        super().__init__(module, blocks, given, accumulate=accumulate)
        fixed = (*module.parameters(), *module.buffers(), *_tensors(given))
        counted = (*fixed, *(tensor.grad for tensor in fixed if tensor.is_leaf and tensor.grad is not None))
        self.fixed = {storage._cdata for storage in storages_in(list(counted))}
        self.live = LiveStorages(counted)
        self.stages = [_Stage() for _ in blocks]
        self.input = self.static = self.after_blocks = 0
        self.loss_above = self.arrived = self.last_gradient = 0
        self.head_peak = 0

    def step(self) -> _Bytes:
        """Run it."""
        with self.live:
            self.run()
        self.head_peak = self.live.peak - self.static
        return self

    @property
    def gradients(self) -> int:
        """Bytes of the gradients of parameters that the step makes."""
        return self.arrived - self.last_gradient + sum(stage.parameters for stage in self.stages)

    def begin(self, given: Any) -> None:
        self.input = self._size(given)
        self.static = self.live.level() - self.input

    def _size(self, tensor: Any) -> int:
        if tensor is None or tensor.untyped_storage()._cdata in self.fixed:
            return 0
        return int(tensor.untyped_storage().nbytes())

    def forward(self, index: int) -> Any:
        level = self.live.level()
        made = self.plain(index)
        self.stages[index].forward_above = self.live.peak - level
        self.activations[index + 1] = made
        self.stages[index].output = self._size(made)
        self.after_blocks = self.live.level()
        return made.detach()

    def backward(self, index: int, gradient: Any) -> Any:
        live, stage = self.live, self.stages[index]
        if index + 1 == self.count:
            self.loss_above = live.peak - self.after_blocks
            self.arrived = live.level() - self.after_blocks
            self.last_gradient = self._size(gradient)
        del self.activations[index + 1]
        buffers = self._buffers(index)
        level = live.level()
        made, saved = self.saving(index)
        self._check_buffers(index, buffers)
        stage.saving_above = live.peak - level
        with_output = live.level()
        stage.saved = with_output - level - stage.output
        del made
        stage.reads_output = live.level() == with_output
        before = live.level()
        found = self.runner.backward(saved, gradient)
        stage.backward_above = live.peak - before
        del saved
        fresh = found is not None and (gradient is None or found.untyped_storage()._cdata != _key(gradient))
        stage.gradient = self._size(found)
        stage.parameters = live.level() - level - (stage.gradient if fresh else 0)
        if index == 0:
            del self.activations[0]
            live.level()
        return found

    def _buffers(self, index: int) -> dict[str, Any]:
        with unseen():
            return {name: buffer.clone() for name, buffer in self.runner.blocks[index].module.named_buffers()}

    def _check_buffers(self, index: int, before: Mapping[str, Any]) -> None:
        """Refuse a block that writes buffers when it is recomputed."""
        block = self.runner.blocks[index]
        with unseen():
            for name, buffer in block.module.named_buffers():
                if not torch.equal(buffer, before[name]):
                    raise TorchError(
                        f"block {block.name} writes its buffer {name} whenever it runs; only running statistics of "
                        "normalisations are written once"
                    )

    def document(self, names: Sequence[str], timed: Sequence[_Times], host: BlockHost | None = None) -> dict[str, Any]:
        """Return sizes, and times of other steps, as part of an instance document.

        A task that drops its inputs may overwrite them (`in_place`). The workspace of a run is therefore its peak
        minus the larger of the bytes that are resident before and after it. Gradients of parameters count together
        with those of activations, from the backward that writes them, unless they are sent to a host.
        """
        count = len(self.stages)
        held = [self.arrived - self.last_gradient] * (count + 1)
        gradient = [*(stage.gradient for stage in self.stages), self.last_gradient]
        leaving = [0 if host is None else stage.parameters for stage in self.stages]
        for index in reversed(range(count)):
            held[index] = held[index + 1] + self.stages[index].parameters - leaving[index]
        head_peak = self.head_peak - sum(leaving[1:])
        of_host: list[dict[str, Any]] = (
            [{} for _ in self.stages] if host is None else host.stages(self.runner.blocks, leaving)
        )
        listed = []
        for index, stage in enumerate(self.stages):
            given = self.stages[index - 1].output if index else self.input
            before = given + stage.saved + (stage.output if stage.reads_output else 0)
            before += gradient[index + 1] + held[index + 1]
            after = gradient[index] + held[index] if index else (self.input if gradient[0] else 0)
            after += given if index and self.stages[index - 1].reads_output else 0
            weight = of_host[index].get("parameter_size", 0)
            least = max(before + weight, after + leaving[index]) - weight
            forward = 0 if weight else max(given, stage.output) - given  # parameters are not overwritten
            top = before + stage.backward_above
            if index == 0:
                top = max(top, head_peak)
            listed.append(
                {
                    "name": names[index],
                    "forward_time": microseconds(step.forwards[index] for step in timed),
                    "saving_forward_time": microseconds(step.savings[index] for step in timed),
                    "backward_time": microseconds(step.backwards[index] for step in timed),
                    "output_size": stage.output,
                    "saved_size": stage.saved,
                    "forward_workspace": stage.forward_above - forward,
                    "saving_workspace": max(0, stage.saving_above - stage.output - stage.saved),
                    "backward_workspace": max(0, top - least),
                    "gradient_size": gradient[index + 1] + held[index + 1],
                    "backward_reads": ["input", "output", "saved"] if stage.reads_output else ["input", "saved"],
                    **of_host[index],
                }
            )
        last = self.stages[-1]
        there = last.output + self.arrived if last.reads_output else max(last.output, self.arrived)
        workspace = max(0, last.output + self.loss_above - there)
        return {
            "input_size": self.input,
            "input_gradient": gradient[0] > 0,
            "static_memory": self.static,
            "stages": listed,
            "loss": {"time": microseconds(step.loss for step in timed), "workspace": workspace},
        }


def _key(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


class _Times(_Measured):
    """A step that is timed."""

    def __init__(self, module: Any, blocks: Sequence[Block], given: Any, *, accumulate: bool) -> None:
        super().__init__(module, blocks, given, accumulate=accumulate)
        count = len(blocks)
        self.forwards, self.savings, self.backwards = [0.0] * count, [0.0] * count, [0.0] * count
        self.loss = self.mark = 0.0

    def step(self) -> _Times:
        """Run it."""
        self.run()
        return self

    def begin(self, given: Any) -> None:
        del given
        self._lap()

    def _lap(self) -> float:
        """Return the seconds since the last call."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        before, self.mark = self.mark, time.perf_counter()
        return self.mark - before

    def forward(self, index: int) -> Any:
        self._lap()
        made = self.plain(index)
        self.forwards[index] = self._lap()
        self.activations[index + 1] = made
        return made.detach()

    def backward(self, index: int, gradient: Any) -> Any:
        took = self._lap()
        if index + 1 == self.count:
            self.loss = took
        del self.activations[index + 1]
        _, saved = self.saving(index)
        self.savings[index] = self._lap()
        found = self.runner.backward(saved, gradient)
        self.backwards[index] = self._lap()
        return found


__all__ = ["chain"]
