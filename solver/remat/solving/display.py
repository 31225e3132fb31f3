"""Display of results and instances in a notebook; the renderers belong to higher layers and are named, not imported."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from remat.errors import RematError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Shown:
    """An object with a short description, a table, a picture and records.

    Its renderer, the module `_shown_by`, defines ``lines``, ``text``, ``html``, ``figure``, ``save`` and ``records``.
    """

    _shown_by: ClassVar[str] = "remat.report.notebook"

    def __repr__(self) -> str:
        lines: list[str] = import_module(self._shown_by).lines(self)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: a few lines, the interactive page in a frame, and the folded table."""
        html: str = import_module(self._shown_by).html(self)
        return html

    def summary(self) -> str:
        """Return the table as the command line prints it."""
        text: str = import_module(self._shown_by).text(self)
        return text

    def plot(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Figure | None:
        """Draw a picture.

        Parameters
        ----------
        path : path, optional
            Output file: `.svg`, `.png`, `.pdf`, or `.html` for an interactive page. By default the figure is returned.
        **options
            For a schedule: ``view``, as for `remat solve`.

        Raises
        ------
        remat.OptionError
            If the object has no picture, or no view of that name.
        remat.MissingExtraError
            If matplotlib is not installed.
        """
        renderer = import_module(self._shown_by)
        if path is not None:
            renderer.save(self, path, **options)
            return None
        figure: Figure = renderer.figure(self, **options)
        return figure

    def frame(self) -> Any:
        """Return what `to_frame` returns; the name until version 0.3."""
        import warnings

        warnings.warn("frame() is to_frame() now", DeprecationWarning, stacklevel=2)
        return self.to_frame()

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per step, answer or cell.

        Raises
        ------
        remat.RematError
            If pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise RematError("a frame needs pandas: pip install pandas") from None
        return pandas.DataFrame(import_module(self._shown_by).records(self))
