"""base: packages, the service's user, directories, limits."""

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from roles.base.facts import base_facts
from roles.base.layout import DIRECTORIES, LIMITS, PACKAGES
from roles.base.operations import directories_created, packages_installed, user_created
from roles.base.settings import BaseSettings
from roles.bundle.operations import apt_environment, has_packages, packages_brought, wanted_bundle
from roles.files import files_in_place
from roles.lock import check_lock
from roles.refusal import Refusal


@deploy("base")
def base() -> None:
    """Make the host ready for all other roles."""
    packages = (*PACKAGES, *BaseSettings.of(host).packages)
    facts = base_facts(host, packages)
    try:
        bundle = wanted_bundle(host)
        check_lock(facts.lock, host.name)
        if not facts.has_apt:
            raise Refusal(f"host {host.name}: no apt-get found; Debian 12 and Ubuntu 24.04 or later are accepted")
        if bundle and not has_packages(bundle, facts.files):
            bundle.check(distribution=facts.distribution)
    except Refusal as refusal:
        raise DeployError(str(refusal)) from None
    if bundle:
        packages_brought(name="Bring the packages of the bundle", bundle=bundle, seen=facts.files)
    packages_installed(
        name="Install the packages", packages=packages, installed=facts.packages, _env=apt_environment(host)
    )
    user_created(name="Create the service's user", exists=facts.has_user)
    directories_created(name="Create the directories", directories=DIRECTORIES, seen=facts.directories)
    files_in_place(name="Set the limits of the service's user", files=[LIMITS], seen=facts.files)
