"""A run's folder to report.html."""
