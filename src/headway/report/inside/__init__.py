"""What `headway analyse` shows: pictures, tables and the page's section on a run's local models."""
