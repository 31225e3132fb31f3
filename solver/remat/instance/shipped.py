"""The shipped instances: in the checkout of an editable install, otherwise inside the package."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from remat.errors import OptionError, checked_call
from remat.messages import listing, nearest

if TYPE_CHECKING:
    from remat.instance import Instance


def _folder() -> Path:
    package = Path(__file__).resolve().parents[1]
    checkout = package.parents[1] / "instances"
    if (checkout / "README.md").is_file() and (checkout.parent / "solver").is_dir():
        return checkout
    # The package is never zipped; `importlib.resources` would take longer than solving a small instance.
    return package / "_instances"


@cache
def examples() -> dict[str, Path]:
    """Return the shipped instances.

    Returns
    -------
    dict of str to Path
        Names such as ``chains/resnet50_b32_224``, mapped to the files.
    """
    folder = _folder()
    found = [path for path in folder.glob("*/*.json*") if path.name.endswith((".json", ".json.gz"))]
    return {f"{path.parent.name}/{path.name.split('.json')[0]}": path for path in sorted(found)}


def example_path(name: str) -> Path:
    """Return the path of a shipped instance; the beginning of a file's name is enough.

    Raises
    ------
    OptionError
        If no instance, or more than one, begins with `name`.
    """
    listed = examples()
    exact = [key for key in listed if name in (key, key.partition("/")[2])]
    matches = exact or [key for key in listed if key.partition("/")[2].startswith(name)]
    if len(matches) == 1:
        return listed[matches[0]]
    if matches:
        raise OptionError(f"several shipped instances begin with {name!r}: {', '.join(matches)}")
    folders = {key.partition("/")[0] for key in listed}
    if (folder := nearest(name.rstrip("/"), folders)) is not None and name.rstrip("/") in (folder, folder.rstrip("s")):
        own = [key.partition("/")[2] for key in listed if key.startswith(f"{folder}/")]
        raise OptionError(f"{name!r} is a folder of shipped instances: {listing(own)}")
    short = {key.partition("/")[2]: key for key in listed}
    near = nearest(name, short)
    hint = f"did you mean {near!r}?" if near else f"there are {listing(listed)}"
    raise OptionError(f"no shipped instance is called {name!r}; {hint}; remat generate makes others")


@checked_call(OptionError)
def example(name: str) -> Instance:
    """Load a shipped instance.

    Parameters
    ----------
    name : str
        A name of `remat.examples`, with or without its folder; the beginning is enough.

    Returns
    -------
    Instance

    Raises
    ------
    remat.OptionError
        If no instance, or more than one, begins with `name`.

    Examples
    --------
    >>> import remat
    >>> remat.example("resnet50").length
    18
    """
    from remat.instance import load

    return load(example_path(name))
