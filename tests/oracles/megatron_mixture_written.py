"""Mixtures of `millrace convert --to megatron` beside megatron-core and transformers.

    cargo build --release
    python tests/oracles/megatron_mixture_written.py MILLRACE FOLDER

Random Mixtral and Qwen 1.5 MoE folders of transformers, and the checkpoints of train/tests/oracles/megatron_dist_mixture.py (sigmoid
scores, selection bias, groups, shared expert, a dense layer in front) by way of a checkpoint of ours, in f32 and bf16: torch's own
reader gives every tensor of the folders, with their bits in Megatron's order (laid out here). A GPTModel of megatron-core is made from
the arguments in `common.pt` as Megatron-LM makes it, and `dist_checkpointing.load` fills it without a missing name: local layers with
SequentialMLP in one process and in two (expert parallelism 2), with GroupedMLP in two, and with the name that TransformerEngine's layers
give the norm before a mixture. Every parameter and selection bias has the folder's bits, or those that megatron-core loads from its own
checkpoint. Logits of one process: log-probabilities are those of `millrace` and of transformers within 1e-4, and for megatron-core's own
checkpoints exactly those of the model that it loads from them. Prints a line per checkpoint. torch 2.15, megatron-core 0.16.1,
transformers 5.24.
"""

import copy
import json
import os
import re
import shutil
import sys
import warnings
from pathlib import Path

import torch
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parents[2] / "train/tests/oracles"))
from megatron_cpu import without_cuda, without_tracker  # noqa: E402
from megatron_written import BASE, TOKENS, WRONG, by_torch, config_of, convert, expect, grouped, make, of_millrace, same, words  # noqa: E402

warnings.filterwarnings("ignore")
GOLDENS = Path(__file__).parents[2] / "train/tests/oracles"
MODELS = {
    "mixtral": dict(BASE, num_local_experts=4, num_experts_per_tok=2, sliding_window=None, output_router_logits=True),
    "qwen2_moe": dict(BASE, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=40, shared_expert_intermediate_size=48, mlp_only_layers=[0], use_sliding_window=False),
}
# processes that share the experts, class of experts, whether the norm has TransformerEngine's name
LAYOUTS = [(1, False, False), (1, False, True), (2, False, False), (2, True, False)]
SHORT = [token % 64 for token in TOKENS]
MOE = (
    "moe_layer_freq", "moe_ffn_hidden_size", "moe_router_topk", "moe_router_score_function", "moe_router_pre_softmax", "moe_router_topk_scaling_factor",
    "moe_router_num_groups", "moe_router_group_topk", "moe_router_enable_expert_bias", "moe_router_load_balancing_type", "moe_aux_loss_coeff",
    "moe_z_loss_coeff", "moe_router_dtype", "moe_shared_expert_intermediate_size", "moe_shared_expert_gate")


def expected(state, config):
    """A folder's tensors under the names and in the order of megatron-core's GPTModel, experts stacked."""
    out = {"embedding.word_embeddings.weight": state["model.embed_tokens.weight"], "decoder.final_layernorm.weight": state["model.norm.weight"], "output_layer.weight": state["lm_head.weight"]}
    for layer in range(config.num_hidden_layers):
        of, to = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        get = lambda name: state.get(of + name)  # noqa: E731
        for kind in ("weight", "bias"):
            q, k, v = (get(f"self_attn.{x}_proj.{kind}") for x in "qkv")
            if q is not None:
                out[f"{to}self_attention.linear_qkv.{kind}"] = grouped(q, k, v, config.num_key_value_heads)
        shared = get("mlp.shared_expert.gate_proj.weight")
        dense = get("mlp.gate_proj.weight")
        found = {
            "input_layernorm.weight": get("input_layernorm.weight"), "pre_mlp_layernorm.weight": get("post_attention_layernorm.weight"),
            "self_attention.linear_proj.weight": get("self_attn.o_proj.weight"), "mlp.router.weight": get("mlp.gate.weight"),
            "mlp.linear_fc1.weight": None if dense is None else torch.cat([dense, get("mlp.up_proj.weight")]), "mlp.linear_fc2.weight": get("mlp.down_proj.weight"),
            "mlp.experts.experts.linear_fc1.weight": get("mlp.experts.gate_up_proj"), "mlp.experts.experts.linear_fc2.weight": get("mlp.experts.down_proj"),
            "mlp.shared_experts.linear_fc1.weight": None if shared is None else torch.cat([shared, get("mlp.shared_expert.up_proj.weight")]),
            "mlp.shared_experts.linear_fc2.weight": get("mlp.shared_expert.down_proj.weight"), "mlp.shared_experts.gate_weight": get("mlp.shared_expert_gate.weight")}
        out |= {to + name: value for name, value in found.items() if value is not None}
    return {name: value.detach() for name, value in out.items()}


def stored(tensors, is_stacked):
    """The same under the names of checkpoints: the norm before a mixture has two, and layers that are all alike are stacked."""
    out = {}
    for name, value in tensors.items():
        fused = name.replace("input_layernorm.", "self_attention.linear_qkv.layer_norm_").replace("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")
        out[fused] = value
        if fused != name and "pre_mlp" in name and name.replace("pre_mlp_layernorm", "mlp.router") in tensors:
            out[name] = value
    if not is_stacked:
        return out
    stacks = {}
    for name in [name for name in out if name.startswith("decoder.layers.")]:
        stacks.setdefault("decoder.layers." + name.split(".", 3)[3], []).append(out.pop(name))
    return out | {name: torch.stack(values) for name, values in stacks.items()}


def rank_of(rank, world, port, jobs, results):
    """A process that loads one checkpoint after the other."""
    without_cuda()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    import megatron.core.transformer.moe.grouped_gemm_util as grouped_gemm
    import megatron.core.transformer.moe.moe_utils as moe_utils
    from megatron.core import parallel_state

    # products of TransformerEngine; a kernel that only computes
    moe_utils.te_general_gemm = None
    grouped_gemm.assert_grouped_gemm_is_available = lambda: None
    parallel_state.initialize_model_parallel(1, 1, expert_model_parallel_size=world)
    without_tracker()
    for job in iter(jobs.get, None):
        try:
            results.put((rank, *loaded(rank, world, *job)))
        except Exception as error:
            results.put((rank, {}, [repr(error)], [], None))


def loaded(rank, world, folder, is_grouped, is_apart, tokens):
    """Parameters and selection biases as bytes, missing and unexpected names, logits of one process."""
    from megatron.core import dist_checkpointing
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    common = dist_checkpointing.load_common_state_dict(folder)
    args = common["args"]
    # the goldens' args say nothing of these
    args.hidden_dropout, args.attention_dropout = 0.0, 0.0
    config = config_of(args, 1)
    more = {name: getattr(args, name) for name in MOE} | dict(
        num_moe_experts=args.num_experts, moe_grouped_gemm=is_grouped, expert_model_parallel_size=world, moe_token_dispatcher_type="allgather")
    for name, value in more.items():
        setattr(config, name, value)
    config.bias_activation_fusion = False
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=args.normalization)
    if is_apart:
        for layer, is_mixture in zip(spec.layer_specs, mixtures(args)):
            if is_mixture:
                layer.submodules = copy.copy(layer.submodules)
                layer.submodules.sharded_state_dict_keys_map = {"input_layernorm.": "self_attention.linear_qkv.layer_norm_"}
    model = GPTModel(
        config, spec, vocab_size=args.padded_vocab_size, max_sequence_length=args.max_position_embeddings, parallel_output=False, position_embedding_type=args.position_embedding_type,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights, rotary_percent=args.rotary_percent, rotary_base=args.rotary_base)
    if args.params_dtype == torch.bfloat16:
        model.bfloat16()
    for module in model.modules():
        if hasattr(module, "_maintain_float32_expert_bias"):
            module._maintain_float32_expert_bias()
    biases = lambda: {name: value for name, value in model.named_buffers() if name.endswith("expert_bias")}  # noqa: E731
    with torch.no_grad():
        [tensor.fill_(float("nan")) for tensor in (*model.parameters(), *biases().values())]
    metadata = dist_checkpointing.load_content_metadata(preloaded_state_dict=common) or {"singleton_local_shards": False}
    # a name that the checkpoint lacks is an error
    state = dist_checkpointing.load(model.sharded_state_dict(metadata=metadata), folder)
    result = model.load_state_dict({name: value for name, value in state.items() if isinstance(value, torch.Tensor) or "_extra_state" in name}, strict=False)
    held = {name: value.detach().clone() for name, value in (*model.named_parameters(), *biases().items())}
    logits = None
    if world == 1:
        count = len(tokens)
        mask = ~torch.tril(torch.ones(count, count, dtype=torch.bool))[None, None]
        with torch.no_grad():
            logits = model.float().eval()(torch.tensor([tokens]), torch.arange(count)[None], mask)[0, :, : args.vocab_size].numpy()
    missing = sorted(name for name in result.missing_keys if "_extra_state" not in name)
    unexpected = sorted(name for name in result.unexpected_keys if "_extra_state" not in name)
    parts = whole_names(held, rank, args.num_experts // world)
    return {name: value.contiguous().view(torch.uint8).numpy() for name, value in parts.items()}, missing, unexpected, logits


def mixtures(args):
    return args.moe_layer_freq if isinstance(args.moe_layer_freq, list) else [1] * args.num_layers


def whole_names(held, rank, experts):
    """A rank's tensors, experts as parts `NAME/EXPERT` of those that all ranks have stacked."""
    out = {}
    for name, value in held.items():
        local = re.fullmatch(r"(.*\.experts\.)local_experts\.(\d+)\.(.*)", name)
        if local:
            out[f"{local[1]}experts.{local[3]}/{rank * experts + int(local[2])}"] = value
        elif name.endswith((".experts.weight1", ".experts.weight2")):
            first, width = name.endswith("weight1"), value.numel() // experts
            d = value.shape[0] if first else value.shape[1]
            shape = (experts, d, width // d) if first else (experts, width // d, d)
            layer = name.rsplit(".", 1)[0] + (".experts.linear_fc1.weight" if first else ".experts.linear_fc2.weight")
            for at, part in enumerate(value.reshape(shape)):
                out[f"{layer}/{rank * experts + at}"] = part.T
        else:
            out[name] = value
    return out


class Ranks:
    """Processes that share the experts."""

    def __init__(self, world, port):
        context = mp.get_context("spawn")
        self.results, self.jobs = context.Queue(), [context.Queue() for _ in range(world)]
        self.processes = [context.Process(target=rank_of, args=(rank, world, port, self.jobs[rank], self.results), daemon=True) for rank in range(world)]
        [process.start() for process in self.processes]

    def load(self, folder, is_grouped, is_apart, tokens, line):
        """Tensors of all ranks, which agree where several have one, and rank 0's logits."""
        [jobs.put((str(folder), is_grouped, is_apart, tokens)) for jobs in self.jobs]
        found = dict((rank, rest) for rank, *rest in (self.results.get(timeout=300) for _ in self.jobs))
        tensors = {}
        for parts, missing, unexpected, _ in found.values():
            expect(not missing, f"{line}: missing {missing}")
            expect(not unexpected, f"{line}: unexpected {unexpected}")
            for name, value in parts.items():
                expect(name not in tensors or (tensors[name] == value).all(), f"{line}: ranks differ in {name}")
                tensors[name] = value
        return tensors, found[0][3]


def as_parts(tensors):
    out = {}
    for name, value in tensors.items():
        values = [(f"{name}/{at}", part) for at, part in enumerate(value)] if ".experts.experts." in name else [(name, value)]
        out |= {key: part.contiguous().view(torch.uint8).numpy() for key, part in values}
    return out


def rounded(tensors, dtype):
    return {name: value if name.endswith("expert_bias") else value.to(dtype) for name, value in tensors.items()}


def equal(found, want, line):
    expect(sorted(found) == sorted(want), f"{line}: {sorted(set(found) ^ set(want))}")
    for name in found.keys() & want.keys():
        expect(found[name].shape == want[name].shape and (found[name] == want[name]).all(), f"{line}: {name} has other numbers")


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    tokenizer = words(folder)
    ranks = {world: Ranks(world, 29420 + world) for world in (1, 2)}
    top = lambda logits: torch.log_softmax(torch.from_numpy(logits[-1]), -1)  # noqa: E731
    for name, fields in MODELS.items():
        hf = folder / name
        model = make(name, dict(fields), hf)
        tensors = expected(model.state_dict(), model.config)
        with torch.no_grad():
            theirs = torch.log_softmax(model(torch.tensor([TOKENS])).logits[0, -1], -1)
        for dtype in ("f32", "bf16"):
            line, out = f"{name} {dtype}", folder / f"{name}.{dtype}"
            convert(program, hf, out, "--to", "megatron", "--dtype", dtype)
            want = rounded(tensors, torch.float32 if dtype == "f32" else torch.bfloat16)
            count = by_torch(out / "release", stored(want, name == "mixtral"), line)
            convert(program, out, folder / "back", "--to", "millrace")
            ours = of_millrace(program, folder / "back", TOKENS, tokenizer)
            shutil.rmtree(folder / "back")
            off = {}
            for world, is_grouped, is_apart in LAYOUTS:
                at = f"{line} ep {world} grouped {is_grouped} apart {is_apart}"
                found, logits = ranks[world].load(out / "release", is_grouped, is_apart, TOKENS, at)
                equal(found, as_parts(want), at)
                if logits is not None:
                    off["millrace"] = (top(logits) - ours).abs().max().item()
                    expect(off["millrace"] < 1e-4, f"{at}: log-probabilities part from ours by {off['millrace']}")
                    if dtype == "f32":
                        off["transformers"] = (top(logits) - theirs).abs().max().item()
                        expect(off["transformers"] < 1e-4, f"{at}: log-probabilities part from transformers' by {off['transformers']}")
            print(json.dumps({"checkpoint": line, "tensors": count, "log_probability_off": {key: float(f"{value:.2g}") for key, value in off.items()}}), flush=True)
    for name in ("mixture_ep2", "mixture_grouped"):
        golden, middle = GOLDENS / f"megatron_dist_{name}", folder / f"{name}.ours"
        convert(program, golden, middle, "--to", "millrace")
        own, own_logits = ranks[1].load(golden, False, False, SHORT, name)
        for dtype in ("f32", "bf16"):
            line, out = f"{name} {dtype}", folder / f"{name}.{dtype}"
            convert(program, middle, out, "--to", "megatron", "--dtype", dtype)
            # as wide as theirs: numbers of 16 bits are the same, those of 32 bits are rounded
            wide = lambda found: {key: numbers(value, found is not own and dtype, key, name) for key, value in found.items()}  # noqa: E731
            kind = torch.float32 if dtype == "f32" else torch.bfloat16
            want = {key: value if key.endswith("expert_bias") else value.to(kind) for key, value in wide(own).items()}
            for world, is_grouped, is_apart in LAYOUTS:
                at = f"{line} ep {world} grouped {is_grouped} apart {is_apart}"
                found, logits = ranks[world].load(out / "release", is_grouped, is_apart, SHORT, at)
                expect(sorted(found) == sorted(want), f"{at}: {sorted(set(found) ^ set(want))}")
                for key, value in wide(found).items():
                    expect(same(value.to(want[key].dtype), want[key]), f"{at}: {key} has other numbers")
                if logits is not None and (dtype == "f32" or name == "mixture_grouped"):
                    expect((logits == own_logits).all(), f"{at}: other logits than of Megatron's own checkpoint")
            print(json.dumps({"checkpoint": line, "parameters": len(want)}), flush=True)
    print(f"{len(WRONG)} wrong")
    sys.exit(bool(WRONG))


def numbers(raw, dtype, key, golden):
    """Bytes of a tensor as f32; those of a golden have its own width."""
    width = dtype or ("bf16" if golden == "mixture_grouped" else "f32")
    kind = torch.bfloat16 if width == "bf16" and not key.endswith("expert_bias") else torch.float32
    return torch.from_numpy(raw.copy()).view(kind).float()


if __name__ == "__main__":
    main()
