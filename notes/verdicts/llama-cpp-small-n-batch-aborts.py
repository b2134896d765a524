"""llama_init_from_model ends the process when n_batch is smaller than n_seq_max."""
import ctypes, sys
import llama_cpp
from llama_cpp_model import PATH

n_batch, n_seq_max = (int(v) for v in (sys.argv[1:3] or ("8", "16")))
p = llama_cpp.llama_context_default_params(); p.n_ctx = 4096; p.n_batch = p.n_ubatch = n_batch; p.n_seq_max = n_seq_max
QUIET = llama_cpp.llama_log_callback(lambda *_: None); llama_cpp.llama_log_set(QUIET, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()
model = llama_cpp.llama_model_load_from_file(PATH.encode(), llama_cpp.llama_model_default_params())
print(f"n_batch={n_batch} n_seq_max={n_seq_max}", flush=True)
print("context:", bool(llama_cpp.llama_init_from_model(model, p)))
