"""`remat.torch.host_optimizer`: an optimizer of PyTorch whose states and updates are at the host."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from remat.bridges.torch.host_updates.slots import HostMemory, Link, Slot, link_for
from remat.bridges.torch.plan_options import check_staleness
from remat.bridges.torch.ranks import is_distributed, wrapped
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import OptimizerBase, torch
from remat.errors import OptionError
from remat.messages import first_line
from remat.units import parse_budget

_OWNERS: Any = import_module("torch.utils.weak").WeakIdKeyDictionary()
"""The optimizer at the host of each parameter, and its hook: the latest one takes its gradients."""


def host_optimizer(
    module: Any,
    optimizer: type[Any],
    *,
    host: int | str | None = None,
    staleness: int | None = None,
    overlap: bool = True,
    master: Any = None,
    parameters: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> HostOptimizer:
    """Return an optimizer whose states are at the host, where a thread updates the parameters.

    Parameters
    ----------
    module : torch.nn.Module
        Each gradient is copied to the host when the backward has made it. If the module was compiled with
        ``optimizer_memory="host"``, its plan says when.
    optimizer : type
        A class of `torch.optim`, or another one that updates each parameter on its own.
    host : int or str, optional
        Memory of the host; by default that of the compiled module's plan.
    staleness : {0, 1}, optional
        1: the device runs the next step while the host updates, so that a step's gradients count one step later. By
        default as the module was compiled, or 0.
    overlap : bool
        Update each parameter when its gradient arrives. False: when `step` is called, so that gradients of several
        backwards can be added, and clipped.
    master : torch.dtype, optional
        Type of the parameters and states at the host; by default that of the parameter.
    parameters : sequence of mappings, optional
        Groups of parameters with options, as for `torch.optim`; by default all that need a gradient.
    **options
        Options of the optimizer.

    Returns
    -------
    HostOptimizer

    Raises
    ------
    TorchError
        If there is no host, several processes train the module, or the optimizer cannot run so.
    """
    if not isinstance(module, torch.nn.Module):
        raise TorchError(f"expected a torch.nn.Module, not {type(module).__name__}")
    if is_distributed(module) or wrapped(module) is not None:
        raise TorchError("a module of several processes cannot be updated at the host; use an optimizer of torch.optim")
    planned = getattr(module, "_remat", None)
    choices = None if planned is None else planned.planner.choices
    at_host = choices is not None and choices.optimizer_memory is not None
    if host is None and choices is not None:
        host = choices.host
    if host is None:
        raise OptionError("no memory of a host: give host='64GB'", argument="host")
    if staleness is None:
        staleness = choices.staleness if choices is not None and at_host else 0
    elif at_host and choices is not None and staleness != choices.staleness:
        raise OptionError(f"the module was compiled with a staleness of {choices.staleness}", argument="staleness")
    made = HostOptimizer(
        module,
        [{"params": [one for one in module.parameters() if one.requires_grad]}] if parameters is None else parameters,
        (optimizer, options),
        host=parse_budget(host),
        stale=bool(check_staleness(staleness)),
        overlap=overlap,
        master=master,
    )
    if at_host and planned is not None:
        planned.planner.updates.optimizer = weakref.ref(made)
    return made


class HostOptimizer(OptimizerBase):
    """An optimizer whose states are at the host; see `host_optimizer`.

    `param_groups` has the parameters of the device, so that schedulers of the learning rate work. An update uses the
    options at the time when it begins.

    Attributes
    ----------
    memory : HostMemory
        The bytes of the host that it may use.
    module : torch.nn.Module
    inner : torch.optim.Optimizer
        The optimizer of the copies at the host.
    """

    def __init__(
        self,
        module: Any,
        groups: Sequence[Mapping[str, Any]],
        optimizer: tuple[type[Any], Mapping[str, Any]],
        *,
        host: int,
        stale: bool,
        overlap: bool,
        master: Any,
    ) -> None:
        kind, options = optimizer
        defaults = _tried(kind, options)
        self.memory = HostMemory(host)
        self.stale, self.overlap, self.master = stale, overlap, master
        self.module = module
        self.names = {id(tensor): name for name, tensor in module.named_parameters()}
        self.slots: dict[int, Slot] = {}
        self.links: dict[Any, Link] = {}
        self.state_bytes: dict[int, int] = {}
        self.group_of: dict[int, int] = {}
        self._begun: list[Slot] = []
        self.deferred = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="remat-updates")
        super().__init__([dict(group) for group in groups], defaults)
        self.inner = kind(self._inner_groups(), **options)

    # ------------------------------------------------------------------------------------- parameters

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take another group of parameters."""
        super().add_param_group(param_group)
        added: list[Slot] = []
        try:
            for parameter in self.param_groups[-1]["params"]:
                added.append(self._slot(parameter))  # noqa: PERF401 - an error leaves those before it
        except TorchError:
            self.param_groups.pop()
            self.memory.give(sum(int(slot.master.nbytes) for slot in added))
            raise
        for slot in added:
            self._own(slot, len(self.param_groups) - 1)

    def _slot(self, parameter: Any) -> Slot:
        if parameter.untyped_storage().nbytes() < parameter.nbytes:
            name = self.names.get(id(parameter), "a parameter")
            raise TorchError(f"{name} is at the host of another optimizer; use that one, or build the module anew")
        name = self.names.get(id(parameter), f"parameter {len(self.slots)}")
        if parameter.device not in self.links:
            self.links[parameter.device] = link_for(parameter.device)
        return Slot(name, parameter, self.master, self.links[parameter.device], self.memory)

    def _own(self, slot: Slot, group: int) -> None:
        """Take the gradients of a parameter from now on."""
        parameter = slot.parameter
        self.slots[id(parameter)] = slot
        self.group_of[id(parameter)] = group
        self.state_bytes[id(slot)] = 0  # now: the thread only changes entries
        own = weakref.ref(self)

        def arrived(tensor: Any) -> None:
            optimizer = own()
            if optimizer is not None and tensor.grad is not None and not optimizer.deferred:
                gradient, tensor.grad = tensor.grad, None
                optimizer.receive(tensor, gradient)

        if parameter in _OWNERS:
            _, hook = _OWNERS[parameter]
            hook.remove()
        _OWNERS[parameter] = own, parameter.register_post_accumulate_grad_hook(arrived)

    def defer(self) -> None:
        """Let gradients wait on the device for `step`, unless a schedule sends them."""
        self._check_between()
        self.deferred = True

    def _inner_groups(self) -> list[dict[str, Any]]:
        return [
            {**group, "params": [self.slots[id(parameter)].master for parameter in group["params"]]}
            for group in self.param_groups
        ]

    # ------------------------------------------------------------------------------------- memory of the host

    @property
    def host_bytes(self) -> dict[str, int]:
        """Bytes at the host: copies of the parameters, states, and gradients that wait."""
        slots = self.slots.values()
        return {
            "parameters": sum(slot.parameter_bytes for slot in slots),
            "optimizer": sum(self.state_bytes.values()),
            "gradients": sum(slot.gradient_bytes for slot in slots),
        }

    # ------------------------------------------------------------------------------------- gradients

    def receive(self, parameter: Any, gradient: Any) -> None:
        """Take a gradient from the device, and begin its update, if updates overlap with the backward.

        It goes to the optimizer that owns the parameter, and stays on the device if none does.
        """
        owner = _owner_of(parameter)
        if owner is None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        else:
            owner.take(owner.slots[id(parameter)], gradient)

    def take(self, slot: Slot, gradient: Any) -> None:
        """Take a gradient of a parameter of this optimizer."""
        if gradient.is_sparse:
            raise TorchError(f"the gradient of {slot.name} is sparse; updates at the host take dense ones")
        if self._early and slot.update is not None:
            raise TorchError(
                f"a second gradient of {slot.name} arrives before step(); overlap=False adds those of several backwards"
            )
        slot.take(gradient)
        if self._early:
            self._begin(slot)

    def parameter(self, name: str) -> Any:
        """Return the parameter of this name."""
        return self.module.get_parameter(name)

    def wait_for(self, parameters: Iterable[Any]) -> None:
        """Let the device's next kernels begin after the copies of these gradients."""
        for parameter in parameters:
            owner = _owner_of(parameter)
            if owner is not None:
                slot = owner.slots[id(parameter)]
                slot.link.wait(slot.sent)

    @property
    def _early(self) -> bool:
        return self.overlap and not self.stale

    def _begin(self, slot: Slot) -> None:
        """Let the thread update a parameter, with the options of now."""
        group = self.param_groups[self.group_of[id(slot.parameter)]]
        options = {key: _copied(value) for key, value in group.items() if key != "params"}
        slot.begin(self._thread.submit, lambda: self._step_alone(slot, options))
        self._begun.append(slot)

    def _step_alone(self, slot: Slot, options: Mapping[str, Any]) -> None:
        """Update one parameter at the host; runs in the thread."""
        given = {**options, "params": [slot.master]}
        self.inner.param_groups = [given]
        self.inner.step()
        changed = [key for key, value in options.items() if _differs(given.get(key), value)]
        if changed:
            name = type(self.inner).__name__
            raise TorchError(
                f"{name} changes {changed[0]} of its groups while it steps, and cannot update each parameter on its own"
            )
        state = self.inner.state.get(slot.master, {})
        held = (value for value in state.values() if isinstance(value, torch.Tensor))
        size = sum(int(tensor.nbytes) for tensor in held)
        grown = size - self.state_bytes[id(slot)]
        if grown:
            self.memory.take(grown, f"the state of {slot.name}")
        self.state_bytes[id(slot)] = size

    # ------------------------------------------------------------------------------------- steps

    def step(self, closure: Any = None) -> None:
        """Put the updated parameters on the device, as they come.

        With a staleness of 1, these are the updates of the step before, and those of this step begin.

        Parameters
        ----------
        closure : None
            Not supported, since gradients leave during the backward.
        """
        if closure is not None:
            raise TorchError("step() takes no closure here: call backward() before, and step() without it")
        for slot in self.slots.values() if self.deferred else ():
            gradient, slot.parameter.grad = slot.parameter.grad, None
            if gradient is not None:
                self.receive(slot.parameter, gradient)
        ready = [slot for slot in self.slots.values() if slot.gradient is not None]
        if self.stale:
            self._settle()
        if not self._early:
            for slot in ready:
                self._begin(slot)
        if not self.stale:
            self._settle()

    def finish(self) -> None:
        """Wait for updates that have begun, and put their results on the device.

        With a staleness of 1, this applies the gradients of the latest step.
        """
        if not self._early:
            self._settle()

    def _settle(self) -> None:
        """End all updates that have begun, and then raise the first error of any."""
        errors: list[Exception] = []
        while self._begun:
            try:
                self._begun[0].settle()
            except Exception as error:
                errors.append(error)
            del self._begun[0]
        if errors:
            raise errors[0]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients, also those that wait at the host.

        Parameters
        ----------
        set_to_none : bool
            Must be True: a gradient of zeros would occupy the device.
        """
        if not set_to_none:
            raise TorchError("gradients leave the device, and none of zeros stay there: zero_grad(set_to_none=True)")
        for slot in self.slots.values():
            if self._early and slot.update is not None:
                raise TorchError(f"{slot.name} is being updated: call step() before zero_grad(), or use overlap=False")
            slot.parameter.grad = None
            slot.forget()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """Clip the gradients at the host, and return their norm.

        Parameters
        ----------
        max_norm, norm_type : float
            As for `torch.nn.utils.clip_grad_norm_`.
        """
        if self._early:
            raise TorchError("gradients are applied as they arrive; overlap=False lets them be clipped before step()")
        gradients = []
        for slot in self.slots.values():
            if slot.gradient is not None:
                if slot.sent is not None:
                    slot.sent.synchronize()
                gradients.append(slot.gradient)
        utils = torch.nn.utils
        norm = utils.get_total_norm(gradients, norm_type)
        factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        for gradient in gradients:
            gradient.mul_(factor)
        return norm

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Attributes that a `GradScaler` reads before it steps."""
        raise TorchError("a GradScaler finds no gradients on the device; train in bfloat16, or without a scaler")

    # ------------------------------------------------------------------------------------- states

    def state_dict(self) -> dict[str, Any]:
        """Return the states, as `torch.optim` would; outstanding updates are finished first."""
        self._check_between()
        self.inner.param_groups = self._inner_groups()
        found: dict[str, Any] = self.inner.state_dict()
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take states that this optimizer or one of `torch.optim` has saved.

        Parameters
        ----------
        state_dict : dict
        """
        self._check_between()
        self.inner.param_groups = self._inner_groups()
        self.inner.load_state_dict(state_dict)
        for group, loaded in zip(self.param_groups, self.inner.param_groups, strict=True):
            group.update({key: value for key, value in loaded.items() if key != "params"})

    def _check_between(self) -> None:
        if self._early and self._begun:
            raise TorchError("parameters are being updated: call step() first")
        self.finish()

    def __getstate__(self) -> dict[str, Any]:
        """Refuse copies: a thread cannot be copied."""
        raise TorchError("an optimizer at the host cannot be copied; save its state_dict()")


def _tried(kind: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default options of an optimizer that can update a small matrix at the host."""
    probe = torch.nn.Parameter(torch.zeros(2, 2, device="cpu"))
    probe.grad = torch.zeros(2, 2, device="cpu")
    try:
        optimizer = kind([probe], **options)
        optimizer.step()
    except Exception as error:
        line = first_line(str(error)) or type(error).__name__
        name = getattr(kind, "__name__", str(kind))
        raise TorchError(f"{name} cannot update at the host: {line}") from error
    defaults: dict[str, Any] = dict(optimizer.defaults)
    return defaults


def _owner_of(parameter: Any) -> HostOptimizer | None:
    """Return the optimizer that takes the gradients of a parameter."""
    if parameter not in _OWNERS:
        return None
    owner: HostOptimizer | None = _OWNERS[parameter][0]()
    return owner


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _differs(one: Any, other: Any) -> bool:
    return one is not other and (isinstance(one, torch.Tensor) or bool(one != other))
