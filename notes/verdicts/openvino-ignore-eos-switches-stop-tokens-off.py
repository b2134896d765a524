"""ignore_eos=True switches stop_token_ids off as well."""
from openvino_model import config, generate, greedy64, pipeline

P = (5, 9, 3)
due, _ = greedy64(P, 8)
stop = due[2]
print("free                         ", generate(pipeline(), (P, config(8)))[0])
print(f"stop_token_ids={{{stop}}}           ", generate(pipeline(), (P, config(8, stop_token_ids={stop})))[0])
print(f"stop_token_ids={{{stop}}}, ignore_eos", generate(pipeline(), (P, config(8, stop_token_ids={stop}, ignore_eos=True)))[0], "<- should end after", stop)
