"""front: TLS before the server."""

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from roles.bundle.operations import apt_environment
from roles.files import files_in_place
from roles.front.facts import front_facts
from roles.front.layout import front_of
from roles.front.operations import certificate_made, front_removed, front_runs, nginx_installed
from roles.front.settings import FrontSettings
from roles.refusal import Refusal
from roles.serve.declared import declared, wanted_names
from roles.serve.settings import ServeSettings


@deploy("front")
def front() -> None:
    """Let clients reach the wanted profile's server by TLS, or remove what let them."""
    settings = FrontSettings.of(host)
    seen = front_facts(host)
    if not settings.enabled:
        front_removed(name="Remove the front", seen=seen)
        return
    try:
        wanted = front_of(settings, _server())
    except Refusal as refusal:
        raise DeployError(str(refusal)) from None
    nginx_installed(name="Install nginx", seen=seen, _env=apt_environment(host))
    missing = wanted.self_signed and not seen.has_certificate
    certificate_made(name="Make a certificate", needed=missing, name_of_host=settings.name)
    files_in_place(name="Write nginx's configuration and unit", files=wanted.files, seen=seen.files)
    front_runs(name="Let nginx run", front=wanted, seen=seen)


def _server() -> str:
    """Where nginx finds the server. Raises Refusal if it cannot stand before it, or must not."""
    serve = ServeSettings.of(host)
    if serve.api_key is None and not serve.open:
        raise Refusal(
            f"host {host.name}: front_enabled lets others reach the server without a key; "
            "give serve_api_key, or say `serve_open: true`"
        )
    servers = declared(host).wanted(wanted_names(host), host.name)
    if len(servers) != 1:
        raise Refusal(f"host {host.name}: front_enabled: `profiles` names {len(servers)}; a front has one server")
    return servers[0].url.removeprefix("http://")
