"""Trees on several processors that share a memory."""
