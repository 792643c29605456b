"""Hosts, their variables, and the site's models and profiles: read from YAML, checked, then given to pyinfra."""

from inventory.site import PREVIOUS, Site, SiteInventory, Target, found, target  # isort: skip  -- first: roles import these
from inventory.loader import load

__all__ = ["PREVIOUS", "Site", "SiteInventory", "Target", "found", "load", "target"]
