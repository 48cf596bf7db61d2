"""Networks, split into stages, and the twins of layers that draw or couple a batch."""
