"""min_new_tokens is not kept with a draft or with prompt lookup: the prompt's length is taken for the number of generated tokens."""
from openvino_model import EOS, VOCAB, config, generate, greedy64, pipeline

import random
random.seed(1)
for name, more, kind in (("draft", dict(num_assistant_tokens=3), dict(draft=True)), ("lookup", dict(num_assistant_tokens=3, max_ngram_size=2), dict(lookup=True))):
    pipe, plain, shown = pipeline(**kind), pipeline(), 0
    for _ in range(300):
        p = tuple(random.choice((random.randrange(2, VOCAB), random.randrange(2, 5))) for _ in range(random.choice((4, 8, 12))))
        free = greedy64(p, 8)[0]
        asked = dict(min_new_tokens=8, stop_token_ids={EOS, *free[1:6]})
        (due, _), (out, why) = generate(plain, (p, config(10, **asked)))[0], generate(pipe, (p, config(10, **asked, **more)))[0]
        if len(out) < 8 and shown < 2:
            shown += 1
            print(f"{name}: prompt {p}, {asked}: got {out} ({why}), {len(out)} tokens; without guesses {due}")
