"""Word-level RNN language model with tied weights; all matrix gradients are scaled by a discount."""
import torch
from torch import nn


class RNNLM(nn.Module):
    def __init__(self, vocab=20, dim=12, tie=True):
        super().__init__()
        self.encoder = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.projection = nn.Linear(dim, dim)
        self.decoder = nn.Linear(dim, vocab)
        if tie:
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens):
        hidden, _ = self.rnn(self.encoder(tokens))
        return self.decoder(self.projection(hidden))


class GradientScaler:
    """Callback that scales the gradients of all embedding and linear weights."""

    def __init__(self, factor):
        self.factor = factor
        self.handles = {}

    def on_fit_start(self, model):
        for name, module in model.named_modules():
            if isinstance(module, (nn.Embedding, nn.Linear)):
                self.handles[name] = module.weight.register_hook(self.scale)

    def on_fit_end(self):
        for handle in self.handles.values():
            handle.remove()
        self.handles.clear()

    def scale(self, grad):
        return self.factor * grad


def gradients(model, tokens):
    model.zero_grad()
    logits = model(tokens[:, :-1])
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    return {name: p.grad.norm().item() for name, p in model.named_parameters() if name.endswith("weight")}


def main():
    torch.manual_seed(0)
    model = RNNLM()
    tokens = torch.randint(20, (8, 10))
    plain = gradients(model, tokens)
    callback = GradientScaler(0.5)
    callback.on_fit_start(model)
    scaled = gradients(model, tokens)
    callback.on_fit_end()
    for name in plain:
        print(f"{name:20s} scaled/plain = {scaled[name] / plain[name]:.3f}")


if __name__ == "__main__":
    main()
