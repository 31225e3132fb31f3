"""Labels: names of the user's own for algorithms, so that one algorithm can be asked with several sets of options."""

from __future__ import annotations

import re
from collections.abc import Collection

from remat.errors import OptionError
from remat.messages import brief
from remat.plugin.registry import Algorithm, algorithms, name_of

RESERVED = frozenset({"auto", "all"})
"""Names that are not algorithms of the registry, and that no label may have."""

_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.ASCII)


def read_label(asked: str | Algorithm, known: Collection[str] | None = None) -> tuple[str, str | Algorithm]:
    """Split ``LABEL=NAME``, an algorithm under a name of the user's own.

    Parameters
    ----------
    asked : str or Algorithm
        ``fine=rotor-float``, or an algorithm without a label.
    known : collection of str, optional
        Names that a label may not have, besides ``auto`` and ``all``. Default: the registered algorithms.

    Returns
    -------
    label : str
        Without a label, the algorithm's name.
    algorithm : str or Algorithm

    Raises
    ------
    OptionError
        If the label is not a word of letters, digits, ``-`` and ``_``, or is the name of an algorithm.
    """
    if not isinstance(asked, str) or "=" not in asked:
        return name_of(asked), asked
    label, _, name = (part.strip() for part in asked.partition("="))
    if not _LABEL.fullmatch(label):
        raise OptionError(
            f"{brief(label)} cannot name an algorithm; use a letter, then letters, digits, - and _",
            argument="algorithms",
        )
    taken = {one.name for one in algorithms()} if known is None else known
    if label in RESERVED or label in taken:
        raise OptionError(f"{label!r} is the name of an algorithm; choose another label", argument="algorithms")
    return label, name
