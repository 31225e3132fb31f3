"""DOT files of Graphviz: directed graphs."""
