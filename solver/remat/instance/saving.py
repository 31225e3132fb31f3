"""Writing an instance as a document."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from remat.documents import write_text

if TYPE_CHECKING:
    from remat.instance.base import BaseInstance


def instance_document(instance: BaseInstance) -> dict[str, Any]:
    """Return the document of an instance, without defaults, in the lowest schema that can express it."""
    document = instance.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"schema_"})
    kind = getattr(instance, "kind")  # noqa: B009 - a default, but it says what the rest means
    return {"schema": instance.least_schema, "kind": kind} | document


def save_instance(instance: BaseInstance, path: str | os.PathLike[str]) -> None:
    """Write an instance atomically; files that end in ``.gz`` are compressed."""
    write_text(path, [json.dumps(instance_document(instance), indent=1, ensure_ascii=False), "\n"])
