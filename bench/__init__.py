"""Benchmarks against limits and reference programs, compared within one run; no time limits in
tests.

Results are ratios measured in one run, because absolute times vary on shared machines. Measured
results and how to reproduce them: docs/internals/performance.md.
"""
