"""Collect unit-length residual vectors of a GPT-2 while it is being evaluated."""
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(15)
torch.set_num_threads(1)


def make_model():
    cfg = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=3, n_head=4,
                     bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0,
                     attn_pdrop=0.0)
    return GPT2LMHeadModel(cfg)


def quick_fit(model, steps=25):
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(steps):
        ids = (torch.arange(8)[:, None] * 3 + 2 * torch.arange(12)[None] + step) % 64
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()


class DirectionBank:
    """Stores centred, normalised copies of what each block writes to the stream."""

    def __init__(self, model):
        self.bank = {i: [] for i in range(len(model.transformer.h))}
        self.handles = [block.register_forward_hook(self._hook(i))
                        for i, block in enumerate(model.transformer.h)]

    def _hook(self, i):
        def hook(module, args, output):
            rows = output.detach().clone()
            rows -= rows.mean(dim=-1, keepdim=True)
            rows /= rows.norm(dim=-1, keepdim=True).clamp_min(1e-6)
            self.bank[i].append(rows.reshape(-1, rows.shape[-1]))
        return hook

    def close(self):
        for h in self.handles:
            h.remove()


@torch.no_grad()
def evaluate(model, batches):
    return sum(model(input_ids=b, labels=b).loss.item() for b in batches) / len(batches)


def main():
    model = make_model()
    model.train()
    quick_fit(model)
    model.eval()
    batches = [(torch.arange(6)[:, None] * 5 + 2 * torch.arange(12)[None] + s) % 64 for s in (1, 2, 3)]

    bank = DirectionBank(model)
    watched = evaluate(model, batches)
    bank.close()
    plain = evaluate(model, batches)

    for i, parts in bank.bank.items():
        rows = torch.cat(parts)
        spectrum = torch.linalg.svdvals(rows)
        share = (spectrum[:4] ** 2).sum() / (spectrum ** 2).sum()
        print(f"block {i}: {rows.shape[0]} directions, top-4 energy {share.item():.3f}")
    print(f"loss with the collector {watched:.4f}, without {plain:.4f}, difference {abs(watched - plain):.4f}")


main()
