"""Fuzzers: cases drawn from a seed, each of which ends as promised or is a finding with what repeats it.

`python -m fuzzing` (with `tests` on PYTHONPATH) plays the long form, `test_fuzz.py` a short one.
"""
