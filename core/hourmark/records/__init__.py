"""Data formats: byte ranges, event ids, audit records, host reports and bucket manifests."""
