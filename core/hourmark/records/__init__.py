"""Formats of the data that components exchange: byte ranges, event ids, audit records, host reports
and bucket manifests.
"""
