"""The HTTP server: connections, TLS, and limits that apply before a request is complete."""
