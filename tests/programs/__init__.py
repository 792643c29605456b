"""Real programs, run on this machine: command lines, host programs, servers that stand in for others."""
