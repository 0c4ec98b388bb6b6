"""Calibrate per-channel smoothing scales for the attention inputs of a tiny Llama (SmoothQuant style)."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
cfg = LlamaConfig(
    vocab_size=64, hidden_size=24, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
)
model = LlamaForCausalLM(cfg).eval()
# a few outlier channels, as they occur in real checkpoints
with torch.no_grad():
    for layer in model.model.layers:
        layer.input_layernorm.weight[[3, 11]] = 25.0


class Calibrator:
    """Keeps the running absolute maximum of each input channel of a block."""

    def __init__(self, width):
        self.absmax = torch.zeros(width)

    def __call__(self, module, args, kwargs):
        for x in (*args, kwargs.get("hidden_states")):
            if torch.is_tensor(x) and x.dim() == 3:
                self.absmax = torch.maximum(self.absmax, x.detach().abs().amax((0, 1)))


def calibrate(batches):
    stats, handles = {}, []
    for i, layer in enumerate(model.model.layers):
        stats[i] = Calibrator(cfg.hidden_size)
        handles.append(layer.self_attn.register_forward_pre_hook(stats[i], with_kwargs=True))
    with torch.no_grad():
        for ids in batches:
            model(ids)
    for h in handles:
        h.remove()
    return stats


def smoothing_scale(absmax, weight, alpha=0.5):
    w = weight.abs().amax(0).clamp(min=1e-5)
    return (absmax.clamp(min=1e-5) ** alpha / w ** (1 - alpha)).clamp(min=1e-2)


batches = [torch.randint(0, 64, (4, 12)) for _ in range(3)]
stats = calibrate(batches)
for i, layer in enumerate(model.model.layers):
    scale = smoothing_scale(stats[i].absmax, layer.self_attn.q_proj.weight.detach())
    top = sorted(torch.topk(scale, 2).indices.tolist())
    print(f"layer {i}: input absmax {stats[i].absmax.max().item():8.3f}  "
          f"scale range {scale.min().item():.3f}..{scale.max().item():.3f}  largest channels {top}")
found = all(float(s.absmax.max()) > 10 for s in stats.values())
print("outlier channels found:", found)
