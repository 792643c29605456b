"""What a host without a network gets in one directory."""
