"""front: an nginx that speaks TLS to clients and passes their requests to the server."""
