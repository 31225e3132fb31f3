"""The instance formats `remat.instance/1`, `/2` and `/3`: pydantic models, one kind a module, loading and digests."""

from __future__ import annotations

from remat.instance.adjoint import AdjointInstance, Step, StorageLevel
from remat.instance.base import SCHEMA, BaseInstance, UnitsModel
from remat.instance.chain import ChainInstance, Loss, Stage
from remat.instance.cluster import ClusterModel, DeviceModel, LevelModel
from remat.instance.dag import DagInstance, Parallel, Task, Value
from remat.instance.digest import digest
from remat.instance.divisions import SizeModel, SliceModel, SliceWork, TokensModel
from remat.instance.join import Branch, JoinInstance
from remat.instance.layers import Layer, LayerWork
from remat.instance.loading import Instance, instance_from_document, json_schema, load, load_machine
from remat.instance.machine import LinkModel, MachineModel, MemoryModel, ProcessorModel
from remat.instance.pipeline import PipelineInstance
from remat.instance.saving import instance_document, save_instance
from remat.instance.tree import TreeInstance

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
