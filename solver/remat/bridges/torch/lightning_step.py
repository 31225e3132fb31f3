"""The training step of a module of Lightning, whose Trainer calls `training_step` instead of the module."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import pytree, torch

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
LOGS = ("log", "log_dict")


def is_lightning(module: Any) -> bool:
    """Whether a module is a `LightningModule` with a training step."""
    return is_lightning_class(type(module))


def is_lightning_class(kind: type[Any]) -> bool:
    """Whether a class is a `LightningModule` with a training step."""
    return issubclass(kind, _classes()) and callable(getattr(kind, "training_step", None))


def _classes() -> tuple[Any, ...]:
    """Return the classes of the packages that are imported."""
    found = (getattr(sys.modules.get(package), "LightningModule", None) for package in PACKAGES)
    return tuple(known for known in found if known is not None)


class PlannedStep:
    """The training step of a module, compiled without its calls of `self.log`, which follow when it is over.

    Parameters
    ----------
    module : LightningModule
    compiled : callable
        Compiles a function.
    """

    def __init__(self, module: Any, compiled: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        if not getattr(module, "automatic_optimization", True):
            raise TorchError(
                f"{type(module).__name__} uses manual optimization, so its training_step is not a step from inputs to "
                "a loss; compile a module that returns the loss: self.step = remat.torch.compile(loss_module)"
            )
        original = type(module).training_step.__get__(module)
        self.module = module
        self._log = {name: getattr(type(module), name).__get__(module) for name in LOGS}

        def step(*args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
            entries: list[Any] = []

            def recorder(name: str) -> Callable[..., None]:
                def record(*given: Any, **options: Any) -> None:
                    entries.append((name, pytree.tree_map_only(torch.Tensor, _detached, (given, options))))

                return record

            module.log, module.log_dict = recorder("log"), recorder("log_dict")
            return original(*args, **kwargs), entries

        self._run = compiled(step)
        update_wrapper(self, original)
        self.__signature__ = inspect.signature(original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the step, and forward its log entries."""
        try:
            returned, entries = self._run(*args, **kwargs)
        finally:
            for name in LOGS:
                self.module.__dict__.pop(name, None)
        for name, (given, options) in entries:
            self._log[name](*given, **options)
        return returned


def _detached(tensor: Any) -> Any:
    return tensor.detach()


def break_at_logs() -> None:
    """Let Dynamo leave calls of `self.log` out of its graphs: it cannot trace them."""
    for known in _classes():
        for name in LOGS:
            method = getattr(known, name)
            if not getattr(method, "_torchdynamo_disable", False):
                setattr(known, name, torch.compiler.disable(method))
