"""Decides whether an hour is complete: compares promises with rows, and detects ranges that were
parsed twice with different results.
"""
