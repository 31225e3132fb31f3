"""GraphML files: directed graphs in XML."""
