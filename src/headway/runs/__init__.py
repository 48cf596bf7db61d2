"""The run folder: a scenario, a line for each round, a checkpoint that survives a kill, a summary."""
