"""What base and sglang make true."""

import pytest
from pyinfra.api.host import Host as Declaration
from testinfra.host import Host

from roles.base.layout import DIRECTORIES, LIMITS, PACKAGES, Directory
from roles.base.settings import BaseSettings
from roles.paths import USER
from roles.sglang.release import Release
from roles.sglang.settings import SglangSettings


def test_the_packages_are_installed(host: Host, declaration: Declaration) -> None:
    wanted = {*PACKAGES, *BaseSettings.of(declaration).packages}
    shown = host.check_output("dpkg-query --show --showformat='${db:Status-Status} ${Package}\n'")
    assert wanted - {line.split()[1] for line in shown.splitlines() if line.startswith("installed ")} == set()


def test_the_server_has_a_system_user_without_a_shell(host: Host) -> None:
    user = host.user(USER)
    assert user.uid < 1000
    assert user.shell == "/usr/sbin/nologin"


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda directory: directory.path)
def test_the_directories_have_owner_and_mode(host: Host, directory: Directory) -> None:
    found = host.file(directory.path)
    assert (found.is_directory, found.user, found.group) == (True, directory.user, directory.group)
    assert f"{found.mode:04o}" == directory.mode


def test_the_user_has_its_limits(host: Host) -> None:
    assert host.file(LIMITS.path).content_string == LIMITS.content


def test_the_release_is_the_locked_one_and_belongs_to_root(host: Host, declaration: Declaration) -> None:
    release = Release.of(SglangSettings.of(declaration).version)
    version = host.check_output("%s -c 'import sglang.version; print(sglang.version.__version__)'", release.python)
    assert version.strip() == release.version
    assert host.run("find %s -maxdepth 2 ! -user root", release.directory).stdout == ""
