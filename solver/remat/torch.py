"""Plans for PyTorch: ``import remat.torch``. What it does is in `remat.bridges.torch`, imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remat.bridges.torch.backend import Backend, backend, configure
    from remat.bridges.torch.backend import compile_module as compile  # noqa: A004
    from remat.bridges.torch.capture import Captured, capture
    from remat.bridges.torch.factory import capture_factory
    from remat.bridges.torch.interpreter import Execution, execute
    from remat.bridges.torch.measuring import measure
    from remat.bridges.torch.planning import Plan, judge, load_plan, plan_of
    from remat.bridges.torch.recording import TorchError

_HOME = {
    "Backend": "backend",
    "Captured": "capture",
    "Execution": "interpreter",
    "Plan": "planning",
    "TorchError": "recording",
    "backend": "backend",
    "capture": "capture",
    "capture_factory": "factory",
    "compile": "backend:compile_module",
    "configure": "backend",
    "execute": "interpreter",
    "judge": "planning",
    "load_plan": "planning",
    "measure": "measuring",
    "plan_of": "planning",
}

__all__ = [
    "Backend",
    "Captured",
    "Execution",
    "Plan",
    "TorchError",
    "backend",
    "capture",
    "capture_factory",
    "compile",
    "configure",
    "execute",
    "judge",
    "load_plan",
    "measure",
    "plan_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'remat.torch' has no attribute {name!r}")
    module, _, known = _HOME[name].partition(":")
    value = getattr(import_module(f"remat.bridges.torch.{module}"), known or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
