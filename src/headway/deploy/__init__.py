"""Real clients: the same rounds, with clients at other places that hold their data and their states themselves."""
