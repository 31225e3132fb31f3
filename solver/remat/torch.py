"""Plans for PyTorch: ``import remat.torch``. Names are imported from `remat.bridges.torch` on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.bridges.lazy import on_first_use

if TYPE_CHECKING:
    from remat.bridges.torch.backend import Backend, backend, configure
    from remat.bridges.torch.capture import Captured, capture
    from remat.bridges.torch.chain_capture import chain
    from remat.bridges.torch.chain_execution import apply
    from remat.bridges.torch.compiled_module import compile_module as compile  # noqa: A004
    from remat.bridges.torch.execution import execute
    from remat.bridges.torch.factory import call_factory, capture_factory
    from remat.bridges.torch.fitting import fit
    from remat.bridges.torch.host_updates.optimizer import host_optimizer
    from remat.bridges.torch.inductor import Partitioner
    from remat.bridges.torch.interpreter import Execution
    from remat.bridges.torch.observation import observe
    from remat.bridges.torch.operator_timing import measure, profile
    from remat.bridges.torch.optimizers import read_optimizer
    from remat.bridges.torch.pipeline.instance import pipeline
    from remat.bridges.torch.pipeline.stages import Stages, stages
    from remat.bridges.torch.plan_options import Choices
    from remat.bridges.torch.planning import Plan, TooSmallError, load_plan, plan_of
    from remat.bridges.torch.plans import judge
    from remat.bridges.torch.recording import TorchError
    from remat.bridges.torch.target_device import target_of

_HOME = {
    "Backend": "backend",
    "Captured": "capture",
    "Choices": "plan_options",
    "Execution": "interpreter",
    "Partitioner": "inductor",
    "Plan": "planning",
    "Stages": "pipeline.stages",
    "TooSmallError": "planning",
    "TorchError": "recording",
    "apply": "chain_execution",
    "backend": "backend",
    "call_factory": "factory",
    "capture": "capture",
    "capture_factory": "factory",
    "chain": "chain_capture",
    "compile": "compiled_module:compile_module",
    "configure": "backend",
    "execute": "execution",
    "fit": "fitting",
    "host_optimizer": "host_updates.optimizer",
    "judge": "plans",
    "load_plan": "planning",
    "measure": "operator_timing",
    "observe": "observation",
    "pipeline": "pipeline.instance",
    "plan_of": "planning",
    "profile": "operator_timing",
    "read_optimizer": "optimizers",
    "stages": "pipeline.stages",
    "target_of": "target_device",
}

__all__ = [
    "Backend",
    "Captured",
    "Choices",
    "Execution",
    "Partitioner",
    "Plan",
    "Stages",
    "TooSmallError",
    "TorchError",
    "apply",
    "backend",
    "call_factory",
    "capture",
    "capture_factory",
    "chain",
    "compile",
    "configure",
    "execute",
    "fit",
    "host_optimizer",
    "judge",
    "load_plan",
    "measure",
    "observe",
    "pipeline",
    "plan_of",
    "profile",
    "read_optimizer",
    "stages",
    "target_of",
]

__getattr__, __dir__ = on_first_use(globals(), "remat.bridges.torch", _HOME)
