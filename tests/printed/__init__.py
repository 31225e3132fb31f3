"""Run every block of the README and the documents, and compare the printed output.

``python -m tests.printed [PAGE ...]`` runs the blocks of pages in their order, each page in a separate folder, so that
a later block finds the files of an earlier one. CONTRIBUTING.md explains how to write blocks.
"""
