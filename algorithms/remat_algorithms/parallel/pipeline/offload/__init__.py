"""Pipelines whose devices may send what they hold to a host, and bring it back for the backward."""
