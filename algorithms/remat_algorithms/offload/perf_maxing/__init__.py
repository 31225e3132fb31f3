"""A budget policy by layers: the shares that each layer keeps, recomputes and offloads."""
