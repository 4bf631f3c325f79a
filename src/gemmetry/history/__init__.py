"""Analysis of the history of many runs: changes, their causes, and which of them are alarms."""

from __future__ import annotations
