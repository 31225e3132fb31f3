"""Named blocks of a module that are called one after the other, executed outside of PyTorch's graph of the step."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import pytree, torch

PLANNED, AT_HOST, COMPILED = "_remat_planned", "_remat_at_host", "_remat"
"""Attributes of a module that `apply` returned, of a block at a host, and of a module that `compile` has changed."""


def check_unplanned(module: Any) -> None:
    """Refuse a module that `apply` returned, and one whose blocks have their parameters at a host."""
    for name, part in module.named_modules():
        if part.__dict__.get(AT_HOST):
            raise TorchError(
                f"{name or 'the module'} has its parameters at a host already: an earlier apply has moved them; "
                "to plan again, build the module anew and load its state_dict()"
            )
    for name, part in module.named_modules():
        if part.__dict__.get(PLANNED):
            raise TorchError(
                f"{name or 'the module'} was returned by apply and has a plan; to plan again, give the one before apply"
            )


def check_uncompiled(module: Any) -> None:
    """Refuse a module that `remat.torch.compile` has changed: PyTorch's graphs hide the calls of blocks."""
    for name, part in module.named_modules():
        if COMPILED in part.__dict__:
            raise TorchError(
                f"{name or 'the module'} was compiled by remat.torch.compile and has a plan; give it before compile"
            )


def check_unsharded(named: Iterable[tuple[str, Any]]) -> None:
    """Refuse modules that FSDP2 shards: its hooks change the tensors between blocks, and gather parameters once."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # without it, no module is sharded
    for name, part in named if fsdp is not None else ():
        if isinstance(part, fsdp.FSDPModule):  # type: ignore[union-attr]
            raise TorchError(
                f"FSDP2 shards {name or 'the module'}, whose blocks therefore cannot run one by one; use "
                "remat.torch.compile, which plans modules that FSDP2 shards"
            )


@dataclass(frozen=True)
class Block:
    """A block: its name among the module's submodules, and the submodule."""

    name: str
    module: Any


def find_blocks(module: Any, patterns: str | Sequence[str]) -> tuple[Block, ...]:
    """Return the submodules that match, in the order of the patterns, then of the module.

    Parameters
    ----------
    module : torch.nn.Module
    patterns : str or sequence of str
        Names of submodules; ``*`` stands for one part of a name: ``layers.*`` matches ``layers.0``, not
        ``layers.0.norm``.

    Raises
    ------
    TorchError
        If a pattern matches nothing, or one block is inside another.
    """
    if not isinstance(module, torch.nn.Module):
        raise TorchError(f"expected a torch.nn.Module that returns the loss, not {type(module).__name__}")
    named = dict(module.named_modules())
    found: dict[str, Any] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        parts = (re.escape(part).replace(r"\*", "[^.]*") for part in pattern.split("."))
        expression = re.compile(r"\.".join(parts))
        matching = {name: part for name, part in named.items() if name and expression.fullmatch(name)}
        if not matching:
            known = ", ".join(sorted({re.sub(r"\d+", "*", name) for name in named if name})[:6])
            raise TorchError(f"no submodule is named {pattern!r}; there are {known}")
        found.update(matching)
    for name in found:
        outer = next((other for other in found if name.startswith(f"{other}.")), None)
        if outer is not None:
            raise TorchError(f"block {name} is inside of block {outer}; blocks must not overlap")
    return tuple(Block(name, part) for name, part in found.items())


@dataclass
class Call:
    """The call of a block in a forward: its arguments without the tensor of the previous block.

    Attributes
    ----------
    leaves, form : list, TreeSpec
        The flattened arguments, None in the place of the tensor.
    place : int
        Where among the leaves the tensor belongs.
    autocast : list of (device type, dtype, enabled, cache enabled)
    random : list of tensors or None
        States of the generators before the first run; None if that drew no numbers.
    leaves_out, form_out, place_out : list, TreeSpec, int
        The same for the result of the block.
    runs : int
    """

    leaves: list[Any]
    form: Any
    place: int
    autocast: list[tuple[str, Any, bool, bool]]
    random: list[Any] | None = None
    leaves_out: list[Any] = field(default_factory=list)
    form_out: Any = None
    place_out: int = 0
    runs: int = 0

    def returned(self, tensor: Any) -> Any:
        """Return the block's result with its tensor replaced by another one."""
        leaves = list(self.leaves_out)
        leaves[self.place_out] = tensor
        return pytree.tree_unflatten(leaves, self.form_out)


@dataclass
class Saved:
    """The graph of a saving forward between `leaf` and `edge`, for the backward; no edge without gradients."""

    leaf: Any
    edge: Any

    def gradient(self) -> Any:
        """Return the gradient of the block's input, after the backward."""
        return self.leaf.grad


class BlockRunner:
    """Runs the blocks of a forward, each any number of times, with the effects of a single run.

    A rerun draws the random numbers of the first run, under its autocast, and updates no running statistics.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self.forwards = [block.module.forward for block in blocks]
        self.calls: list[Call | None] = [None] * len(blocks)

    def enter(self, index: int, args: Any, kwargs: Any, before: Any) -> Any:
        """Record the call of a block and return its input: the result of the previous block, or the first input.

        Parameters
        ----------
        index : int
        args, kwargs : tuple, mapping
            As the model calls the block.
        before : tensor or None
            The result of the previous block.
        """
        name = self.blocks[index].name
        leaves, form = pytree.tree_flatten((args, kwargs))
        tensors = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        if before is None:
            wanted = [place for place in tensors if leaves[place].requires_grad]
            wanted += [place for place in tensors if leaves[place].is_floating_point()]
        else:
            wanted = [place for place in tensors if leaves[place] is before]
        if not wanted:
            what = "the output of the block before it, unchanged" if index else "a floating-point tensor"
            raise TorchError(f"block {name} does not take {what}; blocks are called one after the other")
        place = wanted[0]
        tensor, leaves[place] = leaves[place], None
        if any(leaves[other].requires_grad for other in tensors if other != place):
            raise TorchError(f"block {name} takes a second tensor that needs a gradient; a chain has one")
        self.calls[index] = Call(leaves, form, place, autocast_of({"cpu", tensor.device.type}))
        return tensor

    def call(self, index: int) -> Call:
        """Return the call of a block, which must have been entered."""
        call = self.calls[index]
        if call is None:
            raise TorchError(f"the schedule runs block {self.blocks[index].name} before the model calls it")
        return call

    def plain(self, index: int, tensor: Any, *, needs: bool) -> Any:
        """Run a forward that saves nothing, and return its tensor.

        It runs as if it saved, since PyTorch may choose other kernels without gradients.
        """
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(_forget, _forgotten):
            made = self._run(index, tensor.detach().requires_grad_(needs)).detach()
        return made.clone() if _same_storage(made, tensor) else made

    def saving(self, index: int, tensor: Any, *, needs: bool) -> tuple[Any, Saved]:
        """Run a forward that saves for the backward; `needs`: whether its input needs a gradient."""
        leaf = tensor.detach().requires_grad_(needs)
        with torch.enable_grad():
            made = self._run(index, leaf)
        edge = torch.autograd.graph.get_gradient_edge(made) if made.requires_grad else None
        out = made.detach()
        return out.clone() if _same_storage(out, tensor) else out, Saved(leaf, edge)

    def backward(self, saved: Saved, gradient: Any) -> Any:
        """Run a backward: add to the parameters' gradients, and return that of the block's input."""
        if saved.edge is not None and gradient is not None:
            edge, saved.edge = saved.edge, None
            torch.autograd.backward([edge], [gradient])
        return saved.gradient()

    def _run(self, index: int, tensor: Any) -> Any:
        call, block = self.call(index), self.blocks[index]
        first = call.runs == 0
        call.runs += 1
        version = tensor._version
        devices = generators(tensor)
        torch.clear_autocast_cache()
        with ExitStack() as stack:
            before = random_states(devices)
            if not first:
                stack.enter_context(_without_statistics(block.module))
                if call.random is not None:
                    stack.callback(set_random, devices, before)
                    set_random(devices, call.random)
                for kind, dtype, enabled, cached in call.autocast:
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=cached))
            leaves = list(call.leaves)
            leaves[call.place] = tensor
            args, kwargs = pytree.tree_unflatten(leaves, call.form)
            try:
                returned = self.forwards[index](*args, **kwargs)
            except RuntimeError as error:
                if "leaf Variable" in str(error) and "in-place" in str(error):
                    raise self._in_place(block) from error
                raise
        torch.clear_autocast_cache()
        if first and any(not torch.equal(*pair) for pair in zip(before, random_states(devices), strict=True)):
            call.random = before
        if tensor._version != version:
            raise self._in_place(block)
        return self._tensor_of(call, block, returned)

    @staticmethod
    def _in_place(block: Block) -> TorchError:
        return TorchError(f"block {block.name} writes into its input, so it cannot be recomputed; make it not in-place")

    def _tensor_of(self, call: Call, block: Block, returned: Any) -> Any:
        leaves, form = pytree.tree_flatten(returned)
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        if len(places) != 1:
            raise TorchError(f"block {block.name} returns {len(places)} tensors; a block of a chain returns one")
        tensor, leaves[places[0]] = leaves[places[0]], None
        call.leaves_out, call.form_out, call.place_out = leaves, form, places[0]
        return tensor


def _forget(_: Any) -> None:
    """Keep nothing of a tensor that an operator saves."""


def _forgotten(_: Any) -> Any:
    raise AssertionError("a forward that saves nothing has no backward")


def _same_storage(one: Any, other: Any) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def autocast_of(kinds: set[str]) -> list[tuple[str, Any, bool, bool]]:
    """Return the autocast of types of devices: type, dtype, whether it is on, and whether it caches."""
    cached = torch.is_autocast_cache_enabled()
    return [
        (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind), cached)
        for kind in sorted(kinds)
        if torch.amp.is_autocast_available(kind)
    ]


def generators(tensor: Any) -> list[Any]:
    """Return the devices whose generators a block on this tensor may use; None is the CPU."""
    return [None, *([] if tensor.device.type == "cpu" else [tensor.device])]


def random_states(devices: list[Any]) -> list[Any]:
    """Return the states of the generators of devices."""
    return [
        torch.get_rng_state() if device is None else getattr(torch, device.type).get_rng_state(device)
        for device in devices
    ]


def set_random(devices: list[Any], states: list[Any]) -> None:
    """Set the states of the generators of devices."""
    for device, state in zip(devices, states, strict=True):
        if device is None:
            torch.set_rng_state(state)
        else:
            getattr(torch, device.type).set_rng_state(state, device)


@contextmanager
def _without_statistics(module: Any) -> Iterator[None]:
    """Let normalisations in training use the statistics of the batch without updating their running statistics."""
    changed = [part for part in module.modules() if part.training and getattr(part, "track_running_stats", False)]
    for part in changed:
        part.track_running_stats = False
    try:
        yield
    finally:
        for part in changed:
            part.track_running_stats = True


@contextmanager
def intercepted(blocks: Sequence[Block], handle: Callable[[int, Any, Any], Any]) -> Iterator[None]:
    """Let `handle(index, args, kwargs)` answer the model's calls of its blocks."""
    own = [block.module.__dict__.get("forward") for block in blocks]

    def replacement(index: int) -> Callable[..., Any]:
        return lambda *args, **kwargs: handle(index, args, kwargs)

    for index, block in enumerate(blocks):
        block.module.forward = replacement(index)
    try:
        yield
    finally:
        for block, forward in zip(blocks, own, strict=True):
            if forward is None:
                block.module.__dict__.pop("forward", None)
            else:
                block.module.forward = forward


class BlockStep:
    """One training step whose blocks a subclass runs: the model calls them in order, and PyTorch their backwards.

    Attributes
    ----------
    runner : BlockRunner
    activations : dict of int to tensor
        By the block that made them; 0 is the first block's input.
    needs_first : bool
        Whether that input needs a gradient.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.runner = BlockRunner(blocks)
        self.activations: dict[int, Any] = {}
        self.needs_first = False
        self._called = 0
        self._last: Any = None
        self._anchor = torch.empty(0, requires_grad=True)

    def call(self, model: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the model, with its blocks run by `forward`."""
        blocks = self.runner.blocks
        check_unsharded((block.name, block.module) for block in blocks)
        with intercepted(blocks, self._enter):
            returned = model(*args, **kwargs)
        self._last = None
        if self._called < len(blocks):
            raise TorchError(f"the model does not call block {blocks[self._called].name}")
        return returned

    def _enter(self, index: int, args: Any, kwargs: Any) -> Any:
        names = [block.name for block in self.runner.blocks]
        if index != self._called:
            expected = f"{names[self._called]} is the next" if self._called < len(names) else "all have run"
            raise TorchError(f"the model calls block {names[index]} where {expected}; blocks run once each, in order")
        given = self.runner.enter(index, args, kwargs, self._last)
        if index == 0:
            self.activations[0] = given.detach()
            self.needs_first = given.requires_grad
            self.begin(given)
        self._last = tensor = _Run.apply(self, index, self._anchor, given)
        self._called += 1
        return self.runner.call(index).returned(tensor)

    def begin(self, given: Any) -> None:
        """Record the first block's input."""

    def forward(self, index: int) -> Any:
        """Run a block's forward, and return its tensor."""
        raise NotImplementedError

    def backward(self, index: int, gradient: Any) -> Any:
        """Run a block's backward, and return the gradient of its input."""
        raise NotImplementedError

    def plain(self, index: int) -> Any:
        """Run a forward of a block that saves nothing."""
        return self.runner.plain(index, self.activations[index], needs=index > 0 or self.needs_first)

    def saving(self, index: int) -> tuple[Any, Saved]:
        """Run a saving forward of a block."""
        return self.runner.saving(index, self.activations[index], needs=index > 0 or self.needs_first)


_once_differentiable: Callable[[Any], Any] = torch.autograd.function.once_differentiable


class _Function:
    """A block in PyTorch's own graph of the step, which saves nothing there."""

    @staticmethod
    def forward(ctx: Any, step: BlockStep, index: int, _: Any, given: Any) -> Any:
        ctx.step, ctx.index = step, index
        ctx.set_materialize_grads(False)
        del given
        return step.forward(index)

    @staticmethod
    @_once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        if not torch.autograd._is_checkpoint_valid():
            raise TorchError("gradients of blocks come by backward() without inputs, not by torch.autograd.grad")
        return None, None, None, ctx.step.backward(ctx.index, gradient)


_Run: Any = type("_Run", (_Function, torch.autograd.Function), {})
