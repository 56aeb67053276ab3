"""Benchmarks against limits and peers, side by side in one run; never timed tests.

The rule of the house: figures are ratios measured in one run, as absolute times are noise on shared
machines. What is measured so far, and how to get it again: docs/performance.md.
"""
