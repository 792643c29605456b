"""A Hugging Face hub on this machine, for tests: see server.py."""
