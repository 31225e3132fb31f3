"""`remat.torch.stages`: run a training step of a module on several ranks, as a plan of a pipeline says."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from remat.bridges.pipelining.actions import csv_lines
from remat.bridges.torch.chain_capture import loss_of
from remat.bridges.torch.pipeline.layers import Layers, trace_layers
from remat.bridges.torch.pipeline.opaque import filled
from remat.bridges.torch.pipeline.peers import Peers
from remat.bridges.torch.pipeline.plans import StagePlan, read_plan
from remat.bridges.torch.pipeline.sends import Sends, arrivals_before
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.messages import first_line


def stages(
    module: Any,
    plan: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    blocks: str | Sequence[str],
    loss: Callable[[Any, Any], Any] | None = None,
    group: Any = None,
    scale_gradients: bool = True,
) -> Stages:
    """Cut a module at the boundaries of a plan's stages; every rank calls it, and keeps the stages of its device.

    Parameters
    ----------
    module : torch.nn.Module
        The same on all ranks.
    plan : remat.Planned, remat.Result, path or dict
        With orders, for a pipeline with one layer for each block. Its devices are the ranks, in the order in which
        they are listed.
    args, kwargs : sequence, mapping
        Arguments of the module for one micro-batch; only their shapes count.
    blocks : str or sequence of str
        Names of the submodules that are the layers: ``layers.*``. The module calls them one after the other, each once.
        What runs before the first block belongs to the first layer, what runs after a block to the layer of this block.
    loss : callable, optional
        Returns the loss, given the result of the module and the target of a micro-batch. Default: the loss is the
        result, or a part of it.
    group : ProcessGroup, optional
        The ranks of the pipeline; default: all.
    scale_gradients : bool
        Divide gradients by the number of micro-batches, as for losses that are means.

    Returns
    -------
    Stages

    Raises
    ------
    TorchError
        On all ranks: if no process group is initialised, the plan does not fit the group or the module, or plans or
        modules of ranks differ.
    """
    peers = Peers(group)
    problem: Exception | None = None
    layers: Layers | None = None
    read: StagePlan | None = None
    said: list[tuple[str, str]] = []
    try:
        layers = trace_layers(module, args, kwargs, blocks)
        read = read_plan(plan, len(layers.names))
        if len(read.rows) != peers.size:
            raise TorchError(f"the plan uses {len(read.rows)} devices, and the process group has {peers.size} ranks")
        said = [("plans", read.digest), ("modules or micro-batches", layers.fingerprint)]
    except Exception as error:
        problem = error
    peers.agree(said, problem)
    assert layers is not None, "ranks agree only if all have read the plan"
    assert read is not None
    peers.open()
    return Stages(module, layers, read, peers, loss=loss, scale_gradients=scale_gradients)


def _shared(module: Any, layers: Layers, plan: StagePlan) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the parameters that layers on several ranks use, in the order of the module, with these ranks."""
    rank_of = {layer: plan.layout.home[number] for number, own in enumerate(plan.stages) for layer in own.layers}
    users: dict[Any, set[int]] = {}
    for index, layer in enumerate(layers.modules):
        for parameter in layer.parameters():
            users.setdefault(parameter, set()).add(rank_of[index])
    listed = ((one, tuple(sorted(users.get(one, ())))) for one in module.parameters() if one.requires_grad)
    return [(parameter, ranks) for parameter, ranks in listed if len(ranks) > 1]


def _positional(args: tuple[Any, ...], _: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the tensor from the previous stage; PyTorch gives keyword arguments to all stages of a rank."""
    return args


class Stages:
    """The stages of a module on this rank; from `stages`.

    Attributes
    ----------
    modules : torch.nn.ModuleDict
        The stages by their number; the blocks in them are those of the module.
    first, last : bool
        Whether this rank runs the first stage, which takes the inputs, and the last one, which computes the loss.
    schedule : torch.distributed.pipelining.schedules._PipelineScheduleRuntime
    """

    def __init__(
        self,
        module: Any,
        layers: Layers,
        plan: StagePlan,
        peers: Peers,
        *,
        loss: Callable[[Any, Any], Any] | None,
        scale_gradients: bool,
    ) -> None:
        from remat.bridges.torch.pipeline.runtime import Runtime  # not every PyTorch has torch.distributed

        mine = [number for number, rank in enumerate(plan.layout.home) if rank == peers.rank]
        self.first, self.last = mine[0] == 0, mine[-1] == len(plan.stages) - 1
        self.modules = torch.nn.ModuleDict()
        self._layers, self._peers, self._module = layers, peers, module
        self._shared = _shared(module, layers, plan)
        self._sends = Sends(arrivals_before(plan.layout, peers.rank))
        built = [self._stage(number, plan) for number in mine]

        def loss_fn(made: Any, target: Any) -> Any:
            returned = filled(layers.returned, made)
            return loss_of(returned) if loss is None else loss(returned, target)

        self.schedule = Runtime(built, plan.layout.batches, loss_fn=loss_fn, scale_grads=scale_gradients)
        self.schedule.losses = {}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.csv")
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(csv_lines(plan.rows))
            try:
                self.schedule._load_csv(path)
            except AssertionError as error:
                raise TorchError(f"PyTorch refuses the order of the plan: {first_line(str(error))}") from None
        self.schedule.insert_reruns(plan.rows, plan.ahead[peers.rank])

    def _stage(self, number: int, plan: StagePlan) -> Any:
        from remat.bridges.torch.pipeline.runtime import Stage, StageLayers

        layers, own = self._layers, plan.stages[number].layers
        modules = {layer: layers.modules[layer] for layer in own}
        flatten = layers.flatten if number == 0 else _positional
        submodule = StageLayers(modules, partial(plan.again, number), flatten)
        self.modules[str(number)] = submodule
        arriving = layers.arriving[own[0]]
        leaving = layers.arriving[own[-1] + 1] if own[-1] + 1 < len(layers.modules) else ()
        stage = Stage(
            submodule,
            number,
            len(plan.stages),
            next((parameter.device for parameter in submodule.parameters()), torch.device("cpu")),
            input_args=tuple(spec.tensor("meta") for spec in arriving),
            output_args=tuple(spec.tensor("meta") for spec in leaving) or torch.empty(0, device="meta"),
            group=self._peers.group,
        )
        stage.prepare(arriving, leaving, self._sends)
        return stage

    def __reduce_ex__(self, _: Any) -> Any:
        """Refuse copies and files: PyTorch's stages belong to a process group."""
        raise TorchError("stages of a process group cannot be copied or pickled; save the state_dict() of the module")

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield the parameters of this rank, by their names in the module."""
        own = set(self.modules.parameters())
        return ((name, parameter) for name, parameter in self._module.named_parameters() if parameter in own)

    def parameters(self) -> Iterator[Any]:
        """Yield the parameters of this rank, for its optimizer."""
        return (parameter for _, parameter in self.named_parameters())

    def step(self, *args: Any, target: Any = None, **kwargs: Any) -> list[Any]:
        """Run forwards and backwards of a batch, and leave the gradients in the parameters.

        All ranks call it, without gradients of earlier steps, which PyTorch would divide again. `args` and `kwargs` are
        those of the module for the whole batch, which is cut along the first dimension; the rank with the first stage
        reads them. The rank with the last stage reads `target`.

        Returns
        -------
        list of tensors
            The loss of each micro-batch; empty on ranks without the last stage.

        Raises
        ------
        TorchError
            On all ranks, if one of them fails. The pipeline has ended then.
        """
        schedule = self.schedule
        schedule.losses = {}
        with self._peers.together():
            given = (args, kwargs) if self.first else ((), {})
            if self.first and not (args or kwargs):
                raise TorchError("this rank runs the first stage, and got no inputs")
            schedule.step(*given[0], target=target if self.last else None, return_outputs=False, **given[1])
            self._sends.finish()
            for parameter, ranks in self._shared:
                self._peers.add_gradients(parameter, ranks)
        losses, schedule.losses = schedule.losses, {}
        return [losses[batch] for batch in sorted(losses)]


__all__ = ["Stages", "stages"]
