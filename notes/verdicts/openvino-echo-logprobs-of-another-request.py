"""echo=True with logprobs gives scores of another request's logits as soon as a request without echo stands before it in the batch."""
import numpy as np
from openvino_model import config, ids, logits64, pipeline

P, OTHER = (11, 12, 13, 14), (21, 22, 23)
def scores(pipe, *requests):
    handles = [pipe.add_request(n, ids(p), c) for n, (p, c) in enumerate(requests)]
    while pipe.has_non_finished_requests(): pipe.step()
    return [h.read_all()[0].generated_log_probs for h in handles]
rows = logits64(P); due = [float(rows[n][P[n + 1]] - np.log(np.exp(rows[n]).sum())) for n in range(len(P) - 1)]
print("due (float64)           ", np.round(due, 3))
e = dict(echo=True, logprobs=1)
print("alone                   ", np.round(scores(pipeline(), (P, config(1, **e)))[0][1:4], 3))
print("after one that echoes   ", np.round(scores(pipeline(), (OTHER, config(1, **e)), (P, config(1, **e)))[1][1:4], 3))
print("after one that does not ", np.round(scores(pipeline(), (OTHER, config(1)), (P, config(1, **e)))[1][1:4], 3))
