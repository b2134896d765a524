"""How does a server of OpenAI's kind want to be asked?"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oracle.engines.messages import EngineRequest
from oracle.engines.parameters import DEFAULT_BY_PARAMETER

STANDARD_PARAMETERS = ("temperature", "top_p", "seed", "n", "presence_penalty", "frequency_penalty", "logit_bias")
"""What OpenAI's protocol itself has; a server that speaks it claims them."""

EXTENSIONS = (
    "top_k",
    "min_p",
    "repetition_penalty",
    "stop_token_ids",
    "min_tokens",
    "allowed_token_ids",
    "ignore_eos",
    "prompt_logprobs",
    "priority",
    "cache_salt",
)
"""What some servers take besides, by the same names; a server claims one where it shows an effect."""

SENT_ALWAYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Sent also where a request leaves them out: many servers have other defaults, their model's own among them."""

ID_FIELDS = ("return_token_ids", "return_tokens_as_token_ids", "return_tokens")
"""How servers are asked for token ids; those that do not know a field pass it over, or refuse it."""


@dataclass(frozen=True)
class Dialect:
    """What was found out about one server.

    Attributes:
        model: The name that requests carry.
        takes_ids: Whether a prompt can be a list of token ids; else it is text.
        gives_ids: Whether token ids come back; else only text does.
        id_fields: Of `ID_FIELDS`, those that it lets pass.
        logprobs: How log-probabilities are asked for: "count" as OpenAI's completions have it, "flag" as its chats
            have it; None where there are none, or none that belong to ids.
        ids_need_logprobs: Whether ids come only along with log-probabilities.
        extensions: Of `EXTENSIONS`, those that the server shows to read.
        scores_of: What log-probabilities are of, as in a declaration.
        shows_stop_token: Whether the token that ends a request stands in its output.
        is_seeded: Whether a seed decides what is drawn.
        streams: Whether an answer can be had piece by piece, so that it can be hung up on.
        max_model_len: Longest request, where it says so.
    """

    model: str
    takes_ids: bool = True
    gives_ids: bool = True
    id_fields: tuple[str, ...] = ID_FIELDS
    logprobs: str | None = None
    ids_need_logprobs: bool = False
    extensions: tuple[str, ...] = ()
    scores_of: str = "model"
    shows_stop_token: bool = True
    is_seeded: bool = False
    streams: bool = True
    max_model_len: int | None = None


def completion_body(request: EngineRequest, dialect: Dialect) -> dict[str, Any]:
    """Writes a request as the server wants it; nothing that it asks for is left out."""
    known = (*STANDARD_PARAMETERS, *dialect.extensions)
    asked: dict[str, Any] = {name: DEFAULT_BY_PARAMETER[name] for name in SENT_ALWAYS if name in known}
    asked |= {name: value for name, value in request.parameters.items() if value is not None}
    num_logprobs = asked.pop("logprobs", None)
    bias = asked.pop("logit_bias", None)
    body: dict[str, Any] = {
        "model": dialect.model,
        "prompt": list(request.prompt_token_ids) if dialect.takes_ids else prompt_text(request.prompt_token_ids),
        "max_tokens": request.max_tokens,
        **dict.fromkeys(dialect.id_fields, True),
        **asked,
    }
    if dialect.ids_need_logprobs:
        num_logprobs = num_logprobs or 1
    if num_logprobs is not None:
        body |= logprobs_fields(dialect.logprobs, num_logprobs)
    if bias is not None:
        body["logit_bias"] = {str(token_id): value for token_id, value in bias}
    return body


def logprobs_fields(way: str | None, number: Any) -> dict[str, Any]:
    """Asks for log-probabilities of each token, and of so many likeliest ones."""
    return {"logprobs": True, "top_logprobs": number} if way == "flag" else {"logprobs": number}


def prompt_text(token_ids: Iterable[int]) -> str:
    """Gives a text for a server that takes nothing else: ids as decimal numbers.

    It has nothing to do with the tokens of those ids; it is different for different ids, and begins alike where
    they do, which is all that a comparison of a server with itself needs.
    """
    return " ".join(str(token_id) for token_id in token_ids)
