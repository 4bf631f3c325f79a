"""What the history of many runs shows: changes, their causes, and which of them are alarms."""

from __future__ import annotations
