"""base: packages, the service's user, directories, limits."""

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from roles.base.facts import base_facts
from roles.base.layout import DIRECTORIES, LIMITS, PACKAGES
from roles.base.operations import directories_created, packages_installed, user_created
from roles.base.settings import BaseSettings
from roles.files import files_in_place
from roles.lock import check_lock
from roles.refusal import Refusal


@deploy("base")
def base() -> None:
    """Make the host ready for all other roles."""
    packages = (*PACKAGES, *BaseSettings.of(host).packages)
    facts = base_facts(host, packages)
    try:
        check_lock(facts.lock, host.name)
        if not facts.has_apt:
            raise Refusal(f"host {host.name}: no apt-get found; Debian 12 and Ubuntu 24.04 or later are accepted")
    except Refusal as refusal:
        raise DeployError(str(refusal)) from None
    packages_installed(name="Install the packages", packages=packages, installed=facts.packages)
    user_created(name="Create the service's user", exists=facts.has_user)
    directories_created(name="Create the directories", directories=DIRECTORIES, seen=facts.directories)
    files_in_place(name="Set the limits of the service's user", files=[LIMITS], seen=facts.files)
