"""The HTML report of a comparison: one self-contained file.

``build`` assembles the page, and ``charts`` draws its pictures as inline SVG; the page includes all of ``style.css``
and ``script.js``.
"""

from remat.comparing.report.page.build import page

__all__ = ["page"]
