"""Collections of dask: their graphs as documents, and priorities from schedules.

`document` writes a graph as JSON, without code or data; `order` returns priorities for dask's scheduler.
"""

from remat.bridges.dask.collections import document, order

__all__ = ["document", "order"]
