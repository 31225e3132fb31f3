"""What `torch.utils.checkpoint` really runs in eager PyTorch, read back as runs of a captured step.

A dispatch mode sees each operator of a step on fake tensors, and whether it runs in the forward, in a block that is
computed again (with the early stop that eager has by default), or in the backward. Operators of a block are told by
their number in it; the rest is aligned with the joint graph by operator and shape.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

BLOCKS = ("Bottleneck", "Dense", "GPT2Block", "BertLayer")
"""Classes of modules that are checkpointed one by one."""

RENAMED = {
    "native_batch_norm": "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit": "_native_batch_norm_legit_functional",
}


def blocks_of(module: Any, kinds: tuple[str, ...] = BLOCKS) -> list[Any]:
    """Return the blocks of a network, in order."""
    return [part for part in module.modules() if type(part).__name__ in kinds]


@contextmanager
def checkpointed(blocks: list[Any], inside: Any = None) -> Iterator[None]:
    """Checkpoint these blocks within the context; `inside` is asked for a context around each forward of one."""
    checkpoint: Any = import_module("torch.utils.checkpoint").checkpoint
    for number, block in enumerate(blocks):

        def forward(*args: Any, _block: Any = block, _number: int = number, **kwargs: Any) -> Any:
            plain = type(_block).forward

            def run(*args: Any, **kwargs: Any) -> Any:
                if inside is None:
                    return plain(_block, *args, **kwargs)
                with inside(_number):
                    return plain(_block, *args, **kwargs)

            return checkpoint(run, *args, use_reentrant=False, **kwargs)

        block.forward = forward
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


@dataclass(frozen=True)
class Seen:
    """An operator that ran and made a storage.

    Attributes
    ----------
    key : tuple
        Operator and shapes of what it returned.
    phase : str
        ``forward``, ``again`` or ``backward``.
    place : tuple of int, optional
        Block, and number among the operators of that block.
    """

    key: tuple[Any, ...]
    phase: str
    place: tuple[int, int] | None = None


def _key(name: str, tensors: list[Any]) -> tuple[Any, ...]:
    plain = name.removeprefix("aten.").rpartition(".")[0].rstrip("_")
    plain = RENAMED.get(plain, plain)
    return plain, tuple(tuple(tensor.shape) for tensor in tensors[:1])


@dataclass
class Record:
    """What a step ran, and the peak of the storages that were alive."""

    seen: list[Seen] = field(default_factory=list)
    peak: int = 0


def record(module: Any, args: Any, kwargs: Any, blocks: list[int]) -> Record:
    """Run a step in eager PyTorch on fake tensors, with some of its blocks checkpointed."""
    torch: Any = import_module("torch")
    fakes: Any = import_module("torch._subclasses.fake_tensor")
    pytree: Any = import_module("torch.utils._pytree")
    live: Any = import_module("remat.bridges.torch.measure")
    mode = fakes.FakeTensorMode()
    fake = copy.deepcopy(module)
    for part in fake.modules():
        for table in (part._parameters, part._buffers):
            table.update({name: mode.from_tensor(held) for name, held in table.items() if held is not None})
    args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
    found = Record()
    state: dict[str, Any] = {"phase": "forward", "block": None, "number": 0}

    @contextmanager
    def inside(number: int) -> Iterator[None]:
        state.update(block=number, number=0)
        try:
            yield
        finally:
            state.update(block=None)

    class Recorder(live.LiveStorages):  # type: ignore[misc]
        """Notes each operator that makes a storage."""

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = {storage._cdata for storage in live.storages_in((args, kwargs or {}))}
            returned = super().__torch_dispatch__(function, types, args, kwargs)
            made = [t for t in pytree.tree_leaves(returned) if isinstance(t, torch.Tensor)]
            looks = all(tensor.untyped_storage()._cdata in given for tensor in made)
            if not made or (looks and not function._schema.is_mutable):
                return returned
            late, block = state["phase"] == "backward", state["block"]
            place = None if block is None else (block, state["number"])
            state["number"] += 1
            phase = "again" if late and block is not None else state["phase"]
            found.seen.append(Seen(_key(str(function), made), phase, place))
            return returned

    chosen = blocks_of(fake)
    counted = [*fake.parameters(), *fake.buffers(), *pytree.tree_leaves((args, kwargs))]
    with mode, checkpointed([chosen[number] for number in blocks], inside), Recorder(counted) as recorder:
        returned = fake(*args, **kwargs)
        loss = returned if isinstance(returned, torch.Tensor) else returned["loss"]
        state["phase"] = "backward"
        loss.backward()
    found.peak = recorder.peak
    return found


def runs_of(captured: Any, recorded: Record) -> tuple[list[str], int]:
    """Return the runs of a captured step that stand for what eager PyTorch ran, and how many operators have none.

    The first runs are in the order of the joint graph; what is computed again comes where it came in eager. Operators
    that the joint graph has not, since it merges equal ones or leaves out dead ones, are left out, and so are reruns
    of what writes into buffers: both in favour of checkpointing.
    """
    boundary = import_module("remat.bridges.torch.joint").BOUNDARY
    joint = captured.joint
    tasks = [task for task in joint.tasks.values() if not task.from_mask]
    turn = next(index for index, task in enumerate(tasks) if task.name == boundary)

    def keyed(names: list[Any]) -> list[tuple[Any, ...]]:
        return [_key(joint.nodes[t.node].operator, _tensors(joint, t)) for t in names]

    early, late = tasks[:turn], tasks[turn + 1 :]
    first = [seen for seen in recorded.seen if seen.phase == "forward"]
    stands = dict(_aligned([seen.key for seen in first], keyed(early)))
    by_place = {seen.place: early[stands[i]] for i, seen in enumerate(first) if i in stands and seen.place is not None}
    rest = [seen for seen in recorded.seen if seen.phase == "backward"]
    behind = dict(_aligned([seen.key for seen in rest], keyed(late)))
    runs = [task.name for task in tasks[: turn + 1]]
    done = number = 0
    missing = len(first) - len(stands) + len(rest) - len(behind)
    for seen in recorded.seen:
        if seen.phase == "backward":
            if number in behind:
                runs += [task.name for task in late[done : behind[number] + 1]]
                done = max(done, behind[number] + 1)
            number += 1
        elif seen.phase == "again" and seen.place in by_place and by_place[seen.place].again:
            runs.append(by_place[seen.place].name)
    runs += [task.name for task in late[done:]]
    return runs, missing


def _tensors(joint: Any, task: Any) -> list[Any]:
    return [held for held in joint.nodes[task.node].tensors if held is not None]


def _aligned(one: list[Any], two: list[Any]) -> Iterator[tuple[int, int]]:
    """Yield pairs of places at which two lists agree, increasing in both."""
    for a, b, length in difflib.SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks():
        yield from zip(range(a, a + length), range(b, b + length), strict=True)
