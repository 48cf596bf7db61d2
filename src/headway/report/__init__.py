"""Tables, pictures and pages of runs.

>>> headway.report.write(headway.compare(["fedavg", "fedacg"], seeds=3), "report")
"""

from headway.report.folder import Report, write

__all__ = ["Report", "write"]
