"""Memory of the programs that Inductor generates, from a run of their Python code on tensors without data."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from remat.bridges.torch.measure import LiveStorages, unseen, workspace_of
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import pytree, torch

Workspace = Callable[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], int]
"""Bytes that a kernel of a library needs while it runs, from its function and arguments."""

CUDA_BLOCK = 512
"""Bytes of which CUDA's allocator hands out multiples."""


@dataclass(frozen=True)
class Program:
    """A graph that Inductor compiled.

    Attributes
    ----------
    source : str
        The generated Python module. Its function `call` allocates, launches kernels and frees.
    constants : mapping of str to tensor
        Tensors that the code names.
    """

    source: str
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Account:
    """Bytes that a generated forward and backward take from the allocator, without their arguments.

    Attributes
    ----------
    forward, backward : int
        The peaks of the two.
    """

    forward: int
    backward: int

    @property
    def peak(self) -> int:
        """The higher one."""
        return max(self.forward, self.backward)


def account(
    programs: tuple[Program, Program],
    inputs: Sequence[Any],
    tangents: Sequence[Any],
    outputs: int,
    workspace: Workspace | None = None,
) -> Account:
    """Run the code of a forward and a backward on tensors without data, and count its allocations.

    Parameters
    ----------
    programs : (Program, Program)
    inputs : sequence
        Arguments of the forward; only shape, type and device of a tensor count.
    tangents : sequence
        Arguments of the backward after the saved values.
    outputs : int
        Number of the forward's results that its caller keeps; the others are saved for the backward.
    workspace : callable, optional
        By default kernels need nothing beyond their arguments.

    Raises
    ------
    TorchError
        If the code has another form than that of the PyTorch releases that are tested.
    """
    fake: Any = import_module("torch._subclasses.fake_tensor")
    with unseen(), torch.no_grad(), fake.FakeTensorMode(allow_non_fake_inputs=True):
        given = [_without_data(tensor) for tensor in inputs]
        turned = [_without_data(tensor) for tensor in tangents]
        constants = {name: _without_data(tensor) for program in programs for name, tensor in program.constants.items()}
        live = _Allocations([*given, *constants.values()], workspace)
        with live:
            returned = list(_call_of(programs[0], live, constants)(list(given)))
            forward = live.peak
            live.level()
            kept, arguments = returned[:outputs], returned[outputs:]
            del returned
            arguments += turned
            live.adopt(turned)  # autograd holds them until the backward ends
            kept += _call_of(programs[1], live, constants)(arguments)
        return Account(forward, live.peak)


def _without_data(tensor: Any) -> Any:
    """Return a tensor of the current mode that is like another."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    shape, strides = (tuple(map(int, numbers)) for numbers in (tensor.shape, tensor.stride()))
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)


class _Allocations(LiveStorages):
    """Follows storages, and the workspace of kernels on top of them."""

    def __init__(self, besides: Sequence[Any], workspace: Workspace | None) -> None:
        super().__init__(tensor for tensor in besides if isinstance(tensor, torch.Tensor))
        self.workspace = workspace

    def size_of(self, tensor: Any) -> int:
        """Bytes that the allocator hands out: on CUDA a multiple of 512."""
        size = super().size_of(tensor)
        return -(-size // CUDA_BLOCK) * CUDA_BLOCK if tensor.device.type == "cuda" else size

    def run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Count the workspace of a kernel."""
        self.sweep()
        extra = 0 if self.workspace is None else self.workspace(function, args, kwargs)
        self.peak = max(self.peak, self.now + extra)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and count its workspace and results."""
        returned = super().__torch_dispatch__(function, types, args, kwargs)
        self.run(function, args, kwargs or {})
        return returned


class _Nothing:
    """Replaces kernels, streams and checks: it can be called and entered, has any attribute, and does nothing."""

    def __call__(self, *_: Any, **__: Any) -> _Nothing:
        return self

    def __getattr__(self, name: str) -> _Nothing:
        return self

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *raised: object) -> None:
        return None


class _Torch:
    """PyTorch without its devices."""

    cuda = xpu = mps = _Nothing()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _Libraries:
    """Kernels of libraries: those that write into a given tensor only report that they ran."""

    def __init__(self, live: _Allocations) -> None:
        self._live = live

    def __getattr__(self, name: str) -> Any:
        extern: Any = import_module("torch._inductor.select_algorithm").extern_kernels

        def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            function = getattr(torch, name, None)
            if out is not None:
                if function is not None:
                    self._live.run(function, args, {**kwargs, "out": out})
                return out
            return function(*args, **kwargs) if function is not None else getattr(extern, name)(*args, **kwargs)

        return call


class LibraryWorkspace:
    """Workspace of kernels of libraries on the device where they will run: each runs once on zeros of its shapes."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def __call__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """Return the bytes in addition to inputs and results."""
        name = str(function)
        if name.startswith(NO_KERNELS):
            return 0
        key = f"{name} {pytree.tree_map(_described, (list(args), dict(kwargs)))}"
        if key not in self.known:
            self.known[key] = self._measured(function, args, kwargs)
        return self.known[key]

    def _measured(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        with unseen(), torch.no_grad(), torch.random.fork_rng():
            given = pytree.tree_map(_zeros, (list(args), dict(kwargs)))
            function(*given[0], **given[1])
            return workspace_of(lambda: function(*given[0], **given[1]), given)


NO_KERNELS = ("aten.empty", "aten.as_strided", "aten.detach", "aten.view", "aten.alias")
"""Operators that only allocate memory or return views."""


def _described(part: Any) -> Any:
    if not isinstance(part, torch.Tensor):
        return part
    return f"{part.dtype}{list(part.shape)}{list(part.stride())}{part.device}"


def _zeros(part: Any) -> Any:
    return _without_data(part).zero_() if isinstance(part, torch.Tensor) else part


def _call_of(program: Program, live: _Allocations, constants: Mapping[str, Any]) -> Callable[[list[Any]], Any]:
    """Return the function `call` of generated code; the kernels that it launches do nothing."""
    tree = ast.parse(program.source)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "call"]
    if len(found) != 1:
        raise TorchError(
            f"Inductor's code has {len(found)} functions 'call', not one; this PyTorch writes another form"
        )
    namespace = dict.fromkeys(_names(found[0]), _Nothing()) | _tools(live) | dict(constants)
    code = compile(ast.fix_missing_locations(ast.Module([found[0]], [])), "<generated code>", "exec")
    exec(code, namespace)
    call: Any = namespace["call"]
    return (lambda arguments: call(None, arguments)) if len(found[0].args.args) == 2 else call


def _names(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the names that a function uses, without Python's own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
            yield node.id


def _tools(live: _Allocations) -> dict[str, Any]:
    """Return the tools of generated code that make and view tensors."""

    def empty(device: str) -> Callable[..., Any]:
        return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return {
        **{f"empty_strided_{device}": empty(device) for device in ("cpu", "cuda", "xpu", "mtia")},
        "empty_strided_cpu_pinned": empty("cpu"),
        "empty_strided": torch.empty_strided,
        "reinterpret_tensor": torch.as_strided,
        "torch": _Torch(),
        "aten": torch.ops.aten,
        "inductor_ops": torch.ops.inductor,
        "device": torch.device,
        "extern_kernels": _Libraries(live),
        "inf": float("inf"),
        "nan": float("nan"),
    }


__all__ = ["Account", "LibraryWorkspace", "Program", "Workspace", "account"]
