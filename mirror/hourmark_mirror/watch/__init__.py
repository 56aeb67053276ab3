"""Continuous observation of the mirror, with alarms before and after events are lost."""
