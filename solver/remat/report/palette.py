"""One meaning, one colour, in every picture: after Okabe and Ito, told apart by (nearly) everybody (tests measure it).

Text stays black on all that carry labels. Kinds of bytes have the colour of the phase that makes them: what a saving
forward leaves is blue like itself, what a backward makes is green.
"""

from __future__ import annotations

import enum
from types import MappingProxyType

from remat.report.views.composition import Kind
from remat.report.views.occupancy import Stay
from remat.report.views.phases import Phase
from remat.report.views.stages import Fate


class Role(enum.StrEnum):
    """What a colour stands for."""

    FORWARD = "forward"
    SAVING = "saving"
    AGAIN = "again"
    LOSS = "loss"
    BACKWARD = "backward"
    COPY = "copy"
    WEIGHTS = "weights"
    UPDATE = "update"
    ELSEWHERE = "elsewhere"
    CHECKPOINT = "checkpoint"
    PARAMETERS = "parameters"
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
        Role.ELSEWHERE: "#E1E4E8",
        Role.CHECKPOINT: "#4F3F94",
        Role.PARAMETERS: "#7F8893",
        Role.WORKSPACE: "#F0D75C",
        Role.OTHER: "#C9CED6",
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
        Role.ELSEWHERE: "#3A414A",
        Role.CHECKPOINT: "#A596EE",
        Role.PARAMETERS: "#6B7580",
        Role.WORKSPACE: "#E9D36B",
        Role.OTHER: "#4A525C",
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
        Phase.TASK: Role.FORWARD,
        Phase.COPY: Role.COPY,
        Phase.WEIGHTS: Role.WEIGHTS,
        Phase.UPDATE: Role.UPDATE,
    }
)
OF_KIND = MappingProxyType(
    {
        Kind.PARAMETERS: Role.PARAMETERS,
        Kind.CHECKPOINTS: Role.CHECKPOINT,
        Kind.SAVED: Role.SAVING,
        Kind.PASSING: Role.FORWARD,
        Kind.GRADIENTS: Role.BACKWARD,
        Kind.VALUES: Role.FORWARD,
        Kind.WORKSPACE: Role.WORKSPACE,
        Kind.OTHER: Role.OTHER,
    }
)
OF_STAY = MappingProxyType(
    {
        Stay.INITIAL: Role.PARAMETERS,
        Stay.COMPUTED: Role.FORWARD,
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
        Fate.KEPT: Role.SAVING,
        Fate.CHECKPOINT: Role.CHECKPOINT,
        Fate.RECOMPUTED: Role.AGAIN,
        Fate.OFFLOADED: Role.COPY,
    }
)
