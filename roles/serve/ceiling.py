"""The most that a profile could reach on a host: an upper bound from what must be read and exchanged. Pure.

A decode step reads every weight it uses and every cached key and value once from the GPU's memory, and its
layers wait for each other's results. Arithmetic, prefill, the draft model and everything SGLang does on the CPU
are taken as free, so that hardly anything can be faster: only routing that is far from even, which makes a batch
of tokens share fewer experts.
"""

from math import ceil, pow
from typing import Final, NamedTuple

from roles.preflight.hardware import Hardware
from roles.serve.kv_cache import bytes_per_token, indexer_bytes
from roles.serve.parallelism import Parallelism, on_cpu
from roles.serve.placement import Placement, Sharing
from roles.serve.profile import Profile
from roles.serve.sizing import Sizing
from roles.serve.tensors import stage_weights
from roles.weights.model import Model

ACTIVATION_BYTES: Final = 2
"""Between layers and ranks travels bf16."""

READ_IN_PART: Final = frozenset({"embedding", "vision", "rope", "draft"})
"""Parts of which a decode step reads a row or nothing."""


class Load(NamedTuple):
    """What is asked of the server at once."""

    requests: float
    """Requests in flight."""
    context: float
    """Tokens of a request that are in the KV cache, on average."""


def decode_ceiling(profile: Profile, model: Model, hardware: Hardware, load: Load) -> float | None:
    """Output tokens per second, summed over requests, that cannot be exceeded under `load`.

    None where the hardware's memory bandwidth is not known. Raises Refusal for sizes that do not nest.
    """
    if on_cpu(profile) or not hardware.memory_bandwidth_gb_s:
        return None
    parallelism = Parallelism.of(profile.server)
    sizing = Sizing.of(model, profile, parallelism, hardware)
    running = load.requests
    if sizing.max_running_requests is not None:  # the others wait
        running = min(running, sizing.max_running_requests * parallelism.attn_dp * parallelism.dp)
    # Each pipeline stage works on another micro-batch; a request goes through the stages one after the other.
    batch = Load(max(1.0, running / parallelism.dp / parallelism.pp), load.context)
    step = _Step(model, parallelism, Placement.of(model, profile, parallelism), sizing, batch)
    rate = hardware.memory_bandwidth_gb_s * 1e9
    seconds = sum(step.bytes_read(stage) / rate + step.exchange(stage, hardware) for stage in range(parallelism.pp))
    return running * _accepted(profile, sizing) / seconds


class _Step(NamedTuple):
    """One step of one micro-batch through the pipeline stages of one replica."""

    model: Model
    parallelism: Parallelism
    placement: Placement
    sizing: Sizing
    batch: Load

    @property
    def tokens(self) -> float:
        """Tokens that a stage computes; with speculative decoding several for each request."""
        return self.batch.requests * self.sizing.draft_tokens

    def bytes_read(self, stage: int) -> float:
        """Bytes that one rank of a stage reads from its memory."""
        sharing = Sharing.of_parallelism(self.parallelism, self.model.architecture)
        is_tied_head = stage == self.parallelism.pp - 1 and self.model.architecture.tie_word_embeddings
        weights: float = sum(
            copies * weight.bytes_on_rank(sharing) * (self._experts_used() if weight.part == "experts" else 1)
            for weight, copies in stage_weights(self.model, self.placement, stage)
            if weight.in_checkpoint
            and (weight.part not in READ_IN_PART or (weight.part == "embedding" and is_tied_head))
        )
        requests = max(1.0, self.batch.requests / self.parallelism.attn_dp)
        return weights + requests * self._cache_read(self.placement.stages[stage])

    def _experts_used(self) -> float:
        """The share of its experts that a rank reads, if tokens are routed evenly.

        Each token takes k of E experts, so nobody takes a given one with the probability (1 - k / E)^tokens.
        The busiest of ep groups has at least its share of one token's k.
        """
        experts, k = self.model.architecture.n_routed_experts, self.model.architecture.num_experts_per_tok
        if not experts or not k:
            return 1
        ep = self.parallelism.ep
        held = (experts + self.placement.redundant_experts) / ep
        return min(1, max(1 - pow(1 - k / experts, self.tokens), ceil(k / ep) / held))

    def _cache_read(self, layers: range) -> float:
        """Bytes of the KV cache that a rank reads in `layers` for one request.

        Sparse attention reads its indexer's keys for every token, and the rest for those that it selects.
        """
        a, sizing, context = self.model.architecture, self.sizing, self.batch.context
        row = bytes_per_token(self.model, layers, self.parallelism, sizing.kv_cache_dtype, sizing.plain_sparse_rows)
        if not a.is_sparse or not a.index_topk:
            return row * context
        keys = sum(indexer_bytes(a) for layer in layers if a.has_indexer(layer))
        return keys * context + (row - keys) * min(context, a.index_topk)

    def exchange(self, stage: int, hardware: Hardware) -> float:
        """Seconds that a stage waits for results of other ranks.

        Two all-reduces for each layer, after attention and after the MLP or the experts (with ep_size, too, each
        rank adds up what its experts made), and one hand-over to the next stage. An all-reduce of S bytes over n
        ranks moves at least 2 (n - 1) / n S bytes through each rank's link (Patarasuk and Yuan, J. Parallel
        Distrib. Comput. 69, 2009), and takes at least as long as a small one.
        """
        tp, pp = self.parallelism.tp, self.parallelism.pp
        size = self.tokens * self.model.architecture.hidden_size * ACTIVATION_BYTES
        per_byte = 1 / (hardware.link_bandwidth_gb_s * 1e9) if hardware.link_bandwidth_gb_s else 0
        all_reduce = max(hardware.all_reduce_us / 1e6, 2 * (tp - 1) / tp * size * per_byte) if tp > 1 else 0
        hand_over = size / tp * per_byte if pp > 1 else 0
        return 2 * len(self.placement.stages[stage]) * all_reduce + hand_over


def _accepted(profile: Profile, sizing: Sizing) -> int:
    """Tokens that one step yields at most: every drafted one accepted, and one more."""
    steps = profile.server.get("speculative_num_steps")
    return min(sizing.draft_tokens, steps + 1) if isinstance(steps, int) else sizing.draft_tokens
