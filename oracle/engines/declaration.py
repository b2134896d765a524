"""What an engine says of itself: what it claims, what it takes, what it shows, and where it does not work."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from oracle.engines.parameters import PARAMETERS
from oracle.errors import OracleError
from oracle.family_shapes import FAMILIES, options_of

PROTOCOL_VERSION = 1
"""Raised whenever an adapter written for an older one would be misunderstood."""

CONTRACTS = ("bitwise", "error-bounded", "greedy-up-to-ties", "statistical")
"""What an engine can claim, from the strongest to the weakest.

- bitwise: tokens and scores of a request are the same bit for bit in any company, order and setting;
- error-bounded: every score that it shows is the reference's, up to a multiple of the reference's own rounding error;
- greedy-up-to-ties: every token is the one that the request's parameters demand, unless rounding decides it;
- statistical: tokens follow the law of the model; single ones prove nothing.
"""

CAPABILITIES = (
    "logprobs",
    "top_logprobs",
    "logits",
    "prompt_logprobs",
    "seeded_sampling",
    "batching",
    "arrivals",
    "aborts",
    "steps",
    "pool",
    "activations",
)
"""What an engine can show or be made to do, besides running token ids; checks name those they need.

- logprobs: the log-probability of each emitted token;
- top_logprobs: those of the likeliest tokens at each place;
- logits: a full row of logits for each emitted token;
- prompt_logprobs: log-probabilities of the prompt's tokens;
- seeded_sampling: a seed of a request's own decides what is drawn;
- batching: several requests run at once;
- arrivals: a request can come while others run;
- aborts: a request can be aborted while others run;
- steps: the adapter decides when the engine takes a step, so that arrivals and aborts are counted in steps;
- pool: how many blocks are held after a run;
- activations: what the modules of the model gave.
"""

IGNORES_EOS = ("emits", "bans", "never")
"""What `ignore_eos` does: EOS is emitted and the request goes on; EOS never comes; there is no such switch."""

SCORES_OF = ("model", "penalised", "processed")
"""What log-probabilities are of.

- model: the model's own distribution;
- penalised: the one after penalties, biases and masks, before temperature and what follows it;
- processed: the one that tokens are drawn from.
"""

UNITS = ("tokens", "tokens-of-text", "characters")
"""What the ids of prompts and outputs stand for.

- tokens: token ids of the model, in and out;
- tokens-of-text: a prompt's ids are sent as a text made of them, whose tokens nobody knows; token ids come back;
- characters: the ids of an output are the code points of a text, from a server that gives nothing else.

Only the first can be held against a reference; the others can be held against themselves, alone, in company and again,
and the last say nothing of how many tokens were made.
"""


@dataclass(frozen=True)
class EngineDeclaration:
    """What an engine says of itself; strategies draw only from what stands here.

    Attributes:
        name: How reports name it.
        version: Of the engine, for the report.
        contract: One of `CONTRACTS`; the harness enforces the claim.
        capabilities: Of `CAPABILITIES`.
        parameters: Names of what one request may ask for, of `oracle.engines.parameters.PARAMETERS`.
        parameter_values: For some of them the only values that may be tried.
        parameter_order: In which order steps that do not commute are applied to logits, where the engine has an order.
        excluded_parameters: Groups of parameters that one request may not have together.
        needed_parameters: For some of them another that a request must have as well, such as "temperature" for "n".
        shares_parameters: Whether all requests of one run have the same parameters, as in a plain batch.
        knobs: Settings that are fixed when it is opened, each with the values worth trying, the simplest first.
        excluded_knobs: Combinations of knob values, with "family" as one more knob, that it does not take.
        knobs_without_parameters: Parameters that it does not take when it is opened in some way, each as
            `{"knobs": {"speculation": "lookup"}, "parameters": ["n"]}`.
        families: Model families that it runs, of `oracle.family_shapes.FAMILIES`, each with the variants of it that
            it does not refuse; empty for an engine that opens no checkpoint but runs what it has, of which there is no
            reference.
        head_dims: Widths of heads that it takes; empty for any.
        dtype: What it computes in: "float32", "bfloat16" or "float16".
        penalties_count_prompt: Whether presence and frequency penalties count the prompt as well.
        ignore_eos: One of `IGNORES_EOS`.
        shows_stop_token: Whether the token that ends a request stands in its output.
        scores_of: One of `SCORES_OF`.
        max_model_len: Longest request, prompt and output together.
        max_num_requests: Most requests in one run.
        min_prompt_tokens: Shortest prompt.
        witnesses: What it counts while it runs, such as "preemptions" or "cached_tokens".
        units: One of `UNITS`.
    """

    name: str
    version: str = ""
    contract: str = "greedy-up-to-ties"
    capabilities: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    parameter_values: dict[str, list[Any]] = field(default_factory=dict)
    parameter_order: tuple[str, ...] = ()
    excluded_parameters: tuple[tuple[str, ...], ...] = ()
    needed_parameters: dict[str, str] = field(default_factory=dict)
    shares_parameters: bool = False
    knobs: dict[str, list[Any]] = field(default_factory=dict)
    excluded_knobs: tuple[dict[str, Any], ...] = ()
    knobs_without_parameters: tuple[dict[str, Any], ...] = ()
    families: tuple[str, ...] = ("llama",)
    head_dims: tuple[int, ...] = ()
    dtype: str = "float32"
    penalties_count_prompt: bool = False
    ignore_eos: str = "emits"
    shows_stop_token: bool = True
    scores_of: str = "model"
    max_model_len: int = 256
    max_num_requests: int = 8
    min_prompt_tokens: int = 1
    witnesses: tuple[str, ...] = ()
    units: str = "tokens"

    def to_data(self) -> dict[str, Any]:
        """Gives it as plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "EngineDeclaration":
        """Reads plain data, from JSON; lists become tuples.

        Raises:
            ValueError: A field is unknown, or a value is none of those that it may take.
        """
        by_name = {item.name: item for item in fields(cls)}
        unknown = sorted(set(data) - set(by_name))
        if unknown or "name" not in data:
            message = f"a declaration has no field {', '.join(unknown)}" if unknown else "a declaration needs a name"
            raise ValueError(message)
        values: dict[str, Any] = {
            name: tuple(tuple(item) if isinstance(item, list) else item for item in value)
            if isinstance(value, list)
            else value
            for name, value in data.items()
        }
        declaration = cls(**values)
        declaration.check()
        return declaration

    def opened_with(self, knobs: Mapping[str, Any]) -> "EngineDeclaration":
        """Gives what it says of itself once it is opened in some way, in which it may take fewer parameters."""
        lacking = {
            name
            for entry in self.knobs_without_parameters
            if all(knobs.get(knob) == value for knob, value in entry["knobs"].items())
            for name in entry["parameters"]
        }
        return replace(self, parameters=tuple(name for name in self.parameters if name not in lacking))

    def fixed_to(self, knobs: Mapping[str, Any]) -> "EngineDeclaration":
        """Gives it with some settings held to one value each.

        Raises:
            OracleError: The engine has no such setting.
        """
        self._require(knobs, self.knobs, "has", "setting")
        return replace(self, knobs={**self.knobs, **{name: [value] for name, value in knobs.items()}})

    def limited_to(self, parameters: Mapping[str, Any]) -> "EngineDeclaration":
        """Gives it with some parameters alone.

        Args:
            parameters: Each with its one value, or None for any.

        Raises:
            OracleError: The engine does not take one.
        """
        self._require(parameters, self.parameters, "takes", "parameter")
        values = {name: [value] for name, value in parameters.items() if value is not None}
        return replace(
            self,
            parameters=tuple(name for name in self.parameters if name in parameters),
            parameter_values={**self.parameter_values, **values},
        )

    def _require(self, names: Collection[str], known: Collection[str], verb: str, kind: str) -> None:
        for name in names:
            if name not in known:
                message = f"{self.name} {verb} no {kind} {name!r}; it {verb} {', '.join(known) or 'none'}"
                raise OracleError(message, name=name)

    def check(self) -> None:
        """Checks that every word is one that the harness knows, and that every knob has a value.

        Raises:
            ValueError: One is not, and the message names it and those that are; or a knob has none.
        """
        excluded = tuple(name for group in self.excluded_parameters for name in group)
        lacking = tuple(name for entry in self.knobs_without_parameters for name in entry["parameters"])
        choices_by_name = {
            "contract": ((self.contract,), CONTRACTS),
            "parameters": (self.parameters, PARAMETERS),
            "parameter_values": (tuple(self.parameter_values), PARAMETERS),
            "parameter_order": (self.parameter_order, PARAMETERS),
            "excluded_parameters": (excluded, PARAMETERS),
            "needed_parameters": ((*self.needed_parameters, *self.needed_parameters.values()), PARAMETERS),
            "knobs_without_parameters": (lacking, PARAMETERS),
            "capabilities": (self.capabilities, CAPABILITIES),
            "ignore_eos": ((self.ignore_eos,), IGNORES_EOS),
            "scores_of": ((self.scores_of,), SCORES_OF),
            "units": ((self.units,), UNITS),
            "dtype": ((self.dtype,), ("float32", "bfloat16", "float16")),
        }
        for name, (values, choices) in choices_by_name.items():
            for value in values:
                if value not in choices:
                    message = f"{name} {value!r} is none of {', '.join(choices)}"
                    raise ValueError(message)
        unknown = [shape for shape in self.families if options_of(shape) is None]
        if unknown:
            message = f"family {unknown[0]!r} is none of {', '.join(FAMILIES)}, nor a variant of one"
            raise ValueError(message)
        empty = [name for name, knob_values in self.knobs.items() if not knob_values]
        if empty:
            message = f"knob {empty[0]} has no value that could be tried"
            raise ValueError(message)
