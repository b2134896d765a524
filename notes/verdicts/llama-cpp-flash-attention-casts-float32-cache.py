"""type_k = type_v = F32 is not what runs under flash attention: keys and values are cast to float16, and logits are off by as much."""
import ctypes
import numpy as np, llama_cpp
from llama_cpp_model import PATH, VOCAB, logits64

def run(flash, prompts):
    p = llama_cpp.llama_context_default_params(); p.n_ctx = 256; p.n_threads = p.n_threads_batch = 1; p.type_k = p.type_v = llama_cpp.GGML_TYPE_F32
    p.flash_attn_type = {True: llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED, False: llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED, None: llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO}[flash]
    c = llama_cpp.llama_init_from_model(MODEL, p); worst = 0.0
    for prompt in prompts:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(c), True)
        tokens = (llama_cpp.llama_token * len(prompt))(*prompt)
        assert llama_cpp.llama_decode(c, llama_cpp.llama_batch_get_one(tokens, len(prompt))) == 0
        row = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(c, -1), shape=(VOCAB,))
        worst = max(worst, float(np.abs(row - logits64(prompt)[-1]).max()))
    llama_cpp.llama_free(c); return worst
QUIET = llama_cpp.llama_log_callback(lambda *_: None); llama_cpp.llama_log_set(QUIET, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()
MODEL = llama_cpp.llama_model_load_from_file(PATH.encode(), llama_cpp.llama_model_default_params())
rng = np.random.default_rng(0); prompts = [tuple(int(t) for t in rng.integers(0, VOCAB, n)) for n in (1, 2, 5, 17, 40)]
for flash, name in ((False, "disabled"), (True, "enabled"), (None, "auto (the default)")):
    print(f"flash attention {name}: largest error of a logit against float64: {run(flash, prompts):.2e}")
