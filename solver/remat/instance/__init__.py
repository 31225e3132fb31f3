"""The instance formats `remat.instance/1`, `/2` and `/3`: pydantic models, one module per kind, loading and digests."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from remat.instance.base import SCHEMA, BaseInstance, UnitsModel, instance_document, save_instance
from remat.instance.digest import digest
from remat.instance.loading import instance_from_document, json_schema, load, load_machine
from remat.instance.machine import LinkModel, MachineModel, MemoryModel, ProcessorModel

if TYPE_CHECKING:
    from remat.instance.adjoint import AdjointInstance, Step, StorageLevel
    from remat.instance.batch_splitting import SizeModel, SliceModel, SliceWork, TokensModel
    from remat.instance.chain import ChainInstance, Loss, Stage
    from remat.instance.cluster import ClusterModel, DeviceModel, LevelModel
    from remat.instance.dag import DagInstance
    from remat.instance.join import Branch, JoinInstance
    from remat.instance.kinds import Instance
    from remat.instance.layers import Layer, LayerWork
    from remat.instance.pipeline import PipelineInstance
    from remat.instance.tasks import Parallel, Task, Value
    from remat.instance.tree import TreeInstance

_HOME = {
    **dict.fromkeys(("AdjointInstance", "Step", "StorageLevel"), "adjoint"),
    **dict.fromkeys(("ChainInstance", "Loss", "Stage"), "chain"),
    **dict.fromkeys(("ClusterModel", "DeviceModel", "LevelModel"), "cluster"),
    "DagInstance": "dag",
    **dict.fromkeys(("SizeModel", "SliceModel", "SliceWork", "TokensModel"), "batch_splitting"),
    **dict.fromkeys(("Branch", "JoinInstance"), "join"),
    "Instance": "kinds",
    **dict.fromkeys(("Layer", "LayerWork"), "layers"),
    "PipelineInstance": "pipeline",
    **dict.fromkeys(("Parallel", "Task", "Value"), "tasks"),
    "TreeInstance": "tree",
}
"""Names that are imported on first use, and their modules."""

__all__ = [
    "SCHEMA",
    "AdjointInstance",
    "BaseInstance",
    "Branch",
    "ChainInstance",
    "ClusterModel",
    "DagInstance",
    "DeviceModel",
    "Instance",
    "JoinInstance",
    "Layer",
    "LayerWork",
    "LevelModel",
    "LinkModel",
    "Loss",
    "MachineModel",
    "MemoryModel",
    "Parallel",
    "PipelineInstance",
    "ProcessorModel",
    "SizeModel",
    "SliceModel",
    "SliceWork",
    "Stage",
    "Step",
    "StorageLevel",
    "Task",
    "TokensModel",
    "TreeInstance",
    "UnitsModel",
    "Value",
    "digest",
    "instance_document",
    "instance_from_document",
    "json_schema",
    "load",
    "load_machine",
    "save_instance",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'remat.instance' has no attribute {name!r}")
    value = getattr(import_module(f"remat.instance.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
