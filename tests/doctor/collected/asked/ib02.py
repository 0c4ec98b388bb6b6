"""Calibrate activation ranges of a LLaMA-style model and fold smoothing scales."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

ALPHA = 0.5


def build_model():
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()


class InputRanges:
    """Per-channel maximum of what goes into every attention and MLP block."""

    def __init__(self, model):
        self.amax = {}
        self.handles = []
        for name, module in model.named_modules():
            if name.endswith(("self_attn", "mlp")):
                self.amax[name] = torch.zeros(model.config.hidden_size)
                handle = module.register_forward_pre_hook(self._observer(name))
                self.handles.append(handle)

    def _observer(self, name):
        def observe(module, args):
            for x in args:
                current = x.abs().amax(dim=(0, 1))
                self.amax[name] = torch.maximum(self.amax[name], current)

        return observe

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


@torch.no_grad()
def calibrate(model, batches):
    ranges = InputRanges(model)
    for batch in batches:
        model(batch, use_cache=False)
    ranges.close()
    return ranges.amax


@torch.no_grad()
def fold_scales(norm, linears, act_max):
    weight_max = torch.stack([fc.weight.abs().amax(dim=0) for fc in linears]).amax(dim=0)
    scale = act_max.pow(ALPHA) / weight_max.pow(1 - ALPHA)
    scale = scale.clamp(min=1e-5)
    norm.weight.div_(scale)
    for fc in linears:
        fc.weight.mul_(scale)
    return scale


def main():
    model = build_model()
    batches = [torch.randint(0, 128, (4, 16)) for _ in range(8)]
    reference = torch.randint(0, 128, (2, 16))
    with torch.no_grad():
        before = model(reference, use_cache=False).logits

    amax = calibrate(model, batches)
    for i, layer in enumerate(model.model.layers):
        attn, mlp = layer.self_attn, layer.mlp
        s_attn = fold_scales(
            layer.input_layernorm,
            [attn.q_proj, attn.k_proj, attn.v_proj],
            amax[f"model.layers.{i}.self_attn"],
        )
        s_mlp = fold_scales(
            layer.post_attention_layernorm,
            [mlp.gate_proj, mlp.up_proj],
            amax[f"model.layers.{i}.mlp"],
        )
        print(
            f"layer {i}: attention scales {s_attn.min():.3f}..{s_attn.max():.3f}, "
            f"mlp scales {s_mlp.min():.3f}..{s_mlp.max():.3f}"
        )

    with torch.no_grad():
        after = model(reference, use_cache=False).logits
    print(f"logits preserved: {torch.allclose(before, after, atol=1e-3)}")


if __name__ == "__main__":
    main()
