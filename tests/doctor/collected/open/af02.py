"""Collect second moments of layer inputs for a GPTQ-like weight rounding step."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
torch.set_num_threads(1)
DIM = 24

model = LlamaForCausalLM(LlamaConfig(
    vocab_size=90, hidden_size=DIM, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
    bos_token_id=1, eos_token_id=2, pad_token_id=0)).eval()


class InputMoments:
    """Running sum of x x^T over every token that enters a block."""

    def __init__(self, dim):
        self.moments = torch.zeros(dim, dim)
        self.rows = 0

    def __call__(self, module, args):
        for x in args:
            if not torch.is_tensor(x) or x.shape[-1] != DIM:
                continue
            flat = x.detach().reshape(-1, DIM).float()
            self.moments += flat.T @ flat
            self.rows += flat.shape[0]

    def hessian(self, damp=0.01):
        return self.moments / max(self.rows, 1) + damp * torch.eye(DIM)


collectors, handles = {}, []
for i, layer in enumerate(model.model.layers):
    # attention and MLP both receive the normalised residual stream
    for part in ("self_attn", "mlp"):
        c = collectors[f"layers.{i}.{part}"] = InputMoments(DIM)
        handles.append(getattr(layer, part).register_forward_pre_hook(c))

calibration = [torch.randint(3, 90, (4, 16)) for _ in range(5)]
with torch.no_grad():
    for ids in calibration:
        model(input_ids=ids)
for h in handles:
    h.remove()


def round_weight(weight, hessian, step=0.02):
    """Greedy rounding: the error of a column is pushed into the later ones."""
    w, q = weight.clone(), torch.zeros_like(weight)
    inv = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)
    for j in range(w.shape[1]):
        q[:, j] = (w[:, j] / step).round() * step
        err = (w[:, j] - q[:, j]) / inv[j, j]
        w[:, j + 1:] -= err[:, None] * inv[j, j + 1:][None, :]
    return q


for name, c in collectors.items():
    h = c.hessian()
    off = (h - torch.diag(h.diag())).abs().max().item()
    print(f"{name:<20} tokens {c.rows:4d}  largest off-diagonal entry {off:.4f}")
first = model.model.layers[0]
for name, lin in (("self_attn.q_proj", first.self_attn.q_proj), ("mlp.up_proj", first.mlp.up_proj)):
    h = collectors["layers.0." + name.split(".")[0]].hessian()
    q = round_weight(lin.weight.detach(), h)
    print(f"layer 0 {name}: rounded with mean error {(q - lin.weight).abs().mean().item():.4f}")
