"""A prompt that is exactly an earlier request's prompt and output cannot be run any more once that request is kept.

LRUPromptCache.fetch_nearest_cache gives an exact match whole, so that no token is left to run; what the server does with
it, in both of its ways, raises. Any other prompt that goes on from a kept one is trimmed to leave one.
Run with a Python that has mlx-lm 0.32.2.
"""
import mlx.core as mx
from mlx_lm.generate import BatchGenerator, stream_generate
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.tokenizer_utils import TokenizerWrapper


class Nothing:
    eos_token_id = chat_template = apply_chat_template = None
    last_segment = ""
    def __init__(self, _=None): pass
    def get_vocab(self): return {}
    def reset(self): pass
    def finalize(self): pass
    def add_token(self, token): pass


mx.random.seed(0)
model = Model(ModelArgs("llama", 64, 2, 112, 4, 1e-5, 131, num_key_value_heads=2, tie_word_embeddings=False))
words = TokenizerWrapper(Nothing(), detokenizer_class=Nothing, eos_token_ids=[])
kept = LRUPromptCache()


def ask(prompt, number):
    """As `_serve_single` in mlx_lm/server.py does."""
    cache, rest = kept.fetch_nearest_cache("model", prompt)
    print(f"prompt of {len(prompt)} tokens, {len(rest)} of them left to run", end="; ")
    cache = make_prompt_cache(model) if cache is None else cache
    tokens = [each.token for each in stream_generate(model, words, rest, max_tokens=number, prompt_cache=cache)]
    kept.insert_cache("model", [*prompt, *tokens], cache)
    return tokens


due = ask([5, 3, 8, 2], 4)
print("came", due)
try:
    print("came", ask([5, 3, 8, 2, *due], 4))
except ValueError as error:
    print("raised ValueError:", error)
cache, rest = kept.fetch_nearest_cache("model", [5, 3, 8, 2, *due])
try:
    BatchGenerator(model).insert_segments([[rest]], max_tokens=[4], caches=[cache], all_tokens=[[5, 3, 8, 2, *due]])
except ValueError as error:
    print("in a batch: raised ValueError:", error)
