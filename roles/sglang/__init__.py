"""The SGLang release: an immutable virtual environment, made from a lock with hashes."""
