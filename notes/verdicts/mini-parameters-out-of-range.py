"""mini-infer: max_tokens=0 gives a token, and values that its documentation excludes switch a filter off in silence."""
from mini_infer import SamplingParams
from mini_model import engine_of, make, run

model, folder = make()
engine = engine_of(folder, enable_prefix_caching=False)


def tokens(**settings):
    sequence = engine.add_request([5, 3, 8, 2], sampling_params=SamplingParams(**settings))
    run(engine)
    return sequence.output_token_ids


print("max_tokens 0:", tokens(max_tokens=0))
print("temperature -1:", tokens(max_tokens=4, temperature=-1.0), "greedy:", tokens(max_tokens=4))
for name, value in (("top_p", 1.5), ("top_p", -0.5), ("top_k", -5), ("min_p", -0.5)):
    firsts = {tokens(max_tokens=1, temperature=1.0, **{name: value})[0] for _ in range(60)}
    print(f"{name} {value}: no error; {len(firsts)} different first tokens in 60 draws")
