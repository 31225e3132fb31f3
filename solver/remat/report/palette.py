"""The palette of all pictures: one colour per meaning, after Okabe and Ito, safe for colour blindness (tested).

Time (what processors do) and memory (what bytes are for) share no colour: time is blue, orange and green, memory is
violet, rose and olive. Storage levels and groups of values have separate colours.
"""

from __future__ import annotations

import enum
from types import MappingProxyType

from remat.report.views.kinds import Kind
from remat.report.views.occupancy import Stay
from remat.report.views.phases import Phase
from remat.report.views.stages import Fate


class Role(enum.StrEnum):
    """The meaning of a colour."""

    FORWARD = "forward"
    SAVING = "saving"
    AGAIN = "again"
    LOSS = "loss"
    BACKWARD = "backward"
    COPY = "copy"
    WEIGHTS = "weights"
    UPDATE = "update"
    EXCHANGE = "exchange"
    TASK = "task"
    ELSEWHERE = "elsewhere"
    CHECKPOINT = "checkpoint"
    STATIC = "static"
    PARAMETERS = "parameters"
    STATES = "states"
    PARAMETER_GRADIENTS = "parameter-gradients"
    GATHERED = "gathered"
    BUCKETS = "buckets"
    SAVED = "saved"
    PASSING = "passing"
    GRADIENTS = "gradients"
    VALUES = "values"
    WORKSPACE = "workspace"
    OTHER = "other"
    BUDGET = "budget"


LIGHT = MappingProxyType(
    {
        Role.FORWARD: "#56B4E9",
        Role.SAVING: "#3487C0",
        Role.AGAIN: "#E69F00",
        Role.LOSS: "#B85C93",
        Role.BACKWARD: "#2AA884",
        Role.COPY: "#9AA3AD",
        Role.WEIGHTS: "#E8C547",
        Role.UPDATE: "#A88B66",
        Role.EXCHANGE: "#84F0C0",
        Role.TASK: "#A9DDD8",
        Role.ELSEWHERE: "#E1E4E8",
        Role.CHECKPOINT: "#43389A",
        Role.STATIC: "#6A7C74",
        Role.PARAMETERS: "#7199B1",
        Role.STATES: "#4F67A0",
        Role.PARAMETER_GRADIENTS: "#714444",
        Role.GATHERED: "#D3D899",
        Role.BUCKETS: "#50364A",
        Role.SAVED: "#BA6DD8",
        Role.PASSING: "#D1B1E5",
        Role.GRADIENTS: "#CF8F95",
        Role.VALUES: "#9A5B45",
        Role.WORKSPACE: "#BEAE55",
        Role.OTHER: "#D1FCE5",
        Role.BUDGET: "#C4470A",
    }
)
DARK = MappingProxyType(
    {
        Role.FORWARD: "#6FBDEB",
        Role.SAVING: "#3C86BA",
        Role.AGAIN: "#EBA82A",
        Role.LOSS: "#F0A6CC",
        Role.BACKWARD: "#37B08E",
        Role.COPY: "#7C8691",
        Role.WEIGHTS: "#E3C655",
        Role.UPDATE: "#B99D77",
        Role.EXCHANGE: "#B5F0E8",
        Role.TASK: "#3A5478",
        Role.ELSEWHERE: "#3A414A",
        Role.CHECKPOINT: "#5E57B7",
        Role.STATIC: "#7383A5",
        Role.PARAMETERS: "#9CD1B3",
        Role.STATES: "#33347E",
        Role.PARAMETER_GRADIENTS: "#784E4D",
        Role.GATHERED: "#A8A460",
        Role.BUCKETS: "#7D6673",
        Role.SAVED: "#7C77E1",
        Role.PASSING: "#E4CFEC",
        Role.GRADIENTS: "#D97880",
        Role.VALUES: "#9A5238",
        Role.WORKSPACE: "#DDD346",
        Role.OTHER: "#564261",
        Role.BUDGET: "#FF8A4D",
    }
)

OF_PHASE = MappingProxyType(
    {
        Phase.FORWARD: Role.FORWARD,
        Phase.SAVING: Role.SAVING,
        Phase.RECOMPUTATION: Role.AGAIN,
        Phase.LOSS: Role.LOSS,
        Phase.BACKWARD: Role.BACKWARD,
        Phase.TASK: Role.TASK,
        Phase.COPY: Role.COPY,
        Phase.WEIGHTS: Role.WEIGHTS,
        Phase.UPDATE: Role.UPDATE,
        Phase.EXCHANGE: Role.EXCHANGE,
    }
)
OF_KIND = MappingProxyType(
    {
        Kind.STATIC: Role.STATIC,
        Kind.PARAMETERS: Role.PARAMETERS,
        Kind.STATES: Role.STATES,
        Kind.PARAMETER_GRADIENTS: Role.PARAMETER_GRADIENTS,
        Kind.GATHERED: Role.GATHERED,
        Kind.BUCKETS: Role.BUCKETS,
        Kind.CHECKPOINTS: Role.CHECKPOINT,
        Kind.SAVED: Role.SAVED,
        Kind.PASSING: Role.PASSING,
        Kind.GRADIENTS: Role.GRADIENTS,
        Kind.VALUES: Role.VALUES,
        Kind.WORKSPACE: Role.WORKSPACE,
        Kind.OTHER: Role.OTHER,
    }
)
OF_STAY = MappingProxyType(
    {
        Stay.INITIAL: Role.PARAMETERS,
        Stay.COMPUTED: Role.TASK,
        Stay.FORWARD: Role.FORWARD,
        Stay.SAVING: Role.SAVING,
        Stay.RECOMPUTED: Role.AGAIN,
        Stay.BACKWARD: Role.BACKWARD,
        Stay.FETCHED: Role.COPY,
        Stay.ELSEWHERE: Role.ELSEWHERE,
    }
)
OF_FATE = MappingProxyType(
    {
        Fate.KEPT: Role.SAVED,
        Fate.CHECKPOINT: Role.CHECKPOINT,
        Fate.RECOMPUTED: Role.AGAIN,
        Fate.OFFLOADED: Role.COPY,
    }
)
LEVELS = ("#43389A", "#C2307A", "#857400", "#7B4B3A", "#37474F", "#9B5DE5")
"""Lines and bars of the storage levels of an adjoint, the quickest first."""

GROUPS = ("#B9A6E3", "#F2A7A0", "#C8CF74", "#E3A6D8", "#C7A98B", "#8FB8B3", "#F5D3A6", "#9AA7D9", "#D8D2C4")
"""Areas of the groups of values of a task graph, the largest first."""
GROUPS_DARK = ("#7E6BB8", "#B8645C", "#8C9440", "#A8629B", "#8A6C50", "#4F7F79", "#B08A54", "#5F6DA8", "#8A8475")


def ink_on(colour: str) -> str:
    """Return black or white, whichever is legible on a colour (``#RRGGBB``)."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#10161C" if 0.3 * red + 0.59 * green + 0.11 * blue > 125 else "#FFFFFF"
