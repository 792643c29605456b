"""Packages, the service's user, directories, limits."""
