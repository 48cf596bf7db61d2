"""Tables, pictures and pages of runs.

>>> headway.report.write(headway.compare(["fedavg", "fedacg"], seeds=3), "report")
"""

from headway.report.folder import Report, write
from headway.report.grid.folder import GridReport, write_grid

__all__ = ["GridReport", "Report", "write", "write_grid"]
