"""PyTorch's pipeline stage and runtime with the memory of the plan, and losses by micro-batch.

PyTorch allocates the buffers of all micro-batches before the first step, and keeps sent tensors until the step ends.
Here a buffer exists from its receive to the backward, and a sent tensor until it has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from remat.bridges.pipelining.actions import Action, Kind
from remat.bridges.torch.pipeline.layers import Spec
from remat.bridges.torch.pipeline.rerun import Rerun
from remat.bridges.torch.pipeline.sends import Sends
from remat.bridges.torch.shim import torch
from remat.schedule.recompute import Segments

_stage: Any = import_module("torch.distributed.pipelining.stage")
_schedules: Any = import_module("torch.distributed.pipelining.schedules")


class _Layers:
    """The layers of a stage.

    Parameters
    ----------
    layers : mapping of int to torch.nn.Module
        By their number in the model.
    again : callable
        Which segments a micro-batch recomputes.
    flatten : callable
        Returns the values for the first layer from arguments and keyword arguments.
    """

    def __init__(
        self, layers: Mapping[int, Any], again: Callable[[int], Segments], flatten: Callable[[Any, Any], Iterable[Any]]
    ) -> None:
        torch.nn.Module.__init__(self)
        self.numbers = tuple(layers)
        self.layers = torch.nn.ModuleList(layers.values())
        self.again = again
        self.flatten = flatten
        self.batch = 0
        self.reruns: dict[int, list[Rerun]] = {}

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the layers for micro-batch `batch`."""
        values = tuple(self.flatten(args, kwargs))
        own = dict(zip(self.numbers, self.layers, strict=True))
        segment_at = {segment[0]: segment for segment in self.again(self.batch)} if torch.is_grad_enabled() else {}
        place = 0
        while place < len(self.numbers):
            number = self.numbers[place]
            segment = segment_at.get(number, (number,))
            if number in segment_at:
                rerun = Rerun([own[layer] for layer in segment])
                self.reruns.setdefault(self.batch, []).append(rerun)
                values = rerun.first(values)
            else:
                values = own[number](*values)
            place += len(segment)
        return tuple(map(_sendable, values))

    def drops_outputs(self, batch: int) -> bool:
        """Return whether a micro-batch recomputes the last layer, and therefore the stage's result."""
        return any(segment[-1] == self.numbers[-1] for segment in self.again(batch))

    def run_again(self, batch: int) -> None:
        """Run all recomputed layers of a micro-batch again, ahead of its backward."""
        for rerun in self.reruns.pop(batch, ()):
            rerun.again()


StageLayers: Any = type("StageLayers", (_Layers, torch.nn.Module), {})


class _Function:
    """A tensor's place in the graph, without its memory: PyTorch holds outputs of a stage until their backward."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        del ctx
        element = tensor.new_empty(1).untyped_storage()
        return tensor.new_empty(0).set_(element, 0, tensor.shape, (0,) * tensor.dim())

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        del ctx
        return gradient


_StandIn: Any = type("_StandIn", (_Function, torch.autograd.Function), {})


def _sendable(value: Any) -> Any:
    """Return a contiguous tensor for sending, detached from its graph in place."""
    value = value.contiguous()
    return value.clone() if value._is_view() and value.requires_grad else value


class _Stage:
    """A stage of a rank; its base class is PyTorch's `PipelineStage`."""

    def prepare(self: Any, arriving: Sequence[Spec], leaving: Sequence[Spec], sends: Sends) -> None:
        """Store the arguments that the base class does not have."""
        self.arriving, self.leaving, self.sends = arriving, leaving, sends
        self.outgoing: dict[int, tuple[Any, ...]] = {}

    def _setup_forward_recv_info(self: Any, num_microbatches: int, has_backward: bool) -> None:
        del has_backward
        for batch in range(num_microbatches):
            self.args_recv_info[batch] = self._awaited(self._stage_meta.inputs, self.stage_index - 1)

    def _create_grad_recv_info(self: Any, act_send_info: Any) -> tuple[Any, ...]:
        del act_send_info
        return () if self.is_last else self._awaited(self._stage_meta.output_grads, self.stage_index + 1)

    def _awaited(self: Any, metas: Iterable[Any], source: int) -> tuple[Any, ...]:
        root = source < 0
        name = f"from stage {source} for stage {self.stage_index}"
        return tuple(_stage._RecvInfo(name, None if root else source, None, meta, is_root_arg=root) for meta in metas)

    def get_fwd_recv_ops(self: Any, fwd_chunk_id: int) -> list[Any]:
        self._allocate(self.args_recv_info[fwd_chunk_id], self.arriving)
        return list(_stage.PipelineStage.get_fwd_recv_ops(self, fwd_chunk_id))

    def get_bwd_recv_ops(self: Any, bwd_chunk_id: int) -> list[Any]:
        if not self.has_backward:
            return []
        self._allocate(self.grad_recv_info[bwd_chunk_id], self.leaving)
        return list(_stage.PipelineStage.get_bwd_recv_ops(self, bwd_chunk_id))

    def _allocate(self: Any, infos: Sequence[Any], specs: Sequence[Spec]) -> None:
        for info, spec in zip(infos, specs, strict=True):
            if info.tensor_meta is not None and not info.is_root_arg:
                info.buffer = torch.empty(spec.shape, dtype=spec.dtype, device=self.device)

    def set_local_bwd_input(self: Any, next_stage_bwd_outputs: tuple[Any, ...], mb_index: int) -> None:
        infos = self.grad_recv_info[mb_index]
        for info, spec, gradient in zip(infos, self.leaving, next_stage_bwd_outputs, strict=True):
            if info.tensor_meta is not None:
                missing = gradient is None
                info.buffer = torch.zeros(spec.shape, dtype=spec.dtype, device=self.device) if missing else gradient

    def get_fwd_send_ops(self: Any, fwd_chunk_id: int) -> list[Any]:
        held = self.fwd_cache[fwd_chunk_id]
        self.fwd_cache[fwd_chunk_id] = self.outgoing.pop(fwd_chunk_id, held[0]), held[1]
        operations = _stage.PipelineStage.get_fwd_send_ops(self, fwd_chunk_id)
        self.fwd_cache[fwd_chunk_id] = held
        self.sends.post(Action(Kind.SEND_F, self.stage_index, fwd_chunk_id), operations)
        return []

    def get_bwd_send_ops(self: Any, bwd_chunk_id: int) -> list[Any]:
        gradients = self.bwd_cache.get(bwd_chunk_id, ())
        self.bwd_cache[bwd_chunk_id] = tuple(one if one is None else one.contiguous() for one in gradients)
        del gradients
        operations = _stage.PipelineStage.get_bwd_send_ops(self, bwd_chunk_id)
        self.sends.post(Action(Kind.SEND_B, self.stage_index, bwd_chunk_id), operations)
        return []

    def forward_one_chunk(
        self: Any, fwd_chunk_id: int, args: Any, kwargs: Any = None, save_forward_output: bool = True
    ) -> Any:
        self.sends.settle(Kind.FORWARD, self.stage_index, fwd_chunk_id)
        self.submod.batch = fwd_chunk_id
        made = _stage.PipelineStage.forward_one_chunk(self, fwd_chunk_id, args, kwargs, save_forward_output)
        if not self.is_last and torch.is_grad_enabled() and self.submod.drops_outputs(fwd_chunk_id):
            outputs, inputs = self.fwd_cache[fwd_chunk_id]
            self.fwd_cache[fwd_chunk_id] = tuple(map(_StandIn.apply, outputs)), inputs
            if not self._is_same_rank(self.stage_index + 1):
                self.outgoing[fwd_chunk_id] = outputs
        return made

    def backward_one_chunk(
        self: Any, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        self.sends.settle(Kind.BACKWARD, self.stage_index, bwd_chunk_id)
        _stage.PipelineStage.backward_one_chunk(self, bwd_chunk_id, loss, full_backward, last_backward)
        self.submod.reruns.pop(bwd_chunk_id, None)
        if not full_backward and self.stage_index > 0:  # PyTorch keeps more than the second half reads
            inputs, groups, _, _ = self.backward_state[bwd_chunk_id]
            self.backward_state[bwd_chunk_id] = ((), groups, (), ())
            for value in inputs:
                value.grad = None
        for info in (*self.args_recv_info[bwd_chunk_id], *self.grad_recv_info[bwd_chunk_id]):
            info.buffer = None


Stage: Any = type("Stage", (_Stage, _stage.PipelineStage), {})


class _Runtime:
    """The runtime of a rank; its base class is PyTorch's `_PipelineScheduleRuntime`.

    PyTorch lists the losses in the order of the forwards, and takes them by micro-batch.
    """

    losses: dict[int, Any]

    def _maybe_compute_loss(
        self: Any, stage: Any, output: Any, target_mbs: Any, mb_index: int, loss_kwargs: Any = None
    ) -> None:
        del loss_kwargs
        if stage.is_last:
            self.losses[mb_index] = self._loss_fn(output, None if target_mbs is None else target_mbs[mb_index])

    def _maybe_get_loss(self: Any, stage: Any, mb_index: int) -> Any:
        if not stage.is_last:
            return None
        loss = self.losses[mb_index]
        self.losses[mb_index] = loss.detach().clone()
        return loss

    def _update_losses(self, stages: Any, losses: Any) -> None:
        del stages, losses

    def insert_reruns(self: Any, rows: Sequence[Sequence[Any]], ahead: Sequence[tuple[int, int, int]]) -> None:
        """Run recomputations ahead of their backwards, each before a cell of this rank.

        They travel as reductions of gradients with a micro-batch, which the runtime lets others execute.
        """
        carrier = _schedules.REDUCE_GRAD
        mine = self.pipeline_order_with_comms[self.rank]
        for cell, stage, batch in reversed(ahead):
            before = str(rows[self.rank][cell])
            place = next(index for index, action in enumerate(mine) if str(action) == before)
            mine.insert(place, _schedules._Action(stage, carrier, batch))
        by_index = {stage.stage_index: stage for stage in self._stages}
        scale = self._n_microbatches if self.scale_grads else 1

        def run(action: Any, _: Any) -> None:
            stage = by_index[action.stage_index]
            if action.microbatch_index is None:
                stage.perform_reduce_grad(scale)
            else:
                stage.submod.run_again(action.microbatch_index)

        self.register_custom_function(carrier, run)


Runtime: Any = type("Runtime", (_Runtime, _schedules._PipelineScheduleRuntime), {})
