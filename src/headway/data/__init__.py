"""Where samples come from, who holds them, who takes part, and in which order they are read."""
