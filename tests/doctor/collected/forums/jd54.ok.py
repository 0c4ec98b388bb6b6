"""Updates in the backward pass, with tied weights and an average of the weights."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class TinyLM(nn.Module):
    def __init__(self, vocab=40, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.proj = nn.Linear(dim, vocab, bias=False)
        self.proj.weight = self.embed.weight

    def forward(self, tokens):
        return self.proj(self.rnn(self.embed(tokens))[0])


class FusedUpdates:
    """One optimizer per parameter; gradients are freed as soon as they are used."""

    def __init__(self, model, lr, decay):
        self.decay = decay
        self.steps = {}
        self.average = {}
        self.optimizers = {}
        self.handles = []
        for param in model.parameters():
            self.steps[param] = 0
            self.average[param] = param.detach().clone()
            self.optimizers[param] = torch.optim.AdamW([param], lr=lr)
            self.handles.append(param.register_post_accumulate_grad_hook(self.apply))

    def apply(self, param):
        torch.nn.utils.clip_grad_value_([param], 1.0)
        optimizer = self.optimizers[param]
        optimizer.step()
        optimizer.zero_grad()
        self.average[param].lerp_(param.detach(), 1 - self.decay)
        self.steps[param] += 1

    def set_lr(self, lr):
        for optimizer in self.optimizers.values():
            optimizer.param_groups[0]["lr"] = lr

    @torch.no_grad()
    def load_average(self):
        for param, value in self.average.items():
            param.copy_(value)

    def close(self):
        for handle in self.handles:
            handle.remove()


def batch(size=24, length=15):
    start = torch.randint(0, 40, (size, 1))
    return (start + 3 * torch.arange(length)) % 40


def loss_of(model, tokens):
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def main():
    model = TinyLM()
    updates = FusedUpdates(model, lr=1e-2, decay=0.9)
    steps = 60
    for step in range(steps):
        updates.set_lr(1e-2 * (1 - step / steps))
        loss = loss_of(model, batch())
        loss.backward()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    updates.close()
    kept = sum(p.grad is not None for p in model.parameters())
    print(f"updates per parameter: {sorted(set(updates.steps.values()))}, gradients kept: {kept}")
    updates.load_average()
    with torch.no_grad():
        print(f"loss of the averaged weights: {loss_of(model, batch()):.3f}")


if __name__ == "__main__":
    main()
