"""Prompt lookup with dynamic_split_fuse=False: a request that decodes while another one's prompt runs gets -1 for tokens, and other tokens after."""
import numpy as np
from openvino_model import config, greedy64, ids, pipeline

A, B = (3,), (4,)
pipe = pipeline(lookup=True, dynamic_split_fuse=False)
g = dict(ignore_eos=True, num_assistant_tokens=3, max_ngram_size=2)
a = pipe.add_request(0, ids(A), config(8, **g)); pipe.step()
b = pipe.add_request(1, ids(B), config(1, **g))
while pipe.has_non_finished_requests(): pipe.step()
due, gaps = greedy64(A, 8)
out = a.read_all()[0].generated_ids
print("got", out, "\ndue", due, "\ngaps to the runner-up", np.round(gaps, 3))
pipe = pipeline(lookup=True, dynamic_split_fuse=True)
a = pipe.add_request(0, ids(A), config(8, **g)); pipe.step()
b = pipe.add_request(1, ids(B), config(1, **g))
while pipe.has_non_finished_requests(): pipe.step()
print("with dynamic_split_fuse=True", a.read_all()[0].generated_ids)
