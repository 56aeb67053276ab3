"""The contracts of what travels: ranges, event ids, audit records, host reports, bucket
manifests.
"""
