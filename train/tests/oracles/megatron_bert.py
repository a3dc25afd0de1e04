#!/usr/bin/env python3
"""Compares megatron-core's BertModel (pre-LN, local spec, CPU, float64) with bert_pre.safetensors of this folder.

    python train/tests/oracles/megatron_bert.py        (needs torch, megatron-core 0.16.1, safetensors, numpy)

The same weights and first batch as bert_goldens.py: logits of every place that is seen, the loss, and every gradient.
Fails if one differs by more than 1e-6 of the largest value (the goldens are float32 roundings of float64).
"""
import os

import numpy as np
import torch
from megatron_cpu import without_cuda, without_tracker
from safetensors.numpy import load_file

without_cuda()


def main():
    from bert_goldens import native, sample
    from tiny_runs import BATCH, HERE, VOCAB
    from torch_goldens import D, F, HEADS, LAYERS, PADDED, T

    address = f"tcp://127.0.0.1:{29540 + os.getpid() % 500}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    import megatron.core
    from megatron.core import parallel_state
    from megatron.core.models.bert.bert_layer_specs import bert_layer_local_spec
    from megatron.core.models.bert.bert_model import BertModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    without_tracker()
    parallel_state.initialize_model_parallel(1, 1)
    torch.manual_seed(0)
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=D, num_attention_heads=HEADS, ffn_hidden_size=F, use_cpu_initialization=True,
        hidden_dropout=0.0, attention_dropout=0.0, params_dtype=torch.float64, pipeline_dtype=torch.float64,
        bias_dropout_fusion=False, masked_softmax_fusion=False, bias_activation_fusion=False,
        gradient_accumulation_fusion=False, attention_softmax_in_fp32=False, layernorm_epsilon=1e-5)
    model = BertModel(config, num_tokentypes=2, transformer_layer_spec=bert_layer_local_spec, vocab_size=PADDED,
                      max_sequence_length=T, share_embeddings_and_output_weights=True, add_binary_head=False).double()
    w = native(post=False)
    e, layer = "embedding.", "encoder.layers.{}."
    names = {e + "word_embeddings.weight": "embedding.weight", e + "position_embeddings.weight": "position.weight",
             e + "tokentype_embeddings.weight": "segment.weight", "lm_head.dense.weight": "head.transform.weight",
             "lm_head.dense.bias": "head.transform.bias", "output_layer.bias": "head.bias"}
    pairs = {"encoder.final_layernorm": "norm", "lm_head.layer_norm": "head.norm"}
    for i in range(LAYERS):
        a, b = layer.format(i), f"layers.{i}."
        pairs |= {a + "input_layernorm": b + "norm1", a + "pre_mlp_layernorm": b + "norm2",
                  a + "self_attention.linear_qkv": b + "qkv", a + "self_attention.linear_proj": b + "out",
                  a + "mlp.linear_fc1": b + "fc1", a + "mlp.linear_fc2": b + "fc2"}
    for theirs, ours in pairs.items():
        names |= {f"{theirs}.{kind}": f"{ours}.{kind}" for kind in ("weight", "bias")}

    def flips(name):  # row-parallel matrices are stored the other way round
        return name.endswith(("out.weight", "fc2.weight"))

    found = dict(model.named_parameters())
    assert sorted(found) == sorted(names), set(found) ^ set(names)
    with torch.no_grad():
        for theirs, ours in names.items():
            value = torch.from_numpy(w[ours]).double()
            found[theirs].copy_(value.T if flips(ours) else value)

    ids, segments, seen, labels = (torch.tensor(x) for x in zip(*(sample(s) for s in range(BATCH))))
    logits, _ = model(ids, seen, tokentype_ids=segments)
    logits = logits.float().double() if logits.dtype != torch.float64 else logits
    if logits.shape[0] != BATCH:
        logits = logits.transpose(0, 1)
    logits = logits[..., :VOCAB]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()

    golden = load_file(HERE / "bert_pre.safetensors")
    worst = 0.0

    def compare(name, ours, theirs):
        nonlocal worst
        off = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
        worst = max(worst, off)
        assert off < 1e-6, (name, off)

    shown = seen.bool().numpy()
    compare("logits", golden["logits"][shown], logits.detach().numpy()[shown])
    from bert_goldens import to_hf

    gradients = {ours: found[theirs].grad.numpy() for theirs, ours in names.items()}
    gradients = {k: v.T if flips(k) else v for k, v in gradients.items()}
    hf = to_hf(gradients, post=False)
    for name, value in hf.items():
        if name.endswith("key.bias"):  # 0 but for rounding: a constant in every score of a row
            assert np.abs(golden["grad." + name]).max() < 1e-7 > np.abs(value).max()
        else:
            compare(name, golden["grad." + name], value)
    print(f"equal: loss {float(loss):.9f}, logits and {len(hf)} gradients within {worst:.1e} "
          f"(megatron-core {megatron.core.__version__}, torch {torch.__version__})")


if __name__ == "__main__":
    main()
