"""A host is checked before it is touched, and its GPUs before a server needs them."""
