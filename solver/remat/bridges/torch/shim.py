"""PyTorch for the type checkers, which run without it: the modules as `Any`, its base classes as plain classes."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from remat.bridges.torch.recording import TorchError
from remat.errors import MissingExtraError

OLDEST = (2, 13)
"""The oldest release with which the tests run."""

if find_spec("torch") is None:
    raise MissingExtraError("remat.torch", "torch", "PyTorch")

torch: Any = import_module("torch")
fx: Any = import_module("torch.fx")
pytree: Any = import_module("torch.utils._pytree")
StorageWeakRef: Any = import_module("torch.multiprocessing.reductions").StorageWeakRef


def check_release(release: str) -> None:
    """Refuse a PyTorch that is too old."""
    found = tuple(int(part) for part in release.split("+")[0].split(".")[:2])
    if found < OLDEST:
        raise TorchError(f"remat.torch needs PyTorch {'.'.join(map(str, OLDEST))} or later; here is {release}")


check_release(torch.__version__)

if TYPE_CHECKING:

    class DispatchMode:
        """Sees each operator that runs."""

        def __enter__(self) -> Any:
            """Begin."""

        def __exit__(self, *raised: object) -> None:
            """End."""

    class OptimizerBase:
        """Has groups of parameters, whose options schedulers change."""

        param_groups: list[dict[str, Any]]

        def __init__(self, groups: list[dict[str, Any]], defaults: dict[str, Any]) -> None:
            """Take groups of parameters."""

        def add_param_group(self, param_group: dict[str, Any]) -> None:
            """Take another group."""

else:
    from torch.optim import Optimizer as OptimizerBase
    from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode

__all__ = ["DispatchMode", "OptimizerBase", "StorageWeakRef", "fx", "pytree", "torch"]
