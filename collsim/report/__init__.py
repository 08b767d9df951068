"""The report: one HTML file that says what was simulated, how long it took, why, and how that compares.

Jinja2 and matplotlib are loaded when a report is made, not when this package is imported.
"""

from __future__ import annotations

from collsim.report.document import check_report_path, report_html, write_report

__all__ = ["check_report_path", "report_html", "write_report"]
