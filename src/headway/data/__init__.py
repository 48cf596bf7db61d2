"""Data sets, their split among clients, who takes part in a round, and the order in which clients read samples."""
