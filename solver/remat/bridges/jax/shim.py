"""The one place that imports JAX."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from remat.errors import MissingExtraError, RematError


class JaxError(RematError):
    """A function cannot be planned or imported; the message gives the reason."""


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtraError("remat.jax", "jax", "JAX") from None


jax: Any = _module("jax")
core: Any = _module("jax.extend.core")
checkpoint_name: Any = _module("jax.ad_checkpoint").checkpoint_name
