"""A schedule as one interactive HTML file that needs nothing else: no network, no library.

``data`` brings the schedule into columns, ``build`` puts the page together; ``style.css``, ``figures.js`` (columns,
levels of detail, units) and ``page.js`` (drawing, pointer and keys) go into it whole.
"""

from remat.report.page.build import page, write_page

__all__ = ["page", "write_page"]
