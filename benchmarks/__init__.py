"""How fast Slipway is: `make bench` measures it beside Ansible. Results are in results.md."""
