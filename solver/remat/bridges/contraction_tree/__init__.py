"""Contraction trees of cotengra and opt_einsum: orders of tensor contractions with little memory.

`document` writes such a tree as JSON.
"""

from remat.bridges.contraction_tree.importing import document, import_tree

__all__ = ["document", "import_tree"]
