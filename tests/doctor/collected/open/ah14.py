"""Attention entropy of a BERT: maps from the eager path, and what sdpa gives instead."""
import torch
from transformers import BertConfig, BertModel

torch.manual_seed(53)
torch.set_num_threads(1)


class AttentionMaps:
    def __init__(self, model):
        self.maps, self.without_weights = [], 0
        self.handles = [layer.attention.self.register_forward_hook(self._collect)
                        for layer in model.encoder.layer]

    def _collect(self, module, args, output):
        weights = output[1]
        if weights is None:              # fused attention does not hand out probabilities
            self.without_weights += 1
        else:
            self.maps.append(weights.detach())

    def close(self):
        for h in self.handles:
            h.remove()


def config():
    return BertConfig(vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                      num_attention_heads=4, max_position_embeddings=32, initializer_range=0.3)


def entropy(maps, mask):
    """Mean entropy per layer over real query tokens, in bits."""
    result = []
    for m in maps:
        h = -(m.clamp_min(1e-9).log2() * m).sum(-1).mean(1)
        result.append(((h * mask).sum() / mask.sum()).item())
    return result


def main():
    fast = BertModel(config()).eval()
    eager = BertModel._from_config(config(), attn_implementation="eager").eval()
    eager.load_state_dict(fast.state_dict())

    ids = torch.randint(3, 60, (4, 12))
    mask = (torch.arange(12)[None] < torch.tensor([12, 9, 7, 5])[:, None]).long()
    outputs = {}
    for name, model in (("sdpa", fast), ("eager", eager)):
        tap = AttentionMaps(model)
        with torch.no_grad():
            outputs[name] = model(input_ids=ids, attention_mask=mask).last_hidden_state
        tap.close()
        print(f"{name}: {len(tap.maps)} maps, {tap.without_weights} layers without weights")

    gap = ((outputs["sdpa"] - outputs["eager"]) * mask[..., None]).abs().max().item()
    print("both paths agree:", gap < 1e-4)
    sums = torch.stack([m.sum(-1) for m in tap.maps])
    print("rows sum to one:", bool(torch.allclose(sums, torch.ones_like(sums), atol=1e-5)))
    print("entropy per layer:", [round(v, 3) for v in entropy(tap.maps, mask)])


if __name__ == "__main__":
    main()
