"""Choosing settings by samples held out of training: grids, successive halving, the table and the picture."""
