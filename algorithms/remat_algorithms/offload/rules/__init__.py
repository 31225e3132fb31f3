"""Published rules for offloading: vDNN, SuperNeurons, Capuchin and their like."""
