"""Plans for JAX: ``import remat.jax``. Names are imported from `remat.bridges.jax` on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.bridges.lazy import on_first_use

if TYPE_CHECKING:
    from remat.bridges.jax.checkpointing import CPU_OPTIONS, Checkpointed, Plan, checkpoint, temporary_bytes
    from remat.bridges.jax.importing import Imported, import_factory, import_step
    from remat.bridges.jax.shim import JaxError

_HOME = {
    "CPU_OPTIONS": "checkpointing",
    "Checkpointed": "checkpointing",
    "Imported": "importing",
    "JaxError": "shim",
    "Plan": "checkpointing",
    "checkpoint": "checkpointing",
    "import_factory": "importing",
    "import_step": "importing",
    "temporary_bytes": "checkpointing",
}

__all__ = [
    "CPU_OPTIONS",
    "Checkpointed",
    "Imported",
    "JaxError",
    "Plan",
    "checkpoint",
    "import_factory",
    "import_step",
    "temporary_bytes",
]

__getattr__, __dir__ = on_first_use(globals(), "remat.bridges.jax", _HOME)
