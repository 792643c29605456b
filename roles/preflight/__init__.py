"""A host is checked before it is touched."""
