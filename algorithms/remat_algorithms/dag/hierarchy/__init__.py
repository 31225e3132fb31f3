"""`hiremate`: a hierarchy of subgraphs, options of each subgraph, and a dynamic program over options at each level."""
