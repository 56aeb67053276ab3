"""Is an hour complete: promises of audit records against listed rows, and two readings of one
range.
"""
