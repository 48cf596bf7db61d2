"""Every method once more, in plain NumPy and float64, written from the papers' pseudo-code.

Nothing here imports Headway or torch: a mistake made in both would have to be made twice, in two languages.
"""
