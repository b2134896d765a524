"""What does the network compute? Llama: `forward` over packed tokens, `prefill` and `decode` over caches."""

from collections.abc import Sequence

import torch
from torch import nn

from refinfer.config import ModelConfig
from refinfer.errors import EmptyPromptError, ShapeError, TokenIdError
from refinfer.interfaces import AttentionView, KVCache
from refinfer.model.attention import LlamaAttention
from refinfer.model.linear import Linear
from refinfer.model.mlp import LlamaMLP
from refinfer.model.norm import RMSNorm
from refinfer.model.packed import PackedAttentionView
from refinfer.model.rope import RotaryEmbedding
from refinfer.numerics import Numerics
from refinfer.shapes import HiddenStates, Logits, PositionIds, RotaryTable, TokenIds


class LlamaLayer(nn.Module):
    """One decoder layer: attention, then MLP, each on a normed copy of the residual stream.

    Args:
        config: The model's shape.
        layer_index: Which layer this is, counted from 0.
        dtype: Dtype of the weights.
        numerics: The manner that computes.
    """

    def __init__(self, config: ModelConfig, layer_index: int, *, dtype: torch.dtype, numerics: Numerics) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        self.input_layernorm = RMSNorm(hidden, eps=eps, dtype=dtype, numerics=numerics)
        self.self_attn = LlamaAttention(config, layer_index, dtype=dtype, numerics=numerics)
        self.post_attention_layernorm = RMSNorm(hidden, eps=eps, dtype=dtype, numerics=numerics)
        self.mlp = LlamaMLP(config, dtype=dtype, numerics=numerics)

    def forward(
        self, hidden_states: HiddenStates, cos: RotaryTable, sin: RotaryTable, attention_view: AttentionView
    ) -> HiddenStates:
        """Gives the residual stream after this layer."""
        normed = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(normed, cos, sin, attention_view)
        normed = self.post_attention_layernorm(hidden_states)
        output: HiddenStates = hidden_states + self.mlp(normed)
        return output


class LlamaBody(nn.Module):
    """Everything below the head: embedding, layers, final norm.

    Args:
        config: The model's shape.
        dtype: Dtype of the weights.
        numerics: The manner that computes.
    """

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, numerics: Numerics) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.hidden_size, dtype=dtype, device="meta"
        ).requires_grad_(requires_grad=False)
        self.layers = nn.ModuleList(
            LlamaLayer(config, layer_index, dtype=dtype, numerics=numerics) for layer_index in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, eps=config.norm_eps, dtype=dtype, numerics=numerics)
        self.rotary_emb = RotaryEmbedding(config, dtype=dtype, numerics=numerics)

    def forward(self, input_ids: TokenIds, position_ids: PositionIds, attention_view: AttentionView) -> HiddenStates:
        """Gives the normed hidden states of the tokens that run."""
        hidden_states = self.embed_tokens(input_ids)
        cos, sin = self.rotary_emb(position_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states, cos, sin, attention_view)
        normed: HiddenStates = self.norm(hidden_states)
        return normed


class Llama(nn.Module):
    """A Llama model; module paths are the checkpoint's, so that loading is an identity.

    It owns no cache and knows no request. Parameters hold no memory until `load_model` fills them.

    Args:
        config: The model's shape.
        dtype: Dtype of weights and activations.
        numerics: The manner that computes.
    """

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, numerics: Numerics) -> None:
        super().__init__()
        self.model = LlamaBody(config, dtype=dtype, numerics=numerics)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, has_bias=False, dtype=dtype, numerics=numerics)
        self.config = config
        self.dtype = dtype
        self.numerics = numerics

    @property
    def embedding_weight(self) -> nn.Parameter:
        """The embedding's weight, which is the head's too where they are tied."""
        return self.get_parameter("model.embed_tokens.weight")

    def forward(
        self,
        input_ids: TokenIds,
        position_ids: PositionIds,
        attention_view: AttentionView,
        logits_rows: Sequence[int] | None = None,
    ) -> Logits:
        """Computes logits of packed tokens, whatever requests they belong to.

        Args:
            input_ids: Token ids of everything that runs.
            position_ids: Each token's place in its own request, counted from 0.
            attention_view: Answers, for each layer, what the tokens' attention output is.
            logits_rows: The packed tokens whose logits are wanted, in that order; None means all.

        Raises:
            ShapeError: There is no token, the lengths of the two inputs differ, or a row is asked for
                that does not run.
            TokenIdError: An id lies outside the vocabulary.
        """
        if len(input_ids) != len(position_ids) or not len(input_ids):
            message = (
                f"{len(input_ids)} token ids and {len(position_ids)} position ids were given; "
                "each token needs one position, and there must be at least one"
            )
            raise ShapeError(message, input_ids=input_ids, position_ids=position_ids)
        lowest, highest = int(input_ids.min()), int(input_ids.max())
        if lowest < 0 or highest >= self.config.vocab_size:
            message = f"token ids run from {lowest} to {highest}; the vocabulary has 0 to {self.config.vocab_size - 1}"
            raise TokenIdError(message, lowest=lowest, highest=highest)
        rows = range(len(input_ids)) if logits_rows is None else logits_rows
        if any(not 0 <= row < len(input_ids) for row in rows):
            message = f"logits_rows {list(rows)} are asked for; what runs has rows 0 to {len(input_ids) - 1}"
            raise ShapeError(message, logits_rows=rows)
        hidden_states = self.model(input_ids, position_ids, attention_view)
        if logits_rows is not None:
            hidden_states = hidden_states[list(logits_rows)]
        if not len(hidden_states):  # a step of unfinished prompts, of which nobody asks for logits
            no_logits: Logits = hidden_states.new_empty(0, self.config.vocab_size)
            return no_logits
        logits: Logits = self.lm_head(hidden_states)
        return logits

    def prefill(self, prompts: Sequence[Sequence[int]], caches: Sequence[KVCache]) -> Logits:
        """Runs the next tokens of several requests and makes them part of their caches.

        A prompt may be run whole, or in chunks by several calls. All requests share one pass.
        If the pass raises, every cache stands where it stood.

        Args:
            prompts: For each request, the token ids that run, at least one.
            caches: For each request, its own cache.

        Returns:
            The logits of each request's last token, in the order given.

        Raises:
            ShapeError: There is no prompt, not one cache for each, or one cache twice.
            EmptyPromptError: A prompt has no token.
            TokenIdError: An id lies outside the vocabulary.
        """
        if len(prompts) != len(caches) or len({id(cache) for cache in caches}) != len(caches):
            message = f"{len(prompts)} prompts were given with {len(caches)} caches; each needs one of its own"
            raise ShapeError(message, num_prompts=len(prompts), num_caches=len(caches))
        for index, prompt in enumerate(prompts):
            if not len(prompt):
                message = f"prompt {index} has no token; give at least one"
                raise EmptyPromptError(message, index=index)
        lengths = [len(prompt) for prompt in prompts]
        view = PackedAttentionView(
            [cache.attention_view(length) for cache, length in zip(caches, lengths, strict=True)], lengths
        )
        position_ids = [
            cache.num_computed_tokens + offset
            for cache, length in zip(caches, lengths, strict=True)
            for offset in range(length)
        ]
        input_ids = [token_id for prompt in prompts for token_id in prompt]
        last_rows = (torch.tensor(lengths).cumsum(0) - 1).tolist()
        logits = self.forward(
            torch.tensor(input_ids, dtype=torch.int64), torch.tensor(position_ids, dtype=torch.int64), view, last_rows
        )
        for cache, length in zip(caches, lengths, strict=True):
            cache.advance(length)
        return logits

    def decode(self, token_ids: Sequence[int], caches: Sequence[KVCache]) -> Logits:
        """Runs one more token of several requests whose prompts were prefilled.

        Args:
            token_ids: For each request, its newest token.
            caches: For each request, its own cache.

        Returns:
            The logits of each request, in the order given.

        Raises:
            ShapeError: Not one cache for each token, or a cache that holds no token yet.
            TokenIdError: An id lies outside the vocabulary.
        """
        for index, cache in enumerate(caches):
            if not cache.num_computed_tokens:
                message = f"cache {index} holds no token; prefill its prompt before decoding"
                raise ShapeError(message, index=index)
        return self.prefill([[token_id] for token_id in token_ids], caches)
