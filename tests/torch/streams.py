"""Stand-ins for CUDA streams and events on the CPU, where everything happens at once."""

from contextlib import nullcontext

import torch


class Event:
    """Has ended for the host once the host has waited for it."""

    ended = False

    def query(self):
        return self.ended

    def synchronize(self):
        self.ended = True


class Stream:
    """Notes what it waits for."""

    def __init__(self, _=None):
        self.waits = []

    def wait_stream(self, other):
        self.waits.append(other)

    def wait_event(self, event):
        assert event is not None
        self.waits.append(event)

    def record_event(self):
        return Event()


def on_the_cpu(monkeypatch):
    """Let `torch.cuda` have these streams, and return the compute stream."""
    compute = Stream()
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: compute)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    return compute
