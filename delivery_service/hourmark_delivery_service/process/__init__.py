"""The processes of a service: start, supervision, reports, shutdown."""
