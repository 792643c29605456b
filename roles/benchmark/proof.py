"""Whether a server has proven that it performs."""

from roles.benchmark.facts import BenchmarkFacts
from roles.benchmark.name import proof, proven
from roles.benchmark.settings import BenchmarkSettings
from roles.serve.candidate import Candidate
from roles.serve.profile import Profile


def is_proven(candidate: Candidate, facts: BenchmarkFacts, settings: BenchmarkSettings) -> bool:
    """Whether there is nothing to measure."""
    if settings.level == "off":
        return True
    wanted = proof_of(candidate, facts)
    return not settings.again and proven(facts.names, wanted, settings.depth) is not None


def references(profile: Profile) -> dict[int, float]:
    """Output tokens per second by concurrency; the first reference of each counts."""
    return {reference.concurrency: reference.output_tokens_per_second for reference in reversed(profile.reference)}


def proof_of(candidate: Candidate, facts: BenchmarkFacts) -> str:
    """What has to be proven of a server on a host."""
    profile = candidate.profile
    return proof(candidate.command.fingerprint, facts.machine, profile.benchmark, references(profile))
