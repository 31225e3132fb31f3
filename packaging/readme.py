"""The README as package indexes show it: hatchling calls this when it builds.

An index has the text alone: no pictures, and no documents beside it. Links to these are left as text, with the name of
the file in the source distribution, until `[tool.remat] home` in pyproject.toml says where the documents can be read.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)]*)?\)")


def for_an_index(text: str, home: str) -> str:
    """Return a README whose links lead somewhere from anywhere.

    Parameters
    ----------
    text : str
        Markdown.
    home : str
        The address of the folder with the documents; empty where there is none.
    """
    text = re.sub(r"^ *<!-- .* -->\n", "", text, flags=re.MULTILINE)

    def link(match: re.Match[str]) -> str:
        picture, label, target, place = match[1], match[2], match[3], match[4] or ""
        if "://" in target or not target:
            return match[0]
        if home:
            return f"{picture}[{label}]({home.rstrip('/')}/{target}{place})"
        return "" if picture else f"{label} ({target})"

    return _LINK.sub(link, text)


def readme() -> str:
    """Return the README of this checkout for an index."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    home = about.get("tool", {}).get("remat", {}).get("home", "")
    return for_an_index((ROOT / "README.md").read_text("utf-8"), home)


def get_metadata_hook() -> type[Any]:
    """Return what hatchling calls."""
    from hatchling.metadata.plugin.interface import MetadataHookInterface

    class Readme(MetadataHookInterface):
        """Sets `readme`."""

        def update(self, metadata: dict[str, Any]) -> None:
            metadata["readme"] = {"content-type": "text/markdown", "text": readme()}

    return Readme
