"""Contrastive steering vectors for a (tiny, random) language model: extract a direction, add it at inference."""
import torch
import torch.nn as nn

LAYER = 1


class TinyGPT(nn.Module):
    def __init__(self, vocab=60, dim=32, depth=3):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.h = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(depth))
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        x = self.wte(ids)
        for block in self.h:
            x = block(x, src_mask=mask)
        return self.lm_head(x)


class Recorder:
    def __init__(self, block):
        self.last = None
        self.handle = block.register_forward_pre_hook(self.hook)

    def hook(self, module, args):
        self.last = args[0].detach()


@torch.no_grad()
def contrast(model, positive, negative):
    rec = Recorder(model.h[LAYER + 1])
    model(positive)
    pos = rec.last.mean((0, 1))
    model(negative)
    neg = rec.last.mean((0, 1))
    rec.handle.remove()
    return pos - neg


class Steer:
    def __init__(self, model, vector, alpha):
        self.block = model.h[LAYER]
        self.delta = alpha * vector / vector.norm()

    def __enter__(self):
        def hook(module, args, output):
            # nn.TransformerEncoderLayer returns the hidden states, some models a tuple that begins with them
            hidden = output[0] if isinstance(output, tuple) else output
            hidden.add_(self.delta)
            return output
        self.handle = self.block.register_forward_hook(hook)
        return self

    def __exit__(self, *exc):
        self.handle.remove()


@torch.no_grad()
def shift_per_prompt(model, prompts, vector, alpha):
    plain = model(prompts)[:, -1].log_softmax(-1)
    with Steer(model, vector, alpha):
        steered = model(prompts)[:, -1].log_softmax(-1)
    return (steered - plain).abs().mean(-1)


def main():
    torch.manual_seed(0)
    model = TinyGPT().eval()
    gen = torch.Generator().manual_seed(3)
    positive = torch.randint(2, 30, (8, 10), generator=gen)
    negative = torch.randint(30, 60, (8, 10), generator=gen)
    vector = contrast(model, positive, negative)
    print(f"steering vector norm {vector.norm().item():.4f}")
    prompts = torch.randint(2, 60, (5, 8), generator=gen)
    for alpha in (1.0, 4.0):
        shift = shift_per_prompt(model, prompts, vector, alpha)
        print(f"alpha {alpha}: change of the next-token distribution per prompt",
              [f"{v:.4f}" for v in shift.tolist()])
    reached = int((shift > 1e-3).sum())
    print(f"prompts reached by the steering: {reached} of {len(prompts)}")


if __name__ == "__main__":
    main()
