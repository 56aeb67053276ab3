"""The HTTP application: endpoints, request bodies, responses."""
