"""Entry point of the exports: the format and the kind of instance choose the policy."""

from __future__ import annotations

from remat.bridges.checkpointing.formats import CHAIN_FORMATS, Exported
from remat.bridges.checkpointing.policy import chain_plan
from remat.errors import OptionError
from remat.instance.kinds import is_chain, is_pipeline
from remat.solving.verifying import Examined

SELECTIVE = "torch-sac"


def export_policy(examined: Examined, format_: str) -> Exported:
    """Return a verified schedule as a checkpointing policy.

    Parameters
    ----------
    examined : Examined
    format_ : str
        ``torch-checkpoint``, ``torch-sac``, ``torchtitan``, ``megatron``, ``layer-ids`` or ``flagscale``.

    Raises
    ------
    OptionError
        If the format has no policies for this kind of instance.
    """
    if format_ == SELECTIVE:
        from remat.bridges.checkpointing.selective import torch_sac

        return torch_sac(examined)
    if is_chain(examined.instance):
        return CHAIN_FORMATS[format_](chain_plan(examined))
    if is_pipeline(examined.instance):
        from remat.bridges.checkpointing.pipelines import PIPELINE_FORMATS

        if format_ in PIPELINE_FORMATS:
            return PIPELINE_FORMATS[format_](examined)
        raise OptionError(f"{format_} has no policies for pipelines; {', '.join(PIPELINE_FORMATS)} have", argument="as")
    more = f", and {SELECTIVE} takes captured PyTorch steps"
    raise OptionError(f"{format_} takes chains{more}; the instance is a {examined.instance.kind}", argument="as")
