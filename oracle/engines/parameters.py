"""What one request may ask for, by the names that the harness uses for every engine.

Meanings are those that users of vLLM know, except where said.
"""

DEFAULT_BY_PARAMETER: dict[str, object] = {
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "seed": None,
    "n": 1,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": None,
    "allowed_token_ids": None,
    "bad_token_sequences": None,
    "no_repeat_ngram_size": 0,
    "choices": None,
    "min_tokens": 0,
    "ignore_eos": False,
    "stop_token_ids": None,
    "logprobs": None,
    "prompt_logprobs": None,
    "logits": False,
    "priority": 0,
    "cache_salt": None,
}
"""Each parameter with the value that changes nothing.

- temperature: 0 for greedy choice, else what logits are divided by;
- top_k, top_p, min_p: which tokens may be drawn; 0, 1 and 0 for all;
- seed: what the draws come from;
- n: answers to give;
- repetition_penalty: positive logits of tokens that stand in prompt or output are divided by it, others multiplied;
- presence_penalty: taken once from the logits of tokens of the output, or where the engine says so of the prompt;
- frequency_penalty: taken as often as they stand there;
- logit_bias: list of pairs of token id and what is added to its logit;
- allowed_token_ids: no other token may come;
- bad_token_sequences: no output may contain one of these sequences;
- no_repeat_ngram_size: no so long run of tokens may come twice, prompt included;
- choices: the output is one of these sequences, as far as `max_tokens` lets it come;
- min_tokens: output tokens before it may end by itself; until then neither EOS nor stop tokens come;
- ignore_eos: EOS does not end it;
- stop_token_ids: tokens that end it, besides EOS;
- logprobs: log-probability of each output token, and of so many likeliest tokens;
- prompt_logprobs: the same for the prompt;
- logits: full rows of logits for every output token;
- priority: who goes first where not all can, the lowest number; it changes no output;
- cache_salt: only requests with the same one share cached prefixes; it changes no output.
"""

PARAMETERS = tuple(DEFAULT_BY_PARAMETER)
