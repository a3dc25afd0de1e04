"""Checkpoints of `millrace convert --to megatron` beside megatron-core and transformers.

    cargo build --release
    python tests/oracles/megatron_written.py MILLRACE FOLDER

For random Hugging Face folders of each kind (transformers' classes, seed 0) and for a GGUF file and a checkpoint of ours made of the
first two, in f32 and bf16: torch's own reader of distributed checkpoints gives every tensor, with the bits that the folder's numbers
have in Megatron's order (laid out here). A GPTModel of megatron-core, local layers, is made from the arguments in `common.pt` as
Megatron-LM makes it; `dist_checkpointing.load` fills it without a missing name, the first two also with a padded vocabulary and in two
processes (tensor parallelism 2). Every parameter has these bits, and on a text the logits' log-probabilities are those of `millrace`
and of transformers within 1e-4. Prints a line per checkpoint. torch 2.15, megatron-core 0.16.1, transformers 5.24.
"""

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[2] / "train/tests/oracles"))
from megatron_cpu import without_cuda, without_tracker  # noqa: E402

warnings.filterwarnings("ignore")
BASE = dict(vocab_size=301, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5)
MODELS = {
    "gpt2": dict(vocab_size=301, n_embd=64, n_layer=3, n_head=8, n_positions=64),
    "llama": dict(BASE, rope_theta=5e5),
    "llama3": dict(BASE, model_type="llama", head_dim=16, rope_scaling=dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)),
    "linear": dict(BASE, model_type="llama", rope_scaling=dict(rope_type="linear", factor=2.0)),
    "mistral": dict(BASE, sliding_window=None),
    "qwen2": dict(BASE, tie_word_embeddings=True),
    "qwen3": dict(BASE, head_dim=16),
    "gpt_neox": dict(vocab_size=301, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8, max_position_embeddings=64, rotary_pct=0.25, use_parallel_residual=False),
}
TOKENS = [3, 17, 260, 0, 5, 5, 41, 300, 9, 77, 8, 120]
WRONG = []


def expect(is_right, line):
    if not is_right:
        WRONG.append(line)
        print("WRONG", line, flush=True)


def make(name, fields, folder):
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(fields.pop("model_type", name), **fields)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    for parameter in model.parameters():
        with torch.no_grad():
            # vectors too, so that a forgotten bias is seen
            parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.ndim < 2 else 0.03))
    model.save_pretrained(folder)
    return model


def grouped(q, k, v, groups):
    """Rows of queries, keys and values, group after group."""
    parts = [x.reshape(groups, -1, *x.shape[1:]) for x in (q, k, v)]
    return torch.cat(parts, 1).reshape(-1, *q.shape[1:])


def expected(state, config):
    """A folder's tensors under the names and in the order of megatron-core's GPTModel with local layers."""
    out, layers = {}, config.num_hidden_layers
    groups = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    for layer in range(layers):
        to = f"decoder.layers.{layer}."
        for kind in ("weight", "bias"):
            get = lambda name, of: state.get(f"{of}{layer}.{name}.{kind}")  # noqa: E731
            turn = (lambda x: x.T) if kind == "weight" else (lambda x: x)
            if "transformer.wte.weight" in state:
                of = "transformer.h."
                packed = turn(get("attn.c_attn", of)).chunk(3)
                found = {"input_layernorm": get("ln_1", of), "pre_mlp_layernorm": get("ln_2", of), "self_attention.linear_qkv": grouped(*packed, groups),
                         "self_attention.linear_proj": turn(get("attn.c_proj", of)), "mlp.linear_fc1": turn(get("mlp.c_fc", of)), "mlp.linear_fc2": turn(get("mlp.c_proj", of))}
            elif "gpt_neox.embed_in.weight" in state:
                of = "gpt_neox.layers."
                # of each head queries, keys, values, as Megatron's
                found = {"input_layernorm": get("input_layernorm", of), "pre_mlp_layernorm": get("post_attention_layernorm", of), "self_attention.linear_qkv": get("attention.query_key_value", of),
                         "self_attention.linear_proj": get("attention.dense", of), "mlp.linear_fc1": get("mlp.dense_h_to_4h", of), "mlp.linear_fc2": get("mlp.dense_4h_to_h", of)}
            else:
                of = "model.layers."
                q, k, v = (get(f"self_attn.{x}_proj", of) for x in "qkv")
                gate, up = get("mlp.gate_proj", of), get("mlp.up_proj", of)
                found = {"input_layernorm": get("input_layernorm", of), "pre_mlp_layernorm": get("post_attention_layernorm", of),
                         "self_attention.linear_qkv": None if q is None else grouped(q, k, v, groups), "self_attention.linear_proj": get("self_attn.o_proj", of),
                         "mlp.linear_fc1": None if gate is None else torch.cat([gate, up]), "mlp.linear_fc2": get("mlp.down_proj", of),
                         "self_attention.q_layernorm": get("self_attn.q_norm", of), "self_attention.k_layernorm": get("self_attn.k_norm", of)}
            out |= {f"{to}{name}.{kind}": value for name, value in found.items() if value is not None}
    for ours, theirs in {"embedding.word_embeddings.weight": ("transformer.wte.weight", "model.embed_tokens.weight", "gpt_neox.embed_in.weight"), "embedding.position_embeddings.weight": ("transformer.wpe.weight",),
                         "decoder.final_layernorm.weight": ("transformer.ln_f.weight", "model.norm.weight", "gpt_neox.final_layer_norm.weight"), "decoder.final_layernorm.bias": ("transformer.ln_f.bias", "gpt_neox.final_layer_norm.bias")}.items():
        out |= {ours: state[name] for name in theirs if name in state}
    if not config.tie_word_embeddings:
        out["output_layer.weight"] = state["lm_head.weight" if "lm_head.weight" in state else "embed_out.weight"]
    return {name: value.detach() for name, value in out.items()}


STORED = {"input_layernorm.": "self_attention.linear_qkv.layer_norm_", "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_"}


def stored(tensors):
    """The same under the names of checkpoints: layers are stacked, norms named after the layer behind them."""
    stacks, out = {}, {}
    for name, value in tensors.items():
        if not name.startswith("decoder.layers."):
            out[name] = value
            continue
        rest = name.split(".", 3)[3]
        for apart, fused in STORED.items():
            rest = rest.replace(apart, fused)
        stacks.setdefault("decoder.layers." + rest, []).append(value)
    return out | {name: torch.stack(values) for name, values in stacks.items()}


def same(found, want):
    return found.shape == want.shape and found.dtype == want.dtype and torch.equal(found.view(torch.uint8), want.contiguous().view(torch.uint8))


def by_torch(folder, want, line):
    """Torch alone reads the checkpoint; no process group, no Megatron."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    whole = folder.parent / "whole.pt"
    dcp_to_torch_save(folder, whole)
    found = {name: value for name, value in torch.load(whole, weights_only=False).items() if isinstance(value, torch.Tensor)}
    whole.unlink()
    expect(sorted(found) == sorted(want), f"{line}: {sorted(set(found) ^ set(want))}")
    for name in found.keys() & want.keys():
        expect(same(found[name], want[name]), f"{line}: {name} has other numbers for torch")
    return len(found)


def config_of(args, tp):
    """As `core_transformer_config_from_args` of Megatron-LM, as far as a model on the CPU depends on it."""
    from megatron.core.activations import squared_relu
    from megatron.core.transformer.transformer_config import TransformerConfig

    more = dict(activation_func=F.silu, gated_linear_unit=True) if args.swiglu else dict(bias_activation_fusion=args.bias_gelu_fusion)
    if args.squared_relu:
        more["activation_func"] = squared_relu
    return TransformerConfig(
        num_layers=args.num_layers, hidden_size=args.hidden_size, ffn_hidden_size=args.ffn_hidden_size, num_attention_heads=args.num_attention_heads, kv_channels=args.kv_channels,
        num_query_groups=args.num_query_groups if args.group_query_attention else None, normalization=args.normalization, layernorm_epsilon=args.norm_epsilon, add_bias_linear=args.add_bias_linear,
        add_qkv_bias=args.add_qkv_bias, qk_layernorm=args.qk_layernorm, rotary_interleaved=args.rotary_interleaved, params_dtype=args.params_dtype, tensor_model_parallel_size=tp,
        hidden_dropout=args.hidden_dropout, attention_dropout=args.attention_dropout, use_cpu_initialization=True, masked_softmax_fusion=False, bias_dropout_fusion=False,
        gradient_accumulation_fusion=False, **more)


def rank_of(rank, tp, port, jobs, results):
    """A process that loads one checkpoint after the other."""
    without_cuda()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=tp)
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(tp, 1)
    without_tracker()
    for folder, padding in iter(jobs.get, None):
        try:
            results.put((rank, *loaded(rank, tp, folder, padding)))
        except Exception as error:
            results.put((rank, {}, [repr(error)], [], None))


def loaded(rank, tp, folder, padding):
    """Parameters as bytes, missing and unexpected names, logits."""
    from megatron.core import dist_checkpointing
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    common = dist_checkpointing.load_common_state_dict(folder)
    args = common["args"]
    spec = get_gpt_layer_local_spec(normalization=args.normalization, qk_layernorm=args.qk_layernorm)
    multiple = padding * tp
    rows = -(-args.padded_vocab_size // multiple) * multiple
    model = GPTModel(
        config_of(args, tp), spec, vocab_size=rows, max_sequence_length=args.max_position_embeddings, parallel_output=False, position_embedding_type=args.position_embedding_type,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights, rotary_percent=args.rotary_percent, rotary_base=args.rotary_base, rope_scaling=args.use_rope_scaling,
        rope_scaling_factor=args.rope_scaling_factor, seq_len_interpolation_factor=args.rotary_seq_len_interpolation_factor)
    if args.params_dtype == torch.bfloat16:
        model.bfloat16()
    with torch.no_grad():
        [parameter.fill_(float("nan")) for parameter in model.parameters()]
    metadata = dist_checkpointing.load_content_metadata(preloaded_state_dict=common)
    # a name that the checkpoint lacks is an error; its stricter modes fail with this torch, on checkpoints of its own as well
    state = dist_checkpointing.load(model.sharded_state_dict(metadata=metadata), folder)
    result = model.load_state_dict({name: value for name, value in state.items() if isinstance(value, torch.Tensor) or "_extra_state" in name}, strict=False)
    parameters = {name: value.detach().clone() for name, value in model.named_parameters()}
    # rows of padding are not in the checkpoint
    embedding = ("embedding.word_embeddings.weight", "output_layer.weight")
    share = rows // tp
    live = max(0, min(share, args.vocab_size - rank * share))
    with torch.no_grad():
        [parameter[live:].zero_() for name, parameter in model.named_parameters() if name in embedding]
    model.float().eval()
    count = len(TOKENS)
    mask = ~torch.tril(torch.ones(count, count, dtype=torch.bool))[None, None]
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS]), torch.arange(count)[None], mask)[0, :, : args.vocab_size]
    missing = sorted(name for name in result.missing_keys if "_extra_state" not in name)
    parts = {name: value[: live if name in embedding else None].view(torch.uint8).numpy() for name, value in parameters.items()}
    return parts, missing, sorted(result.unexpected_keys), logits.numpy()


class Ranks:
    """Processes of one tensor parallelism."""

    def __init__(self, tp, port):
        self.tp, context = tp, mp.get_context("spawn")
        self.results, self.jobs = context.Queue(), [context.Queue() for _ in range(tp)]
        self.processes = [context.Process(target=rank_of, args=(rank, tp, port, self.jobs[rank], self.results), daemon=True) for rank in range(tp)]
        [process.start() for process in self.processes]

    def by_megatron(self, folder, want, padding, line):
        [jobs.put((str(folder), padding)) for jobs in self.jobs]
        found = dict((rank, rest) for rank, *rest in (self.results.get(timeout=300) for _ in self.jobs))
        for parameters, missing, unexpected, _ in found.values():
            expect(not missing, f"{line}: missing {missing}")
            expect(not unexpected, f"{line}: unexpected {unexpected}")
            if self.tp > 1:
                continue
            expect(sorted(parameters) == sorted(want), f"{line}: {sorted(set(parameters) ^ set(want))}")
            for name in parameters.keys() & want.keys():
                numbers = want[name].contiguous().view(torch.uint8).numpy()
                expect(parameters[name].shape == numbers.shape and (parameters[name] == numbers).all(), f"{line}: {name} has other numbers for Megatron")
        return torch.log_softmax(torch.from_numpy(found[0][3]), -1)


def words(folder):
    """A tokenizer whose text of id 7 is t7."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"t{id}": id for id in range(301)}, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def of_millrace(program, model, tokens, tokenizer):
    """Log-probabilities of all tokens after the text."""
    text = " ".join(f"t{id}" for id in tokens)
    args = [program, "generate", str(model), "--tokenizer", str(tokenizer), "--prompt", text, "--max-tokens", "1", "--json", "--logprobs", "301"]
    found = subprocess.run(args, check=True, capture_output=True, text=True).stdout
    top = json.loads(found.splitlines()[-1])["logprobs"][0]["top"]
    out = torch.full((301,), float("nan"))
    for pair in top:
        out[pair["token"]] = pair["logprob"]
    return out


def convert(program, source, out, *more):
    subprocess.run([program, "convert", "--checkpoint", str(source), *more, str(out)], check=True, capture_output=True)


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    tokenizer = words(folder)
    ranks = {tp: Ranks(tp, 29400 + tp) for tp in (1, 2)}
    for at, (name, fields) in enumerate(MODELS.items()):
        hf = folder / name
        model = make(name, dict(fields), hf)
        tensors = expected(model.state_dict(), model.config)
        with torch.no_grad():
            theirs = torch.log_softmax(model(torch.tensor([TOKENS])).logits[0], -1)
        sources = {"hf": hf}
        if at < 2:
            sources["gguf"], sources["millrace"] = folder / f"{name}.gguf", folder / f"{name}.ours/step-00000000"
            subprocess.run([program, "quantize", str(hf), "--type", "f32", "--to", "gguf", str(sources["gguf"])], check=True, capture_output=True)
            convert(program, hf, folder / f"{name}.ours", "--to", "millrace")
        for kind, source in sources.items():
            for dtype in ("f32", "bf16"):
                line, out = f"{name} {kind} {dtype}", folder / f"{name}.{kind}.{dtype}"
                convert(program, source, out, "--to", "megatron", "--dtype", dtype)
                expect((out / "latest_checkpointed_iteration.txt").read_text() == "release", f"{line}: tracker")
                want = {key: value.to(torch.float32 if dtype == "f32" else torch.bfloat16) for key, value in tensors.items()}
                count = by_torch(out / "release", stored(want), line)
                # a checkpoint of ours again: its numbers are those that Megatron computes with
                convert(program, out, folder / "back", "--to", "millrace")
                ours = of_millrace(program, folder / "back", TOKENS, tokenizer)
                shutil.rmtree(folder / "back")
                off = {}
                layouts = ((1, 1), (1, 128), (2, 64)) if at < 2 and kind == "hf" else ((1, 1),)
                for tp, padding in layouts:
                    found = ranks[tp].by_megatron(out / "release", want, padding, f"{line} tp {tp} padding {padding}")
                    off[f"tp{tp}_rows_of_{padding}"] = top = (found[-1] - ours).abs().max().item()
                    expect(top < 1e-4, f"{line}: log-probabilities part from ours by {top}")
                    if dtype == "f32":
                        off["transformers"] = apart = (found - theirs).abs().max().item()
                        expect(apart < 1e-4, f"{line}: log-probabilities part from transformers' by {apart}")
                print(json.dumps({"checkpoint": line, "tensors": count, "log_probability_off": {key: float(f"{value:.2g}") for key, value in off.items()}}), flush=True)
    print(f"{len(WRONG)} wrong")
    sys.exit(bool(WRONG))


if __name__ == "__main__":
    main()
