"""cancel() of the only request: its status is IGNORED (out of memory) instead of CANCEL, and with guesses it hands out tokens that nobody verified, -1 among them."""
from openvino_model import config, greedy64, ids, pipeline

for name, kind, more in (("plain", {}, {}), ("prompt lookup", dict(lookup=True), dict(num_assistant_tokens=3, max_ngram_size=2)), ("draft", dict(draft=True), dict(num_assistant_tokens=3))):
    P = (41, 42); due, _ = greedy64(P, 10)
    pipe = pipeline(**kind); handle = pipe.add_request(0, ids(P), config(10, ignore_eos=True, **more)); out = []
    while pipe.has_non_finished_requests():
        pipe.step()
        while handle.can_read():
            for piece in handle.read().values(): out += piece.generated_ids
        if len(out) >= 3 and handle.get_status().name == "RUNNING":
            before = list(out); handle.cancel()
    print(f"{name}: cancelled after {before}; read {out}; due {due[:len(out)]}; status {handle.get_status().name}")
