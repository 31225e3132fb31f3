"""What the README and the documents print: every block is run, and compared with what comes out.

``python -m tests.printed [PAGE ...]`` runs the blocks of pages, each page in a folder of its own, in their order, so
that a later block finds the files of an earlier one. CONTRIBUTING.md says how blocks are written.
"""
