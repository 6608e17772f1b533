"""A score, shown: tables, Markdown, JUnit, annotations."""

from __future__ import annotations

from replay.report.table import HEADLINE, Table, table

__all__ = ["HEADLINE", "Table", "table"]
