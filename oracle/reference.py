"""The reference: Hugging Face behind a narrow face."""

import inspect
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from transformers.utils import logging as transformers_logging

from oracle.activations import (
    PER_HEAD_OUTPUT,
    ROTATED_KEYS,
    ROTATED_QUERIES,
    Activation,
    ActivationCollector,
    canonical_names,
)
from oracle.errors import ReferenceUnavailable, ScenarioError
from refinfer.shapes import Logits

_LOADING_ERRORS = (
    OSError,  # a file is absent
    ValueError,  # an architecture, an attention function or a tokenizer file that it does not know
    KeyError,  # a RoPE setting is absent
    ImportError,  # a tokenizer that needs another library
    RuntimeError,  # a weight of another shape
    SafetensorError,  # a file cut short
    StrictDataclassError,  # a configuration value of another type
)
"""What transformers raises for a folder that it cannot load."""


class Reference:
    """A Llama of transformers that is asked in one way only.

    One request in a batch of one, with an explicit attention mask, without gradients, and without a cache
    unless one is asked for.

    Args:
        model: A causal language model of transformers, which is switched to evaluation.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()

    @classmethod
    def open(cls, folder: str | Path, dtype: str = "float32", attn_implementation: str = "sdpa") -> "Reference":
        """Loads a checkpoint folder; asks no hub.

        Args:
            folder: Holds config.json and the weights.
            dtype: Dtype to run in; "auto" for the checkpoint's.
            attn_implementation: Which of transformers' attention functions runs, such as "sdpa" or "eager".

        Raises:
            ReferenceUnavailable: transformers cannot load the folder, or would fill weights with random numbers.
        """
        with _loading(folder):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation=attn_implementation,
                local_files_only=True,
                output_loading_info=True,
            )
        model, report = loaded
        missing = report["missing_keys"]
        if missing:
            message = (
                f"{folder} lacks {min(missing)}, which transformers would fill with random numbers; "
                "copy or download the checkpoint again"
            )
            raise ReferenceUnavailable(message, folder=folder, missing=missing)
        for parameter in model.parameters():
            # transformers leaves weights where they lie in the mapped file. Some products round differently
            # where a weight does not start at the edge of a cache line, as fresh memory does on both sides.
            parameter.data = parameter.data.clone()
        return cls(model)

    def logits(self, token_ids: Sequence[int]) -> Logits:
        """Computes the logits after every token of one request, in one pass.

        Raises:
            ScenarioError: There is no token.
        """
        return self._run(token_ids, cache=None)

    def greedy(
        self,
        prompt_token_ids: Sequence[int],
        max_tokens: int,
        eos_token_ids: Collection[int] = (),
        *,
        use_cache: bool = False,
    ) -> tuple[list[int], Logits]:
        """Continues a prompt with the token of the highest logit each time, the lowest id where several are highest.

        Args:
            prompt_token_ids: What is continued.
            max_tokens: Most tokens to emit, at least one.
            eos_token_ids: The output ends with the first of these.
            use_cache: Whether each token runs once, over transformers' cache, which is faster.
                If not, everything runs in every step, and the bits are those of `logits` of the same tokens.

        Returns:
            The output token ids, and for each the logits it was chosen by.

        Raises:
            ScenarioError: The prompt has no token, or none may be emitted.
        """
        if max_tokens < 1:
            message = f"max_tokens is {max_tokens}; it must be at least 1"
            raise ScenarioError(message, max_tokens=max_tokens)
        cache = DynamicCache(config=self.model.config) if use_cache else None
        output_token_ids: list[int] = []
        rows = []
        for _ in range(max_tokens):
            rows.append(self._run([*prompt_token_ids, *output_token_ids], cache=cache)[-1])
            output_token_ids.append(int(rows[-1].argmax()))  # the first of equal logits, which `topk` does not promise
            if output_token_ids[-1] in eos_token_ids:
                break
        return output_token_ids, torch.stack(rows)

    def activations(self, token_ids: Sequence[int]) -> dict[str, Activation]:
        """Computes everything that `oracle.activations.canonical_names` names, in that order.

        No module gives rotated queries and keys: they are rebuilt from the projections and the rotary tables
        of the same pass. Per-head output is what the output projection is given.

        Raises:
            ScenarioError: There is no token.
        """
        config = self.model.config
        attention_paths = [f"model.layers.{layer_index}.self_attn" for layer_index in range(config.num_hidden_layers)]
        with ActivationCollector(self.model, input_paths=[f"{path}.o_proj" for path in attention_paths]) as collector:
            self.logits(token_ids)
        records = {name: record[0] for name, record in collector.records.items()}  # the batch axis goes
        cos, sin = records["model.rotary_emb[0]"], records["model.rotary_emb[1]"]
        for path in attention_paths:
            queries, keys, per_head_output = (
                records[f"{path}.{name}"].reshape(len(token_ids), -1, config.head_dim)  # tokens any_heads head_dim
                for name in ("q_proj", "k_proj", "o_proj.input")
            )
            queries, keys = apply_rotary_pos_emb(queries, keys, cos, sin)
            records[f"{path}.{ROTATED_QUERIES}"] = queries
            records[f"{path}.{ROTATED_KEYS}"] = keys
            records[f"{path}.{PER_HEAD_OUTPUT}"] = per_head_output
        return {name: records[name] for name in canonical_names(config.num_hidden_layers)}

    def _run(self, token_ids: Sequence[int], *, cache: DynamicCache | None) -> Logits:
        """Runs those tokens of a request that the cache does not hold yet."""
        if not token_ids:
            message = "a request without a token has no logits; give at least one token id"
            raise ScenarioError(message)
        cache_arguments = {} if cache is None else {self._cache_keyword(): cache}
        num_computed_tokens = 0 if cache is None else cache.get_seq_length()
        with torch.no_grad():
            output = self.model(
                input_ids=torch.tensor([token_ids[num_computed_tokens:]]),
                attention_mask=torch.ones(1, len(token_ids), dtype=torch.int64),
                use_cache=cache is not None,
                **cache_arguments,
            )
        logits: Logits = output.logits[0]
        return logits

    def _cache_keyword(self) -> str:
        """Older releases name the argument `past_key_values`; newer ones warn of that name."""
        return "cache" if "cache" in inspect.signature(self.model.forward).parameters else "past_key_values"


class ReferenceTokenizer:
    """The tokenizer of a checkpoint, as transformers runs it.

    Args:
        tokenizer: A tokenizer of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @classmethod
    def open(cls, folder: str | Path) -> "ReferenceTokenizer":
        """Loads the tokenizer of a checkpoint folder; asks no hub.

        Raises:
            ReferenceUnavailable: transformers cannot load it.
        """
        with _loading(folder):
            return cls(AutoTokenizer.from_pretrained(folder, local_files_only=True))

    def encode(self, text: str) -> list[int]:
        """Gives the token ids of a text, with the special tokens that the tokenizer puts around a prompt."""
        return list(self.tokenizer.encode(text))

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Gives the token ids of a conversation, up to where the assistant is to speak.

        Raises:
            ReferenceUnavailable: The tokenizer has no chat template.
        """
        if self.tokenizer.chat_template is None:
            message = f"{self.tokenizer.name_or_path} has no chat template; give text or token ids"
            raise ReferenceUnavailable(message)
        encoded = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=True)
        return list(encoded["input_ids"])

    def decode(self, token_ids: Sequence[int]) -> str:
        """Gives the text of token ids, without special tokens."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))


@contextmanager
def _loading(folder: str | Path) -> Iterator[None]:
    """Turns what transformers raises into `ReferenceUnavailable`, and keeps its log lines and progress bars quiet."""
    if not Path(folder).is_dir():
        message = f"{folder} is not a folder; give the folder that holds config.json"
        raise ReferenceUnavailable(message, folder=folder)
    verbosity = transformers_logging.get_verbosity()
    shows_progress = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    except _LOADING_ERRORS as error:
        message = f"transformers cannot load {folder} ({type(error).__name__}: {error})"
        raise ReferenceUnavailable(message, folder=folder) from error
    finally:
        transformers_logging.set_verbosity(verbosity)
        if shows_progress:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
