"""echo=True with logprobs and enable_prefix_caching: on a cached prompt fewer log-probabilities come than tokens, so that they no longer belong to them."""
import numpy as np
from openvino_model import config, ids, pipeline

P = (11, 12, 13, 14, 15, 16)
pipe = pipeline(enable_prefix_caching=True)
for turn in ("cold", "warm"):
    handle = pipe.add_request(turn == "warm", ids(P), config(1, echo=True, logprobs=1, ignore_eos=True))
    while pipe.has_non_finished_requests(): pipe.step()
    out = handle.read_all()[0]
    print(turn, len(out.generated_ids), "tokens", out.generated_ids, len(out.generated_log_probs), "log-probabilities", np.round(out.generated_log_probs, 3))
