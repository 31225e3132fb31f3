"""The HTML report of a comparison: one file that needs nothing else, neither network nor library.

``build`` puts the page together, ``charts`` draws its pictures as inline SVG; ``style.css`` and
``script.js`` go into it whole.
"""

from remat.comparing.report.page.build import page

__all__ = ["page"]
