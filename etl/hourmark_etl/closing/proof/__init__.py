"""Decides whether an hour is complete: compares audit records with rows, and detects ranges that were
parsed twice with different results.
"""
