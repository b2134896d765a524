"""A stand-in for as much of mlx-lm as its adapter uses: its calls by the same names, on a model that counts.

The token after some others is their sum and their number, modulo the vocabulary; token 0 is what a draft misses.
"""

import importlib
import sys
from types import ModuleType, SimpleNamespace

VOCAB_SIZE = 11
MODULES = ("mlx_lm_model", "mlx_lm_batch", "mlx_lm_engine")
"""Of the adapter, in the order in which they import each other."""


def next_token(tokens):
    return (sum(tokens) + len(tokens)) % VOCAB_SIZE


def continuation(prompt, number):
    tokens = list(prompt)
    for _ in range(number):
        tokens.append(next_token(tokens))
    return tuple(tokens[len(prompt) :])


class Row(list[float]):
    """Log-probabilities: the token that comes is the likeliest."""

    @classmethod
    def of(cls, token_id):
        return cls(-0.5 if place == token_id else -float(place + 1) for place in range(VOCAB_SIZE))

    def tolist(self):
        return list(self)


class Cache:
    """Holds the tokens that stand in it."""

    def __init__(self, tokens=(), *, can_trim=True):
        self.tokens, self.can_trim, self.state = list(tokens), can_trim, None

    def merge(self, _caches):
        return self


class StandIn:
    """What was asked of it, and what it answers."""

    def __init__(self):
        self.config = {"eos_token_id": [7]}
        self.can_trim = self.can_merge = True
        self.load_error = None
        self.calls = []
        self.names = []

    def load_model(self, folder, *, model_config):
        if self.load_error is not None:
            raise self.load_error
        self.calls.append(("load_model", str(folder)))
        self.names.append(model_config)
        return SimpleNamespace(parameters=dict, update=lambda _: None), self.config

    def make_prompt_cache(self, _model, max_kv_size=None):
        self.calls.append(("make_prompt_cache", max_kv_size))
        cache = Cache(can_trim=self.can_trim)
        return [cache if self.can_merge else SimpleNamespace(tokens=[], can_trim=self.can_trim)]

    def make_sampler(self, **arguments):
        self.calls.append(("make_sampler", arguments))
        if arguments.get("min_p", 0) > 1:
            message = "`min_p` has to be a float in the [0, 1] interval"
            raise ValueError(message)
        return "sampler"

    def make_logits_processors(self, **arguments):
        self.calls.append(("make_logits_processors", arguments))
        return ["processor"]

    def stream_generate(self, _model, tokenizer, prompt, max_tokens, draft_model=None, **options):
        """Yields as mlx-lm does; with a draft every token but 0 was guessed."""
        self.calls.append(("stream_generate", {"prompt": list(prompt), "max_tokens": max_tokens, **options}))
        tokens = options["prompt_cache"][0].tokens
        options["prompt_progress_callback"](0, len(prompt))
        options["prompt_progress_callback"](len(prompt), len(prompt))
        tokens.extend(prompt)
        for number in range(1, max_tokens + 1):
            token_id = next_token(tokens)
            tokens.append(token_id)
            is_stop = token_id in tokenizer.eos_token_ids
            reason = "stop" if is_stop else "length" if number == max_tokens else None
            yield SimpleNamespace(
                token=token_id,
                logprobs=Row.of(token_id),
                from_draft=draft_model is not None and token_id != 0,
                finish_reason=reason,
            )
            if reason is not None:
                return

    def make_generator(self, _model, **settings):
        self.calls.append(("BatchGenerator", settings))
        return Generator(self)


class Generator:
    """Takes a step for a prompt, then one for each token."""

    def __init__(self, stand_in):
        self.stand_in, self.rows, self.number, self.is_closed = stand_in, {}, 0, False

    def insert_segments(self, segments, *, max_tokens, caches, all_tokens, samplers, logits_processors, stop_sequences):
        prompt = [token_id for segment in segments[0] for token_id in segment]
        if not prompt:
            message = "Sequence has an empty prompt."
            raise ValueError(message)
        assert samplers == ["sampler"]
        assert logits_processors == [["processor"]]
        assert caches[0] is None or caches[0][0].tokens == all_tokens[0]
        self.stand_in.calls.append(("insert_segments", segments[0]))
        self.rows[self.number] = [all_tokens[0] + prompt, 0, max_tokens[0], stop_sequences[0], False]
        self.number += 1
        return [self.number - 1]

    def next(self):
        begun = [uid for uid, row in self.rows.items() if not row[4]]
        responses = [self._advance(uid) for uid in list(self.rows) if uid not in begun]
        for uid in begun:
            self.rows[uid][4] = True
        return begun, responses

    def _advance(self, uid):
        row = self.rows[uid]
        token_id = next_token(row[0])
        row[0].append(token_id)
        row[1] += 1
        reason = "stop" if token_id in row[3] else "length" if row[1] == row[2] else None
        if reason is not None:
            del self.rows[uid]
        return SimpleNamespace(
            uid=uid,
            token=token_id,
            logprobs=Row.of(token_id),
            finish_reason=reason,
            prompt_cache=[Cache(row[0])] if reason else None,
            all_tokens=row[0] if reason else None,
        )

    def remove(self, uids, *, return_prompt_caches=False):
        rows = {uid: self.rows.pop(uid) for uid in uids}
        return {uid: ([Cache(row[0])], row[0]) for uid, row in rows.items()} if return_prompt_caches else {}

    def close(self):
        self.is_closed = True


class KeptPrompts:
    """Finds the longest prompt that begins the one asked for."""

    def __init__(self):
        self.entries = {}

    def insert_cache(self, _model, tokens, cache):
        self.entries[tuple(tokens)] = cache

    def fetch_nearest_cache(self, _model, tokens):
        known = [key for key in self.entries if tuple(tokens[: len(key)]) == key]
        if not known:
            return None, tokens
        best = max(known, key=len)
        return [Cache(best)], tokens[len(best) :]


def _modules(stand_in, saved):
    wrapper = lambda tokenizer, detokenizer_class, eos_token_ids: SimpleNamespace(  # noqa: E731
        eos_token_ids=set(eos_token_ids), detokenizer=detokenizer_class(tokenizer)
    )
    seeds = SimpleNamespace(
        seed=lambda value: stand_in.calls.append(("seed", value)), normal=lambda *_, **__: 0, key=lambda number: number
    )
    return {
        "mlx": {},
        "mlx.core": {"random": seeds, "eval": lambda *_: None, "std": lambda _: 1.0},
        "mlx.utils": {"tree_flatten": lambda tree: list(tree.items()), "tree_unflatten": dict},
        "mlx_lm": {},
        "mlx_lm.models": {},
        "mlx_lm.models.cache": {
            "LRUPromptCache": KeptPrompts,
            "can_trim_prompt_cache": lambda caches: all(cache.can_trim for cache in caches),
            "load_prompt_cache": lambda path: saved[path],
            "make_prompt_cache": stand_in.make_prompt_cache,
            "save_prompt_cache": saved.__setitem__,
        },
        "mlx_lm.sample_utils": {
            "make_logits_processors": stand_in.make_logits_processors,
            "make_sampler": stand_in.make_sampler,
        },
        "mlx_lm.utils": {"load_model": stand_in.load_model},
        "mlx_lm.generate": {
            "BatchGenerator": stand_in.make_generator,
            "StopSequences": lambda sequences: {token_id for (token_id,) in sequences},
            "stream_generate": stand_in.stream_generate,
        },
        "mlx_lm.tokenizer_utils": {"TokenizerWrapper": wrapper},
    }


def put_in_place(monkeypatch):
    """Puts a stand-in where mlx-lm would be imported, and gives it with the adapter's modules, imported afresh."""
    stand_in = StandIn()
    saved: dict[str, list[Cache]] = {}
    for name, values in _modules(stand_in, saved).items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    names = [f"oracle.engines.adapters.{module}" for module in MODULES]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = [importlib.import_module(name) for name in names]
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    return stand_in, SimpleNamespace(**dict(zip(MODULES, modules, strict=True)))
