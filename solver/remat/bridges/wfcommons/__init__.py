"""Workflows of WfCommons: WfFormat 1.5 and 1.6."""
