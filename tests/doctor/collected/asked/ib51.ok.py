"""Universal-transformer style encoder: one block applied several times, states recorded per depth."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

DIM = 24


class SharedBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.mix = nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x):
        context = self.mix(self.norm(x)).mean(dim=1, keepdim=True)
        return x + context + self.mlp(self.norm(x))


class UniversalEncoder(nn.Module):
    def __init__(self, vocab=30, depth=5, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, DIM)
        self.block = SharedBlock()
        self.depth = depth
        self.head = nn.Linear(DIM, classes)

    def forward(self, tokens):
        x = self.embed(tokens)
        for _ in range(self.depth):
            x = self.block(x)
        return self.head(x.mean(dim=1))


class DepthRecorder:
    """Collects the state after every application of the block in one pass of the model."""

    def __init__(self, model, block):
        self.states = []
        self.handles = [
            model.register_forward_pre_hook(self._start),
            block.register_forward_hook(self._append),
        ]

    def _start(self, module, args):
        self.states = []

    def _append(self, module, args, output):
        self.states.append(output.detach().clone())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()
        self.states = []


def make_data(count):
    labels = torch.randint(0, 3, (count,))
    tokens = torch.randint(0, 10, (count, 8)) + 10 * labels[:, None]
    noise = torch.randint(0, 30, (count, 8))
    return torch.where(torch.rand(count, 8) < 0.5, noise, tokens), labels


def main():
    tokens, labels = make_data(512)
    model = UniversalEncoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(4):
        for xb, yb in zip(tokens.split(64), labels.split(64)):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")

    model.eval()
    sums = torch.zeros(model.depth)
    batches = tokens.split(128)
    with torch.no_grad(), DepthRecorder(model, model.block) as recorder:
        for xb in batches:
            model(xb)
            logits = torch.stack([model.head(state.mean(dim=1)) for state in recorder.states])
            agree = (logits.argmax(dim=-1) == logits[-1].argmax(dim=-1)).float().mean(dim=1)
            sums += agree
    for depth, share in enumerate(sums / len(batches), start=1):
        print(f"after {depth} applications: {share:.1%} of the predictions are final")


if __name__ == "__main__":
    main()
