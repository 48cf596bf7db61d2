"""The papers' tables and figures: presets (PAPER/items.toml), published values (PAPER/TABLE.csv), runs and tables."""
