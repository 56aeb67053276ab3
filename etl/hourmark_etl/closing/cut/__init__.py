"""May an hour close: who has reported, where the clusters stand, and what an override closes
without it.
"""
