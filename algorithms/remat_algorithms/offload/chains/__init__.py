"""What holds for every schedule of a chain with memories behind the processor's."""
