"""Grids of scenarios: a page with small multiples, a heat map and a table for each scenario."""
