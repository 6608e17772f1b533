"""A score, shown: tables, Markdown, HTML, JUnit, annotations. Nothing here prints."""

from __future__ import annotations

from replay.report.comparison import comparison_table
from replay.report.junit import github_annotations, junit
from replay.report.markdown import markdown, markdown_table
from replay.report.page import html
from replay.report.table import HEADLINE, Table, crash, number, strata_tables, table

__all__ = [
    "HEADLINE",
    "Table",
    "comparison_table",
    "crash",
    "github_annotations",
    "html",
    "junit",
    "markdown",
    "markdown_table",
    "number",
    "strata_tables",
    "table",
]
