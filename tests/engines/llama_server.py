"""llama.cpp's own server with the tiny model: `python llama_server.py WEIGHTS PORT`, in the environment of the engine.

WEIGHTS is a directory with config.json, model.safetensors and tokenizer.json. llama.cpp reads GGUF, so the model is
written as that first, into the current directory. Everything is in float32, as in Transformers.
"""

# mypy: ignore-errors

import json
import sys
import threading
from pathlib import Path

import gguf
import numpy as np
import xllamacpp
from safetensors.numpy import load_file

SLOTS, CONTEXT = 8, 8192
"""How many generations it runs at once, and how many tokens each may have."""
NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
"""What llama.cpp calls the parts of a layer."""


def write(weights, file):
    """Write the file."""
    config = json.loads((weights / "config.json").read_text())
    out = gguf.GGUFWriter(str(file), "qwen3")
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_key_length(config["head_dim"])
    out.add_value_length(config["head_dim"])
    out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(out, weights, config)
    for name, values in load_file(weights / "model.safetensors").items():
        out.add_tensor(tensor_name(name), np.ascontiguousarray(values, np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def add_tokenizer(out, weights, config):
    """The vocabulary and the merges; which are special."""
    described = json.loads((weights / "tokenizer.json").read_text())
    ids = dict(described["model"]["vocab"])
    added = {one["content"]: one for one in described["added_tokens"]}
    ids |= {content: one["id"] for content, one in added.items()}
    names = {id: name for name, id in ids.items()}
    tokens = [names.get(id, f"[unused{id}]") for id in range(config["vocab_size"])]
    kinds = [kind_of(id, names, added) for id in range(config["vocab_size"])]
    merges = [one if isinstance(one, str) else " ".join(one) for one in described["model"]["merges"]]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(tokens)
    out.add_token_types(kinds)
    out.add_token_merges(merges)
    out.add_eos_token_id(config["eos_token_id"])
    out.add_pad_token_id(config["pad_token_id"])
    out.add_add_bos_token(False)
    about = json.loads((weights / "tokenizer_config.json").read_text())
    out.add_chat_template(about["chat_template"])


def kind_of(id, names, added):
    """The kind of a token."""
    if id not in names:
        return gguf.TokenType.UNUSED
    if names[id] not in added:
        return gguf.TokenType.NORMAL
    return gguf.TokenType.CONTROL if added[names[id]]["special"] else gguf.TokenType.USER_DEFINED


def tensor_name(name):
    """What llama.cpp calls a tensor."""
    if not name.startswith("model.layers."):
        names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
        return names.get(name, "output.weight")
    _model, _layers, number, rest = name.split(".", 3)
    return f"blk.{number}.{NAMES[rest.removesuffix('.weight')]}.weight"


def serve(file, port):
    """Serve the file until the process is killed."""
    how = xllamacpp.CommonParams()
    how.model.path = str(file)
    how.port, how.n_gpu_layers, how.warmup = port, 0, False
    how.n_parallel, how.n_ctx = SLOTS, SLOTS * CONTEXT
    how.cpuparams.n_threads = how.cpuparams_batch.n_threads = 1
    how.cache_type_k = how.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    how.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(how)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    written = Path("model.gguf")
    write(Path(sys.argv[1]), written)
    serve(written, int(sys.argv[2]))
