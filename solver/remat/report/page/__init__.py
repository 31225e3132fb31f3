"""A schedule as one self-contained interactive HTML file, without network access or libraries.

``data`` packs the schedule into columns, and ``build`` assembles the page. The page embeds ``style.css``,
``figures.js`` (columns, levels of detail, units) and ``page.js`` (drawing, pointer and keys).
"""

from remat.report.page.build import page, write_page

__all__ = ["page", "write_page"]
