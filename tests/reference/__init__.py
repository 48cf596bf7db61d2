"""Every method once more, in plain NumPy and float64, written from the papers' pseudo-code.

Nothing here imports Headway or torch, so a mistake in both would have to be made twice.
"""
