"""Clients of the clusters under evaluation."""
