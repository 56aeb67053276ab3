"""The HTTP server: connections, TLS, and what a client may cost before there is a request."""
