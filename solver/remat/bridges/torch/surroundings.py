"""Memory that lives outside the planned graphs of a step: what FSDP2 gathers, prefetches and reduces.

FSDP2 works in hooks, at which PyTorch breaks a module into graphs. The first step shows what the hooks hold: in each
interval between two graphs their peak, and while a graph runs the bytes that stay. This does not depend on the order of
the operators in the graphs. The plan of all graphs has a task for each interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from remat.bridges.torch.optimizers import Trained
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import DispatchMode, StorageWeakRef, pytree, torch


@dataclass
class Interval:
    """The interval between two graphs.

    Attributes
    ----------
    peak : int
        The most bytes of storages outside the graphs, and of gradients of the graphs that are freed in this interval.
    level : int
        Bytes outside the graphs at its end, which stay while the next graph runs.
    """

    peak: int = 0
    level: int = 0


@dataclass
class Observed:
    """The intervals of a step: before each forward, before each backward in reverse order, and after the last one.

    Attributes
    ----------
    intervals : list of Interval
    ends : dict of (int, int) to int
        For each gradient of a call, by its place, the interval in which it is freed; gradients that stay are missing.
    outputs : dict of (int, int) to int
        The same for the results of a call's forward.
    foreign : set of (int, int)
        Arguments, by call and place, that live outside the graphs, such as gathered parameters.
    parameters : int
        Bytes of the parameters as the rank holds them.
    trained : list of Trained
        Those that get a gradient.
    """

    parameters: int
    trained: list[Trained]
    intervals: list[Interval] = field(default_factory=list)
    ends: dict[tuple[int, int], int] = field(default_factory=dict)
    outputs: dict[tuple[int, int], int] = field(default_factory=dict)
    foreign: set[tuple[int, int]] = field(default_factory=set)

    def bars(self) -> Iterator[tuple[int, int, int]]:
        """Yield bytes, the interval that allocates them, and the interval that frees them; their sum is the level."""
        there: list[list[int]] = []
        level = 0
        for number, interval in enumerate(self.intervals):
            if interval.level > level:
                there.append([interval.level - level, number])
            left = level - interval.level
            while left > 0:
                part = min(left, there[-1][0])
                yield part, there[-1][1], number
                there[-1][0] -= part
                left -= part
                if not there[-1][0]:
                    there.pop()
            level = interval.level
        for size, begin in there:
            yield size, begin, len(self.intervals)

    def workspace(self, number: int) -> int:
        """Bytes of an interval in addition to those before or after it."""
        before = self.intervals[number - 1].level if number else 0
        return max(0, self.intervals[number].peak - max(before, self.intervals[number].level))


class Surroundings(DispatchMode):
    """Observes a step until the end of its backward; afterwards it passes operators on unobserved.

    Parameters
    ----------
    module : torch.nn.Module
    given : any
        The arguments of the call.
    """

    def __init__(self, module: Any, given: Any) -> None:
        super().__init__()
        local = [_local(parameter) for parameter in module.parameters()]
        fixed = [*local, *module.buffers(), *(part for part in pytree.tree_leaves(given) if _is_tensor(part))]
        self._fixed = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in map(_local, fixed)}
        sizes = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in local}
        trained = [
            Trained(tensor.untyped_storage().nbytes(), tuple(tensor.shape))
            for parameter, tensor in zip(module.parameters(), local, strict=True)
            if parameter.requires_grad
        ]
        self.observed = Observed(sum(sizes.values()), trained)
        self.backwards: list[int] = []
        self.active = True
        self.finished = False
        self._inside = False
        self._foreign: dict[int, Any] = {}
        self._own: dict[int, Any] = {}
        self._gradients: dict[tuple[int, int], Any] = {}
        self._outputs: dict[tuple[int, int], Any] = {}
        self._tangents: dict[int, Any] = {}
        self._entry = 0
        self._peak = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let compiled functions run below it."""
        return True

    # ------------------------------------------------------------------------------------- bytes

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and count the storages that it reads, writes and returns."""
        returned = function(*args, **(kwargs or {}))
        if self.active and not self._inside:
            for part in pytree.tree_leaves((args, kwargs, returned)):
                self._adopt(part)
            self._sample()
        return returned

    def _adopt(self, part: Any) -> None:
        if not _is_tensor(part) or part.layout != torch.strided or type(part).__name__ == "FakeTensor":
            return
        storage = _local(part).untyped_storage()
        key = storage._cdata
        if key not in self._fixed and key not in self._own and key not in self._foreign:
            self._foreign[key] = StorageWeakRef(storage)

    def _bytes(self, held: dict[int, Any]) -> int:
        total = 0
        for key, reference in list(held.items()):
            storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            if storage is None:
                del held[key]
            else:
                total += int(storage.nbytes())
        return total

    def _sample(self) -> int:
        now = self._bytes(self._foreign)
        self._peak = max(self._peak, now + self._bytes(self._own) - self._entry)
        return now

    # ------------------------------------------------------------------------------------- boundaries

    def given(self, call: int, arguments: list[Any]) -> None:
        """Note which arguments of a call live outside the graphs."""
        for place, part in enumerate(arguments):
            if _is_tensor(part) and part.untyped_storage()._cdata in self._foreign:
                self.observed.foreign.add((call, place))

    def take(self, tangents: Iterable[Any]) -> None:
        """Exclude the tangents of a backward, which the plan counts, unless other code holds them afterwards."""
        for _, storage in _storages(tangents):
            reference = self._foreign.pop(storage._cdata, None)
            if reference is not None:
                self._own[storage._cdata] = self._tangents[storage._cdata] = reference

    @contextmanager
    def graph(self) -> Iterator[list[Any]]:
        """End an interval, and begin another one when a graph has run; the graph's results are appended to the list."""
        self._end_interval()
        made: list[Any] = []
        self._inside = True
        try:
            yield made
        finally:
            self._inside = False
        for key, reference in self._tangents.items():
            del self._own[key]
            self._foreign[key] = reference
        self._tangents.clear()
        for _, storage in _storages(pytree.tree_leaves(made)):
            if storage._cdata not in self._fixed and storage._cdata not in self._foreign:
                self._own.setdefault(storage._cdata, StorageWeakRef(storage))
        self._entry = self._bytes(self._own)
        self._peak = self._bytes(self._foreign)

    def returned(self, call: int, outputs: Iterable[Any]) -> None:
        """Record the results of a call's forward."""
        self._outputs.update({(call, place): StorageWeakRef(storage) for place, storage in _storages(outputs)})

    def turn(self, call: int, gradients: Iterable[Any]) -> None:
        """Note the gradients that the backward of a call returned."""
        self.backwards.append(call)
        self._gradients.update({(call, place): StorageWeakRef(storage) for place, storage in _storages(gradients)})
        if len(self.backwards) == 1:
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end_interval(self) -> None:
        number = len(self.observed.intervals)
        level = self._sample()
        self.observed.intervals.append(Interval(self._peak, level))
        for held, ends in ((self._gradients, self.observed.ends), (self._outputs, self.observed.outputs)):
            for key in [key for key, reference in held.items() if reference.expired()]:
                del held[key]
                ends[key] = number

    def _end(self) -> None:
        """End the last interval, after the callbacks of FSDP2."""
        self._end_interval()
        self.active, self.finished = False, True
        self._fixed.clear()

    def begin(self) -> None:
        """Start observing."""
        self.__enter__()

    def leave(self) -> None:
        """Stop observing, and leave the mode if it is the innermost."""
        self.active = False
        modes: Any = import_module("torch.utils._python_dispatch")
        if modes._get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)

    def saw(self, calls: int) -> bool:
        """Whether it saw one forward of these calls, and their backwards.

        Raises
        ------
        TorchError
            If the backwards ran in another order than the reverse of the forwards.
        """
        if not self.finished or len(self.observed.intervals) != calls + len(self.backwards) + 1:
            return False
        if self.backwards != list(range(calls))[::-1]:
            raise TorchError(
                f"the {calls} graphs of the sharded module ran their backwards in the order "
                f"{', '.join(str(number + 1) for number in self.backwards)}; only the reverse order can be planned"
            )
        return True


def _is_tensor(part: Any) -> bool:
    return isinstance(part, torch.Tensor)


def _storages(parts: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield places and storages of the dense tensors among the parts."""
    for place, part in enumerate(parts):
        if _is_tensor(part) and part.layout == torch.strided:
            yield place, part.untyped_storage()


def _local(tensor: Any) -> Any:
    """Return the part of a distributed tensor that this rank holds; other tensors as they are."""
    return getattr(tensor, "_local_tensor", tensor)


__all__ = ["Interval", "Observed", "Surroundings"]
