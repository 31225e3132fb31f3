"""Transformers as their published configurations describe them: parameters, activations, instances, memory."""
