"""Published offloading rules: vDNN, SuperNeurons, Capuchin and similar ones."""
