"""`remat.torch.capture`: a training step of a module as a joint graph, without executing it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from remat.bridges.torch.costs import Costs, read_costs, static_bytes
from remat.bridges.torch.document import instance_document
from remat.bridges.torch.fusion import Fusion
from remat.bridges.torch.joint import Joint, Task
from remat.bridges.torch.plan_options import read_size
from remat.bridges.torch.recording import Recording, TorchError
from remat.bridges.torch.shim import pytree, torch
from remat.bridges.torch.symbolic import Symbols
from remat.bridges.torch.target_device import is_mapped, map_operators, map_statistics
from remat.bridges.torch.tracing import Recorder, tidy
from remat.bridges.torch.unsupported import check_module, explain, warn_of_checkpoints
from remat.bridges.torch.weightless import stand_ins
from remat.instance import DagInstance, load

LOGGING = ("debug", "info", "warning", "error", "critical", "exception", "log", "warning_once", "info_once")
"""Methods of loggers that are ignored while a module is traced."""


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of an input of the joint graph.

    Attributes
    ----------
    kind : str
        ``parameter``, ``buffer``, ``input`` or ``constant``.
    name : str
        For a parameter or buffer: its name in `named_parameters`.
    leaf : int
        For an input: its index among the leaves of the arguments.
    tensor : tensor
        For a constant: the tensor, for example an attribute that is not a buffer.
    """

    kind: str
    name: str = ""
    leaf: int = -1
    tensor: Any = None


class Captured:
    """A training step: its joint graph, and the origins of its inputs.

    Attributes
    ----------
    module : torch.nn.Module
    graph : torch.fx.GraphModule
        The joint graph, without duplicates and dead operators.
    recording : Recording
    joint : Joint
        Its tasks and values.
    sources : tuple of Source
        One for each input of the joint graph; empty where only PyTorch knows.
    symbols : Symbols or None
        For a graph whose sizes are not fixed: its recording is that for one set of sizes, and `at` returns others.
    target : str
        The type of the device that the step is for; empty for that of the inputs.
    tensors : list of tensors or None
        The inputs of the current call, while a compiler plans for it.
    """

    tensors: list[Any] | None = None
    measured: Costs | None = None
    """Measured costs, kept for later plans of this step."""
    fusion: Fusion | None = None
    """The groups that Inductor will compile, for plans that it executes; otherwise each operator is a task."""
    reference: Sequence[str] | None = None
    """Tasks in the order of Inductor's partition, which serves as the plan without recomputation."""
    others: Callable[[], list[list[str]]] | None = None
    """Makes the orders of Inductor's partitions at smaller budgets: a plan is never slower than one that fits."""

    def __init__(
        self,
        module: Any,
        graph: Any,
        forward_outputs: int,
        sources: tuple[Source, ...],
        given: Any,
        target: str = "",
    ) -> None:
        self.module = module
        self.target = target
        self.graph = graph
        self.sources = sources
        self.given = given
        warn_of_checkpoints(graph.graph)
        stands_for = tidy(graph.graph)
        graph.recompile()
        self._template: Recording
        self.recording: Recording
        kinds = [source.kind for source in sources]
        self.symbols = Symbols.of(graph.graph)
        recorder = Recorder(graph, forward_outputs, stands_for, kinds, self.symbols)
        if self.symbols is None:
            self.recording = recorder.record()
        else:
            with self.symbols.environment.suppress_guards():
                self._template = recorder.record()
            self.recording = self.symbols.fixed(self._template, self.symbols.hints)
        if is_mapped(target):
            self.recording = map_statistics(self.recording)
        self.joint = Joint(self.recording)

    def at(self, key: Sequence[int]) -> Captured:
        """Return the same step with other sizes, as `Symbols.key` reads them off a call."""
        assert self.symbols is not None
        other = copy.copy(self)
        other.measured = None
        other.recording = self.symbols.fixed(self._template, key)
        other.joint = self.joint.with_sizes(other.recording)
        return other

    def check_alone(self, what: str) -> None:
        """Refuse collectives where these cannot run."""
        shared = next((node for node in self.recording.nodes if node.collective), None)
        if shared is not None:
            raise TorchError(f"{shared.operator} is a collective ({shared.source}); {what} one process")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of operators, arguments, shapes and aliasing: plans are for one fingerprint."""
        return self.recording.fingerprint if self.fusion is None else self.fusion.fingerprint

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The tasks of a plan: operators, or groups of them."""
        return self.joint.tasks if self.fusion is None else self.fusion.tasks

    def members(self, runs: Sequence[str]) -> Sequence[str]:
        """Return the operators that a sequence of tasks runs, in order."""
        return runs if self.fusion is None else self.fusion.members(runs)

    @property
    def has_loss(self) -> bool:
        """Whether the forward returns a scalar of a floating-point type."""
        nodes = (self.joint.nodes[name] for name in self.recording.outputs if name is not None)
        held = (tensor for node in nodes for tensor in node.tensors if tensor is not None)
        return any(not tensor.shape and "float" in tensor.dtype for tensor in held)

    @property
    def parameter_order(self) -> tuple[int, ...]:
        """For each input, its place among the parameters of the module; empty if unknown."""
        if self.module is None:
            return ()
        places = {name: place for place, (name, _) in enumerate(self.module.named_parameters())}
        return tuple(places.get(source.name, len(places)) for source in self.sources)

    @cached_property
    def by_name(self) -> dict[str, Any]:
        """The nodes of `graph` by name."""
        return {node.name: node for node in self.graph.graph.nodes}

    def instance(
        self,
        costs: str | Costs | Mapping[str, Any] | None = None,
        *,
        static: int | str = 0,
        optimizer: str | None = None,
    ) -> DagInstance:
        """Return the training step as an instance of kind `dag`.

        Parameters
        ----------
        costs : str, Costs or mapping, optional
            ``roofline:A100-fp32`` (the default), a file that `measure` wrote, or its document.
        static : int or str
            Bytes, or ``"1GB"``, of static memory; `static_bytes` counts those of parameters, buffers and
            inputs.
        optimizer : str, optional
            ``adamw``, another name or a file (`remat.torch.read_optimizer`): its states are added to `static`.
        """
        states = self.static_bytes(optimizer)["optimizer"] if optimizer else 0
        whole = read_size(static, "static") + states
        return load(self.document(costs, static=whole))  # type: ignore[return-value]

    def document(
        self, costs: str | Costs | Mapping[str, Any] | None = None, *, static: int | str = 0
    ) -> dict[str, Any]:
        """Return the instance as a document."""
        name = type(self.module).__name__ if self.module is not None else "joint"
        return instance_document(
            self.joint, read_costs(costs), name=name, static=read_size(static, "static"), fusion=self.fusion
        )

    def static_bytes(self, optimizer: str | None = None) -> dict[str, int]:
        """Bytes of parameters, buffers, inputs and constants, and of an optimizer's states."""
        return static_bytes(self.recording, optimizer)

    def table(self) -> list[dict[str, Any]]:
        """One row per task: name, operator, module, source, phase, bytes written, operations, bytes moved."""
        rows: list[dict[str, Any]] = []
        for task in self.joint.tasks.values():
            node = self.joint.nodes.get(task.node)
            rows.append(
                {
                    "task": task.name,
                    "operator": "" if node is None else node.operator,
                    "module": "" if node is None else node.module,
                    "source": "" if node is None else node.source,
                    "phase": task.phase,
                    "writes": sum(self.joint.values[value] for value in task.writes),
                    "flops": 0 if node is None else node.flops,
                    "moved": 0 if node is None else node.moved,
                    "recomputable": task.again,
                }
            )
        return rows


class _Stopped(Exception):
    """Leaves the compiler once the joint graph is there."""


def capture(module: Any, /, *args: Any, **kwargs: Any) -> Captured:
    """Capture the training step of a module: loss and gradients, without executing anything.

    Parameters
    ----------
    module : torch.nn.Module
        Returns the loss, or a result that contains it. Its parameters may be on the device meta, where they take no
        memory: the step is then that on the device of the arguments, or on the CPU where these are on meta, too.
    *args, **kwargs
        Arguments of the call; the step is for their shapes.

    Returns
    -------
    Captured

    Raises
    ------
    TorchError
        If the step cannot be captured; the message names the operator, or the line of the module's code.
    """
    return capture_for("", module, args, kwargs)


def capture_for(target: str, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Captured:
    """Capture a training step for a device that may be absent.

    Parameters
    ----------
    target : {"", "cpu", "cuda"}
        The type of the device; empty for that of the inputs.
    module, args, kwargs
        As for `capture`.
    """
    check_module(module)
    found: list[Captured] = []

    def partition(graph: Any, _: Any, *, num_fwd_outputs: int, **__: Any) -> Any:
        found.append(Captured(module, graph, num_fwd_outputs, sources[0], (args, kwargs), target))
        raise _Stopped

    def forward_only(*_: Any) -> Any:
        raise TorchError("no parameter needs a gradient (or gradients are switched off): there is nothing to plan")

    sources: list[tuple[Source, ...]] = []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        sources.append(sources_of(module, given, inputs))
        if is_mapped(target):
            map_operators(graph)
        return compiler(forward_only, partition)(graph, inputs)

    device = "" if is_mapped(target) else target
    with dynamo_settings(), stand_ins(module, (args, kwargs), device) as given:
        called = module if module._compiled_call_impl is None else module._call_impl
        compiled = torch.compile(called, backend=backend, fullgraph=True, dynamic=False)

        def trace(*, again: bool = True) -> None:
            try:
                compiled(*given[0], **given[1])
            except Exception as error:
                if found:
                    return
                if not (again and prepared(module, error)):
                    raise explain(error) from error
                trace(again=False)

        trace()
    if not found:
        raise forward_only()
    return found[0]


def compiler(
    compile_graph: Callable[..., Any], partition: Callable[..., Any], backward: Callable[..., Any] | None = None
) -> Any:
    """Return a compiler of Dynamo's graphs that uses remat's partition."""
    common: Any = import_module("torch._dynamo.backends.common")
    return common.aot_autograd(
        fw_compiler=compile_graph,
        bw_compiler=backward or compile_graph,
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )


UNLIMITED = 1 << 30
"""Graphs of one module before PyTorch gives up: it must not, for it would train without a plan from then on."""


@contextmanager
def dynamo_settings(*, whole: bool = True, buckets: bool = True) -> Iterator[None]:
    """Let Dynamo trace as much as possible; with `whole`, also numbers and sizes that depend on data.

    Dynamo ignores logging calls, which would break the graph, and traces recurrent layers. A module may have any number
    of graphs, each for specific shapes. With `buckets`, PyTorch splits the module in `DistributedDataParallel` at the
    buckets of its gradients.
    """
    config: Any = import_module("torch._dynamo.config")
    with config.patch(
        ignore_logging_functions=ignored_functions(config),
        allow_rnn=True,
        capture_scalar_outputs=whole,
        capture_dynamic_output_shape_ops=whole,
        **({} if buckets else {"optimize_ddp": False}),
        recompile_limit=UNLIMITED,
        accumulated_recompile_limit=UNLIMITED,
    ):
        yield


def prepared(module: Any, error: BaseException) -> bool:
    """Do what parts of a module would do in their first call and Dynamo cannot trace; return whether there was any.

    Models of transformers that collect hidden states install hooks then, under a lock.
    """
    capturing: Any = sys.modules.get("transformers.utils.output_capturing")
    if capturing is None or "context manager" not in str(error):
        return False
    model: Any = import_module("transformers").PreTrainedModel
    flag = "_output_capturing_hooks_installed"
    parts = [part for part in module.modules() if isinstance(part, model) and not getattr(part, flag, False)]
    for part in parts:
        capturing.maybe_install_capturing_hooks(part)
    return bool(parts)


def ignored_functions(config: Any) -> set[Any]:
    """Return the functions that Dynamo ignores while tracing: its present set, and the methods of loggers."""
    import logging

    methods = {getattr(logging.Logger, name) for name in LOGGING if hasattr(logging.Logger, name)}
    return set(config.ignore_logging_functions) | methods


def sources_of(module: Any, given: Any, inputs: list[Any]) -> tuple[Source, ...]:
    """Distinguish parameters, buffers, arguments and constants by identity."""
    parameters = {id(tensor): name for name, tensor in module.named_parameters()}
    buffers = {id(tensor): name for name, tensor in module.named_buffers()}
    leaves = {id(leaf): index for index, leaf in enumerate(pytree.tree_leaves(given)) if isinstance(leaf, torch.Tensor)}
    found: list[Source] = []
    for tensor in inputs:
        if id(tensor) in parameters:
            found.append(Source("parameter", parameters[id(tensor)]))
        elif id(tensor) in buffers:
            found.append(Source("buffer", buffers[id(tensor)]))
        elif id(tensor) in leaves:
            found.append(Source("input", leaf=leaves[id(tensor)]))
        else:
            found.append(Source("constant", tensor=tensor))
    return tuple(found)
