"""The kinds of instances and their modules; a model is imported, and its schema built, on demand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from remat.instance.adjoint import AdjointInstance
    from remat.instance.chain import ChainInstance
    from remat.instance.dag import DagInstance
    from remat.instance.join import JoinInstance
    from remat.instance.pipeline import PipelineInstance
    from remat.instance.tree import TreeInstance

    Instance = ChainInstance | AdjointInstance | DagInstance | TreeInstance | PipelineInstance | JoinInstance

KINDS = {
    "chain": "ChainInstance",
    "adjoint": "AdjointInstance",
    "dag": "DagInstance",
    "tree": "TreeInstance",
    "pipeline": "PipelineInstance",
    "join": "JoinInstance",
}
"""Kind -> name of its model; the module has the name of the kind."""


def model_of(kind: str) -> type[Any]:
    """Import the model of a kind."""
    model: type[Any] = getattr(import_module(f"remat.instance.{kind}"), KINDS[kind])
    return model


def is_pipeline(instance: object) -> TypeGuard[PipelineInstance]:
    """Whether an instance is of the kind `pipeline`, without importing that kind."""
    return getattr(instance, "kind", None) == "pipeline"


def is_chain(instance: object) -> TypeGuard[ChainInstance]:
    """Whether an instance is of the kind `chain`, without importing that kind."""
    return getattr(instance, "kind", None) == "chain"


def is_adjoint(instance: object) -> TypeGuard[AdjointInstance]:
    """Whether an instance is of the kind `adjoint`, without importing that kind."""
    return getattr(instance, "kind", None) == "adjoint"


def is_dag(instance: object) -> TypeGuard[DagInstance]:
    """Whether an instance is of the kind `dag`, without importing that kind."""
    return getattr(instance, "kind", None) == "dag"


def is_join(instance: object) -> TypeGuard[JoinInstance]:
    """Whether an instance is of the kind `join`, without importing that kind."""
    return getattr(instance, "kind", None) == "join"


def is_tree(instance: object) -> TypeGuard[TreeInstance]:
    """Whether an instance is of the kind `tree`, without importing that kind."""
    return getattr(instance, "kind", None) == "tree"


def __getattr__(name: str) -> Any:
    if name != "Instance":
        raise AttributeError(f"module 'remat.instance.kinds' has no attribute {name!r}")
    first, *others = map(model_of, KINDS)
    union: Any = first
    for model in others:
        union = union | model
    return union
