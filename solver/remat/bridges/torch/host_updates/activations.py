"""Activations and saved tensors of blocks that leave for a host and return within a step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remat.bridges.torch.blocks import Block, BlockRunner, Saved
from remat.bridges.torch.host_updates.slots import HostMemory
from remat.bridges.torch.measure import unseen
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.bridges.torch.transfers import Away, Transfers, transfers_for
from remat.solving.host_order.program import Program


class Part:
    """A storage that the graph of a block reads.

    Attributes
    ----------
    tensor : tensor or None
        Of the whole storage; None while it is away, or while it is an activation.
    """

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


@dataclass(frozen=True)
class Look:
    """A saved tensor: where it looks at a part."""

    part: Part
    kind: Any
    shape: tuple[int, Any, Any]

    def tensor(self) -> Any:
        """Return the tensor again."""
        assert self.part.tensor is not None
        with unseen():
            empty = torch.empty(0, dtype=self.kind, device=self.part.tensor.device)
            return empty.set_(self.part.tensor.untyped_storage(), *self.shape)


@dataclass
class SavedParts(Saved):
    """The saved tensors of a forward, in storages that can be offloaded.

    Attributes
    ----------
    found : list
        The gradient of the block's input, once it is there.
    parts : list of weak references to Part
        The storages that only the graph holds.
    given, made : Part or None
        Those of the block's input and result, which `activations` hold.
    """

    found: list[Any] = field(default_factory=list)
    parts: list[Callable[[], Part | None]] = field(default_factory=list)
    given: Part | None = None
    made: Part | None = None

    def gradient(self) -> Any:
        """Return the gradient of the block's input, after the backward."""
        return self.found.pop() if self.found else None

    def bind(self, activations: Mapping[int, Any], stage: int) -> None:
        """Let the graph read and hold the activations, as it does in PyTorch."""
        for part, number in ((self.given, stage - 1), (self.made, stage)):
            if part is not None:
                part.tensor = activations.get(number)
        self.given = self.made = None

    def own(self) -> Iterator[Part]:
        """Yield the storages that can be offloaded."""
        for known in self.parts:
            part = known()
            if part is not None and part is not self.given and part is not self.made:
                yield part


class PartsRunner(BlockRunner):
    """Runs blocks; a saving forward holds its tensors in parts, and not those of its input and result."""

    def saving(self, index: int, tensor: Any, *, needs: bool) -> tuple[Any, Saved]:
        """Run a forward that saves for the backward; `needs`: whether its input needs a gradient."""
        found: list[Any] = []  # the gradient: a leaf would hold the input
        packer = _Packer(tensor, self._fixed(index))
        leaf = tensor.detach()
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(packer.pack, _unpack):
            made = self._run(index, _Entry.apply(found, torch.empty(0, requires_grad=True), leaf) if needs else leaf)
        edge = torch.autograd.graph.get_gradient_edge(made) if made.requires_grad else None
        out = made.detach()
        saved = SavedParts(None, edge, found, packer.parts, packer.given)
        if _key(out) == _key(tensor):
            out = out.clone()
        else:
            saved.made = packer.known.get(_key(out))
            if saved.made is not None:
                saved.made.tensor = None
        packer.given.tensor = None
        return out, saved

    def _fixed(self, index: int) -> set[int]:
        """Return the storages that stay where they are: of parameters, buffers, and other arguments."""
        module = self.blocks[index].module
        others = [leaf for leaf in self.call(index).leaves if isinstance(leaf, torch.Tensor)]
        return {_key(one) for one in (*module.parameters(), *module.buffers(), *others) if _is_plain(one)}


class _Packer:
    """Saved tensors of a forward, by storage."""

    def __init__(self, given: Any, fixed: set[int]) -> None:
        self.fixed = fixed
        self.known: weakref.WeakValueDictionary[int, Part] = weakref.WeakValueDictionary()
        self.parts: list[Callable[[], Part | None]] = []
        self.given = self._part(given)

    def pack(self, tensor: Any) -> Any:
        if not _is_plain(tensor) or _key(tensor) in self.fixed:
            return tensor
        part = self.known.get(_key(tensor)) or self._part(tensor)
        shape = (tensor.storage_offset(), tensor.size(), tensor.stride())
        return Look(part, tensor.dtype, shape)

    def _part(self, tensor: Any) -> Part:
        with unseen():
            part = Part(torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()))
        self.known[_key(tensor)] = part
        self.parts.append(weakref.ref(part))
        return part


def _unpack(packed: Any) -> Any:
    return packed.tensor() if isinstance(packed, Look) else packed


def _is_plain(tensor: Any) -> bool:
    """Whether a tensor looks at one storage in a way that `Look` describes."""
    return bool(tensor.layout == torch.strided and not tensor.is_conj() and not tensor.is_neg())


def _key(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


class _Input:
    """The input of a block, whose gradient is kept without the input."""

    @staticmethod
    def forward(ctx: Any, found: list[Any], anchor: Any, given: Any) -> Any:
        del anchor
        ctx.found = found
        return given

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.found.append(gradient)
        return None, None, None


_Entry: Any = type("_Entry", (_Input, torch.autograd.Function), {})


class Stays:
    """Activations and saved tensors at the host.

    Parameters
    ----------
    blocks : sequence of Block
    memory : HostMemory
    device : torch.device
    program : Program
        Has the bytes of what each block saves.
    """

    def __init__(self, blocks: Sequence[Block], memory: HostMemory, device: Any, program: Program) -> None:
        self.blocks, self.memory = blocks, memory
        self.sizes = dict(zip(program.graph.values, program.graph.size.tolist(), strict=True))
        self.transfers: Transfers = transfers_for(device)

    def send(self, tensor: Any, what: str) -> Copy:
        """Copy a storage to the host."""
        return Copy(tensor, self.transfers, self.memory, what)

    def send_parts(self, saved: SavedParts, stage: int) -> Iterator[tuple[Part, Copy]]:
        """Copy the saved tensors of a block to the host."""
        name = self.blocks[stage - 1].name
        parts = list(saved.own())
        missing = self.sizes[f"s{stage}"] - sum(int(part.tensor.nbytes) for part in parts)
        if missing > 0:
            raise TorchError(
                f"block {name} keeps {missing} B for its backward that PyTorch's hooks for saved tensors do not see, "
                "and that cannot leave"
            )
        for part in parts:
            yield part, self.send(part.tensor, f"what {name} saved")


class Copy:
    """A copy of a storage at the host, whose bytes are given back with it."""

    def __init__(self, tensor: Any, transfers: Transfers, memory: HostMemory, what: str) -> None:
        size = int(tensor.untyped_storage().nbytes())
        memory.take(size, what)
        self._give = weakref.finalize(self, memory.give, size)
        self.transfers = transfers
        self.away: Away = transfers.offload({"": tensor})

    def fetch(self) -> Any:
        """Take memory on the device, copy the storage there, and return the tensor."""
        return self.transfers.reload(self.away)[""]

    def wait(self) -> None:
        """Let later operations begin after the latest copy."""
        self.transfers.wait(self.away)

    def release(self) -> None:
        """Give the memory of the host back."""
        self.transfers.release(self.away)
        self._give()


__all__ = ["Copy", "Part", "PartsRunner", "SavedParts", "Stays"]
