"""Alarms of the mirror, before events are lost and when they are."""
