"""One self-contained HTML page of a comparison: report.html."""
