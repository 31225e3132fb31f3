"""A budget policy by layers: what each layer keeps, remakes and sends to the host."""
