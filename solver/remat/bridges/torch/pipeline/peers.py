"""The ranks of a pipeline: their agreement on a plan, and the end of all ranks after a failure of one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from typing import Any

from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.messages import first_line, reason

_KEY = "remat.failure"


class Peers:
    """The ranks of a process group; `open` creates a separate group for transfers.

    Parameters
    ----------
    group : ProcessGroup or None
        Default: all ranks.

    Raises
    ------
    TorchError
        If `torch.distributed` has no process group, or this rank is not in `group`.
    """

    def __init__(self, group: Any) -> None:
        self._dist: Any = import_module("torch.distributed")
        if not self._dist.is_available() or not self._dist.is_initialized():
            raise TorchError("the process group is not initialised: call torch.distributed.init_process_group first")
        ranks = self._dist.get_process_group_ranks(group)
        if self._dist.get_rank() not in ranks:
            raise TorchError(f"rank {self._dist.get_rank()} is not in the group of the pipeline")
        self._given, self._ranks = group, ranks
        self.group: Any = None
        self.rank = int(self._dist.get_rank(group))
        self.size = len(ranks)
        self.failure = ""

    def open(self) -> None:
        """Create the group for transfers."""
        self.group = self._dist.new_group(self._ranks, use_local_synchronization=True)

    def agree(self, said: Sequence[tuple[str, str]], problem: Exception | None) -> None:
        """Check that no rank has a problem, and that all ranks agree.

        Parameters
        ----------
        said : sequence of (str, str)
            Names of things, and their digests.
        problem : Exception or None

        Raises
        ------
        Exception
            This rank's own problem.
        TorchError
            Another rank's problem, or its end, or the first thing that differs.
        """
        told = None if problem is None else _line_of(problem)
        heard: list[Any] = [None] * self.size
        try:
            self._dist.all_gather_object(heard, (told, list(said)), group=self._given)
        except RuntimeError as error:
            if problem is not None:
                raise problem from None
            raise TorchError(f"another rank has ended: {_line_of(error)}") from error
        if problem is not None:
            raise problem
        for rank, (other, _) in enumerate(heard):
            if other is not None:
                raise TorchError(f"rank {rank}: {other}")
        for rank, (_, other) in enumerate(heard):
            for (name, own), (_, its) in zip(heard[0][1], other, strict=True):
                if own != its:
                    raise TorchError(f"ranks 0 and {rank} have different {name}")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let a failure in the context end the others, and report the first failure of any rank.

        Raises
        ------
        TorchError
            The same on all ranks.
        """
        if self.failure:
            raise TorchError(f"the pipeline has ended: {self.failure}")
        logger = logging.getLogger("torch.distributed.pipelining.schedules")
        silent, logger.disabled = logger.disabled, True  # it logs the whole schedule
        try:
            yield
        except BaseException as error:
            self.failure = self._tell(error)
            self._close()
            if not isinstance(error, Exception):
                raise
            raise TorchError(self.failure) from error
        finally:
            logger.disabled = silent

    def add_gradients(self, parameter: Any, ranks: Sequence[int]) -> None:
        """Sum the gradients of a parameter over the ranks that share it, in the order of the ranks.

        Parameters
        ----------
        parameter : torch.nn.Parameter
        ranks : sequence of int
            At least two, ascending; other ranks return at once.
        """
        if self.rank not in ranks:
            return
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        total = parameter.grad.contiguous()
        if self.rank == ranks[0]:
            for other in ranks[1:]:
                found = torch.empty_like(total)
                self._dist.recv(found, group=self.group, group_src=other)
                total += found
            for other in ranks[1:]:
                self._dist.send(total, group=self.group, group_dst=other)
        else:
            self._dist.send(total, group=self.group, group_dst=ranks[0])
            self._dist.recv(total, group=self.group, group_src=ranks[0])
        parameter.grad = total

    def _tell(self, error: BaseException) -> str:
        """Record a failure unless another rank has recorded one, and return the first one."""
        own = f"rank {self.rank} failed: {_line_of(error)}"
        with suppress(Exception):
            first = self.group.get_group_store().compare_set(_KEY, "", own)
            return str(first.decode())
        return own

    def _close(self) -> None:
        """End all transfers of the group, here and at the other ends."""
        with suppress(Exception):
            if self._dist.get_backend(self.group) != "gloo":
                self.group.abort()
            elif self.size > 1:
                # A receive that times out closes gloo's connections, which its abort does not.
                other = (self.rank + 1) % self.size
                work = self._dist.irecv(torch.empty(1), group=self.group, group_src=other, tag=1)
                work.wait(timedelta(milliseconds=1))


def _line_of(error: BaseException) -> str:
    """Return the root cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(str(error)) if isinstance(error, TorchError) else reason(error)
