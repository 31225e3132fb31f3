"""ONNX models: inference graphs with shapes and work, and training graphs by one rule per operator."""
