"""Verifying an export: does a package keep the promises of its evidence?

The checks run in a process that has nothing of Warpsmith.
"""

from warpsmith.workers.exports.project import NotAnExport, Project, open_project
from warpsmith.workers.exports.report import Report, Row
from warpsmith.workers.exports.verification import CannotVerify, verify_export

__all__ = ["CannotVerify", "NotAnExport", "Project", "Report", "Row", "open_project", "verify_export"]
