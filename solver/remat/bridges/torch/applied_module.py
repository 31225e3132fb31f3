"""Modules that `remat.torch.apply` returned: their class runs the blocks, so copies and files keep the plan.

The class derives from the module's. It finds the blocks by name in the module that is called: a copy runs its own
blocks, and a plan holds no module.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Protocol

from remat.bridges.torch.blocks import PLANNED
from remat.bridges.torch.lightning_step import is_lightning_class
from remat.bridges.torch.recording import TorchError

OWN = "_remat_own_forward"
"""Attribute with the forward that the module had as an attribute, as wrapped modules of accelerate have."""
RAN = "_remat_ran"
"""Attribute that is set when a plan runs."""


class BlockPlan(Protocol):
    """Runs the blocks of a module in its forward."""

    def run(self, module: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call `own`, the forward of the module, with its blocks run as planned."""
        ...


def planned_copy(module: Any, plan: BlockPlan) -> Any:
    """Return a shallow copy of a module that runs its blocks by a plan."""
    planned = _empty(type(module))
    planned.__dict__.update(module.__dict__)
    planned.__dict__.pop("_compiled_call_impl", None)
    if "forward" in planned.__dict__:
        planned.__dict__[OWN] = planned.__dict__.pop("forward")
    planned.__dict__[PLANNED] = plan
    return planned


@cache
def _planned_class(base: Any) -> Any:
    """Return a class like `base` whose forward runs the plan of the object."""

    @wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__.get(OWN) or base.forward.__get__(self)
        self.__dict__[RAN] = True
        return _plan_of(self, base).run(self, own, args, kwargs)

    def reduce(self: Any, protocol: Any) -> tuple[Any, ...]:
        """Save the module with the name of its original class."""
        make, _, *rest = base.__reduce_ex__(self, max(2, protocol))
        if make is not copyreg.__newobj__:  # type: ignore[attr-defined]
            raise TorchError(f"{base.__name__} has a __reduce__ that may lose the plan: copy or save it before apply")
        return _empty, (base,), *rest

    def copied(self: Any, memo: dict[int, Any]) -> Any:
        """Copy as the class does; the copy must have the plan."""
        other = base.__deepcopy__(self, memo)
        _plan_of(other, base)
        return other

    members = {"forward": forward, "__reduce_ex__": reduce, "__module__": base.__module__, "__doc__": base.__doc__}
    if hasattr(base, "__deepcopy__"):
        members["__deepcopy__"] = copied
    if is_lightning_class(base):
        members["training_step"] = _checked_step(base)
    return type(base.__name__, (base,), members | {"__qualname__": base.__qualname__})


def _plan_of(module: Any, base: Any) -> Any:
    """Return the plan of a module, which may be a copy that the class made itself."""
    if PLANNED not in module.__dict__:
        raise TorchError(f"{base.__name__} makes copies without the plan: copy the module before apply")
    return module.__dict__[PLANNED]


def _empty(base: Any) -> Any:
    """Return an object without attributes; copies and files add them."""
    kind = _planned_class(base)
    return kind.__new__(kind)


def _checked_step(base: Any) -> Callable[..., Any]:
    """Return the training step of a class of Lightning; it must call the forward, which has the plan."""

    @wraps(base.training_step)
    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.__dict__[RAN] = False
        returned = base.training_step(self, *args, **kwargs)
        if not self.__dict__[RAN]:
            raise TorchError(
                f"training_step of {base.__name__} does not call forward, so its blocks ran without the plan: "
                "let training_step return self(...)"
            )
        return returned

    return training_step


__all__ = ["BlockPlan", "planned_copy"]
