"""Several runs at the same time: `--jobs` and `--devices`."""
