"""A Llama model of a GGUF file with weights of 16 or 32 bits as the folder that transformers, vLLM and mistral.rs read:
config.json, tokenizer.json, tokenizer_config.json, model.safetensors."""
import array
import json
import struct

import gguf

LAYER_NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
               "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
               "ffn_down": "mlp.down_proj"}
OTHER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONTROL = 3
FORMAT = 2  # of the folder: one more when what is written changes, so that it is written again
PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"  # the prompt as it is: all peers compute the same tokens


def config_of(metadata, tied):
    fact = lambda key: metadata["llama." + key]
    heads = fact("attention.head_count")
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",
            "vocab_size": len(metadata["tokenizer.ggml.tokens"]), "hidden_size": fact("embedding_length"), "intermediate_size": fact("feed_forward_length"),
            "num_hidden_layers": fact("block_count"), "num_attention_heads": heads,
            "num_key_value_heads": metadata.get("llama.attention.head_count_kv", heads), "head_dim": fact("embedding_length") // heads,
            "rms_norm_eps": fact("attention.layer_norm_rms_epsilon"), "rope_theta": metadata.get("llama.rope.freq_base", 10000.0),
            "max_position_embeddings": fact("context_length"), "tie_word_embeddings": tied, "attention_bias": False, "mlp_bias": False,
            "bos_token_id": metadata["tokenizer.ggml.bos_token_id"], "eos_token_id": metadata["tokenizer.ggml.eos_token_id"]}


def tokenizer_of(metadata):
    """Byte-level BPE with each digit a token of its own, which is what GGUF calls the pre-tokenizer `smollm`."""
    if metadata.get("tokenizer.ggml.model") != "gpt2" or metadata.get("tokenizer.ggml.pre") != "smollm":
        raise ValueError("only the tokenizer `smollm` can be written")
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    added = [{"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for number, (token, kind) in enumerate(zip(tokens, types)) if kind == CONTROL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "vocab": {token: number for number, token in enumerate(tokens)},
                      "merges": metadata["tokenizer.ggml.merges"]}}


def name_of(name):
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight"""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.{parts[3]}"
    return f"{OTHER_NAMES[parts[0]]}.{parts[1]}"


def bfloat16(tensor):
    """The tensor's bytes as bfloat16, to the nearest, ties to even."""
    if tensor.kind == gguf.BF16:
        return bytes(tensor.data)
    if tensor.kind == gguf.F16:
        words = struct.unpack(f"<{len(tensor.data) // 4}I", struct.pack(f"<{len(tensor.data) // 2}f", *struct.unpack(f"<{len(tensor.data) // 2}e", tensor.data)))
    else:
        words = struct.unpack(f"<{len(tensor.data) // 4}I", tensor.data)
    return array.array("H", [(word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words]).tobytes()


def unpermuted(data, rows, heads):
    """GGUF interleaves the two halves of each head's rows of q and k for its kind of rotation; here the halves lie one after the other."""
    size, half = len(data) // rows, rows // heads // 2
    lines = []
    for head in range(heads):
        first = head * 2 * half
        lines += [data[(first + 2 * pair + part) * size:(first + 2 * pair + part + 1) * size] for part in (0, 1) for pair in range(half)]
    return b"".join(lines)


def weights_of(metadata, tensors):
    """name -> (shape, bytes)"""
    heads = metadata["llama.attention.head_count"]
    heads_kv = metadata.get("llama.attention.head_count_kv", heads)
    weights = {}
    for name, tensor in tensors.items():
        if name.split(".")[0] == "rope_freqs":
            continue
        data = bfloat16(tensor)
        if ".attn_q." in name or ".attn_k." in name:
            data = unpermuted(data, tensor.shape[0], heads if ".attn_q." in name else heads_kv)
        weights[name_of(name)] = (tensor.shape, data)
    return weights


def write_safetensors(path, weights):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data) in weights.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, data in weights.values():
            out.write(data)


def write_folder(source, folder):
    metadata, tensors = gguf.read(source)
    if metadata.get("general.architecture") != "llama":
        raise ValueError(f"{metadata.get('general.architecture')} models cannot be written, only llama")
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(metadata, tied="output.weight" not in tensors)
    special = {key: metadata["tokenizer.ggml.tokens"][config[key + "_id"]] for key in ("bos_token", "eos_token")}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_of(metadata), ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": PLAIN, **special}))
    write_safetensors(folder / "model.safetensors", weights_of(metadata, tensors))
