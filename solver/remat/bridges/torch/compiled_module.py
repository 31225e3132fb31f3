"""`remat.torch.compile`: a module that runs its training step by a plan, compiled in place."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from importlib import import_module
from typing import Any
from warnings import warn

from remat.bridges.torch.backend import Backend
from remat.bridges.torch.blocks import COMPILED, check_unplanned
from remat.bridges.torch.capture import dynamo_settings, prepared
from remat.bridges.torch.lightning_step import PlannedStep, is_lightning
from remat.bridges.torch.plan_options import Choices, make_choices
from remat.bridges.torch.planning import RESERVE_ON_DEVICE, Plan
from remat.bridges.torch.ranks import bucket_bytes, check_distributed, is_sharded, wrapped
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.bridges.torch.unsupported import check_backward_hooks, explain, is_break
from remat.errors import RematError
from remat.units import parse_size

OWNER, OUTER = COMPILED, "_remat_inside"
"""Attributes that follow into copies and files: of a compiled module, and of `DistributedDataParallel` around it."""


def compile_module(module: Any, budget: int | str | Sequence[int | str] | None = None, **choices: Any) -> Any:
    """Compile a module in place; it is called, trained and saved as before, and its training step has a plan.

    The first call in training captures the step, solves, verifies and emits; each new shape gets a separate plan. Of a
    module of Lightning, the method `training_step` is planned, of `DistributedDataParallel` the module inside.

    Parameters
    ----------
    module : torch.nn.Module
        Returns the loss.
    budget, **choices
        As for `backend`.

    Returns
    -------
    torch.nn.Module
        The module itself; `.plan` is the latest `Plan`. Copies and saved modules keep their plans.
    """
    if not isinstance(module, torch.nn.Module):
        raise TorchError(f"expected a torch.nn.Module that returns the loss, not {type(module).__name__}")
    check_unplanned(module)
    made = make_choices(budget, choices)
    check_distributed(module, made)
    inner = wrapped(module)
    if inner is not None:
        reserve = made.reserve if made.reserve is not None else _default_reserve(inner)
        made = replace(made, reserve=parse_size(reserve) + bucket_bytes(module))
    planned = Planned(module if inner is None else inner, made)
    if inner is not None:
        module.__dict__[OUTER] = Outer(module, planned)
    planned.install()
    return module


def _default_reserve(module: Any) -> int:
    """Return the bytes to keep free on the device of a module."""
    on_device = any(parameter.device.type != "cpu" for parameter in module.parameters())
    return RESERVE_ON_DEVICE if on_device else 0


class Planned:
    """The attribute of a module that makes it run by a plan; it also compiles copies of the module.

    Attributes
    ----------
    module : torch.nn.Module
    planner : Backend
    outer : torch.nn.Module or None
        `DistributedDataParallel` around the module, which shows the plan, too.
    """

    outer: Any = None

    def __init__(self, module: Any, choices: Choices, known: Sequence[Plan] = ()) -> None:
        self.module = module
        self.planner = Backend(choices, module=module, on_plan=self._set_plan)
        self.planner.known = {plan.fingerprint: plan for plan in known}

    def install(self) -> None:
        """Compile the module in place."""
        module = self.module
        module.__dict__[OWNER] = self
        module.__dict__["plan"] = None
        name: str
        call: Callable[..., Any]
        if is_lightning(module):
            name, call = "training_step", PlannedStep(module, self._compiled)
        else:
            name, call = "_compiled_call_impl", self._compiled(module._call_impl)
        module.__dict__[name] = call

        def state() -> dict[str, Any]:
            own: Any = type(module)
            found: dict[str, Any] = own.__getstate__(module)
            return found | {changed: CopiedCall(self, changed) for changed in (name, "__getstate__")}

        module.__dict__["__getstate__"] = state

    def _set_plan(self, plan: Plan) -> None:
        self.module.__dict__["plan"] = plan
        if self.outer is not None:
            self.outer.__dict__["plan"] = plan

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function, compiled at its first call, that checks hooks and whose errors take one line."""
        raised: Any = import_module("torch._dynamo.exc").TorchDynamoException
        planner = self.planner
        one = planner.choices.budget is None or isinstance(planner.choices.budget, (int, str))
        dynamic = None if planner.choices.host is None else False  # plans with a host are for fixed sizes
        inner: list[Callable[..., Any]] = []

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            check_backward_hooks(self.module)
            if not inner and is_sharded(self.module):
                planner.sharded = planner.parts = True
            if planner.sharded:
                planner.prepare((args, kwargs))
            whole = one and not planner.parts
            if not inner:
                inner.append(torch.compile(function, backend=planner, fullgraph=whole, dynamic=dynamic))
            try:
                with dynamo_settings(whole=whole, buckets=self.outer is None), _guarded_hooks():
                    returned = inner[0](*args, **kwargs)
            except raised as error:
                cause = getattr(error, "inner_exception", None)
                if isinstance(cause, RematError):
                    raise cause from None
                if not (whole and is_break(error)):
                    raise explain(error) from cause
                if not prepared(self.module, error):
                    warn(f"{explain(error)}; it is planned as several graphs within one budget", stacklevel=2)
                    planner.parts = True
                    inner.clear()
                return call(*args, **kwargs)
            self._check_planned()
            return returned

        return call

    def _check_planned(self) -> None:
        """Warn once that there is no graph to plan."""
        planner = self.planner
        if planner.parts and not planner.warned and not planner.step.calls and torch.is_grad_enabled():
            planner.warned = True
            warn("PyTorch compiled no training graph of the module: it runs without a plan", stacklevel=3)

    # ------------------------------------------------------------------------------------- copies and files

    def __deepcopy__(self, memo: dict[int, Any]) -> Planned:
        """Compile the copy of the module, which is being made."""
        module = memo.get(id(self.module))
        if module is None:  # the attribute alone is copied
            return self
        copied = Planned.__new__(Planned)
        copied.__setstate__(self.__getstate__() | {"module": module})
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Return the module, the choices and the existing plans."""
        planner = self.planner
        plans = [*planner.known.values(), *planner.plans]
        return {"module": self.module, "choices": planner.choices, "plans": plans}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Compile the module, whose other attributes follow."""
        Planned.__init__(self, state["module"], copy.copy(state["choices"]), state["plans"])
        self.install()


class CopiedCall:
    """A method of a compiled module in its state: deep copies and files have their own, shallow copies refuse it."""

    def __init__(self, owner: Planned, name: str) -> None:
        self.owner, self.name = owner, name

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse to run or copy a shallow copy, which has no plan."""
        raise TorchError(
            "a shallow copy of a compiled module has no plan: call the module itself, or copy it with copy.deepcopy"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return the method of the copied module."""
        if id(self.owner.module) not in memo:  # a shallow copy is copied
            return self
        return _call_of(copy.deepcopy(self.owner, memo), self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Save a reference to the method of the saved module."""
        return _call_of, (self.owner, self.name)


def _call_of(owner: Planned, name: str) -> Any:
    """Return a method that `Planned.install` has added to a module."""
    return owner.module.__dict__[name]


class Outer:
    """The attribute of `DistributedDataParallel` that makes it known to the compiled module inside, also in copies."""

    def __init__(self, module: Any, planned: Planned) -> None:
        self.module, self.planned = module, planned
        planned.outer = module

    def __deepcopy__(self, memo: dict[int, Any]) -> Outer:
        """Make the copy known to the copy inside."""
        module = memo.get(id(self.module))
        return self if module is None else Outer(module, copy.deepcopy(self.planned, memo))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the loaded module known to the loaded one inside."""
        Outer.__init__(self, state["module"], state["planned"])


@contextmanager
def _guarded_hooks() -> Iterator[None]:
    """Compile again when hooks of submodules are added or removed."""
    config: Any = import_module("torch._dynamo.config")
    with config.patch(skip_nnmodule_hook_guards=False):
        yield
