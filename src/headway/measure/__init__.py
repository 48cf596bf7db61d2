"""The numbers the papers are about: accuracy and its smoothing, rounds and bytes to a target, spread over seeds."""
