"""What a host's variables say is to be served."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyinfra.api.host import Host

from inventory import PREVIOUS, Target, target
from roles import paths
from roles.cuda import toolkit
from roles.cuda.settings import CudaSettings
from roles.files import File
from roles.refusal import Refusal, nearest
from roles.serve import programs
from roles.serve.candidate import Candidate
from roles.serve.command import RESERVED, command, port_of, trusts_code
from roles.serve.deadline import Start
from roles.serve.facts import ServeFacts, serve_facts
from roles.serve.good import previous
from roles.serve.keys import names_of_keys
from roles.serve.parallelism import on_cpu
from roles.serve.profile import Profile
from roles.serve.settings import ServeSettings
from roles.serve.suits import Suitability, suitability
from roles.serve.unit import UNITS, argument, neighbours, quoted, unit_name
from roles.serve.weights_per_rank import checkpoint_bytes
from roles.sglang.catalogue import Catalogue
from roles.sglang.release import Release
from roles.sglang.settings import SglangSettings
from roles.templates import render
from roles.weights import layout
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings

_LOCAL: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where a server that listens everywhere is asked on the host itself."""


class Declared(NamedTuple):
    """The profiles that suit a host, each as it would be served there."""

    candidates: Mapping[str, Candidate]
    """By the profile's name."""
    unsuitable: Mapping[str, Sequence[str]]
    """Why each of the others cannot be served there, one sentence each."""
    tight: Mapping[str, str]
    """Why a deploy does not switch to those candidates whose memory may not suffice; none if it is allowed to."""

    def against(self, name: str) -> Sequence[str]:
        """Why a deploy would refuse to serve this profile; empty if it would not."""
        return self.unsuitable.get(name) or ([self.tight[name]] if name in self.tight else [])

    def wanted(self, names: tuple[str, ...], host: str) -> list[Candidate]:
        """The candidates of these profiles. Raises Refusal with every reason against one of them."""
        reasons = [f"host {host}: profile {name}: {reason}" for name in names for reason in self.against(name)]
        if reasons:
            raise Refusal("\n".join(reasons))
        chosen = [self.candidates[name] for name in names]
        for one in chosen:
            if clash := sorted({other.unit_name for other in chosen} & set(one.neighbours.all)):
                raise Refusal(
                    f"host {host}: profiles: {one.profile.name} would use the GPUs or port of {', '.join(clash)}; "
                    "give each its own by `gpus:` and `server: {port: …}`"
                )
        return chosen


def declared(host: Host, also: Mapping[str, Profile] | None = None) -> Declared:
    """Everything that this host could serve, from its variables alone; `also`: profiles that no file declares."""
    wish = target(host)
    wish = wish._replace(profiles={**wish.profiles, **(also or {})})
    catalogue = Catalogue.load(SglangSettings.of(host).version)
    judged = {name: _judged(profile, wish, catalogue) for name, profile in wish.profiles.items()}
    suitable = [wish.profiles[name] for name, found in judged.items() if not found.reasons]
    accept = ServeSettings.of(host).accept_tight
    return Declared(
        candidates={profile.name: _candidate(host, profile, suitable, wish, catalogue) for profile in suitable},
        unsuitable={name: found.reasons for name, found in judged.items() if found.reasons},
        tight={name: found.tight for name, found in judged.items() if found.tight and not accept},
    )


def wanted_names(host: Host, seen: ServeFacts | None = None) -> tuple[str, ...]:
    """The names of the wanted profiles; the host is asked only where they say `previous` and nobody asked before."""
    wish = target(host)
    if wish.variables.profile != PREVIOUS:
        return wish.variables.profiles or (wish.variables.profile,)
    names = previous((seen or serve_facts(host)).history, host.name)
    for name in names:
        if name not in wish.profiles:
            raise Refusal(f"host {host.name}: profile: `previous` is {name}; {nearest(name, wish.profiles)}")
    return names


def _judged(profile: Profile, wish: Target, catalogue: Catalogue) -> Suitability:
    """Whether a profile can be served. The loader has checked the flags of files, but not those of variations."""
    if errors := catalogue.check(profile.server, RESERVED).errors:
        return Suitability(errors)
    model, draft = models_of(profile, wish)
    return suitability(profile, model, wish.hardware, draft, wish.profiles)


def models_of(profile: Profile, wish: Target) -> tuple[Model, Model | None]:
    """A profile's model, and its draft model if it has one."""
    return wish.models[profile.model], wish.models[profile.draft] if profile.draft else None


def _candidate(
    host: Host, profile: Profile, suitable: list[Profile], wish: Target, catalogue: Catalogue
) -> Candidate:
    settings, kept = ServeSettings.of(host), WeightsSettings.of(host)
    release = Release.of(SglangSettings.of(host).version)
    model, draft = models_of(profile, wish)
    weights = layout.directory(kept, model)
    keys = names_of_keys(settings)
    invocation = command(
        profile,
        settings,
        catalogue,
        release=release.directory,
        launcher=programs.LAUNCH.path if keys else None,
        weights=weights,
        draft=layout.directory(kept, draft) if draft else None,
        trust_remote_code=trusts_code(model, draft),
        cuda_home=None if on_cpu(profile) else toolkit.home(CudaSettings.of(host), release.directory),
    )
    gpus = wish.hardware.gpus if wish.hardware else 0
    ports = [other.name for other in suitable if port_of(other, settings) == port_of(profile, settings)]
    near = neighbours(profile, suitable, gpus=gpus, same_port=ports)
    start = _start(profile, wish, settings)
    text = render(
        "serve/sglang.service.j2",
        {
            "profile": profile,
            "command": invocation,
            "neighbours": near,
            "release": release,
            "settings": settings,
            "ready_limit": start.deadline().seconds,
            "ready": programs.READY.path,
            "user": paths.USER,
            "on_gpus": not on_cpu(profile),
            "keys": keys,
            "credentials": paths.CREDENTIALS,
        },
        {"quoted": quoted, "argument": argument},
    )
    return Candidate(
        profile=profile,
        command=invocation,
        unit=File(f"{UNITS}/{unit_name(profile.name)}", text),
        neighbours=near,
        weights=weights,
        start=start,
        address=_LOCAL.get(settings.host, settings.host),
        keys=keys,
    )


def _start(profile: Profile, wish: Target, settings: ServeSettings) -> Start:
    model, draft = models_of(profile, wish)
    size = checkpoint_bytes(model) + (checkpoint_bytes(draft) if draft else 0)
    return Start(size, on_gpus=not on_cpu(profile), limit=settings.ready_limit)
