"""Character model with a GRU: the optimizer runs inside backward to save gradient memory."""
import torch
from torch import nn
import torch.nn.functional as F

TEXT = (
    "the quick brown fox jumps over the lazy dog while the slow green turtle "
    "walks under the old stone bridge and the small red bird sings in the tree "
) * 12


class CharGRU(nn.Module):
    def __init__(self, symbols, width=24, hidden=48):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, symbols)

    def forward(self, tokens):
        states, _ = self.gru(self.embedding(tokens))
        return self.head(states)


class OptimizerInBackward:
    """One small optimizer per parameter; a gradient is used and freed as soon as it is complete."""

    def __init__(self, model, **options):
        self.optimizers = {p: torch.optim.SGD([p], **options) for p in model.parameters()}
        self.gradient_complete = True
        for param in model.parameters():
            param.register_post_accumulate_grad_hook(self._update)

    def _update(self, param):
        if not self.gradient_complete:
            return
        self.optimizers[param].step()
        self.optimizers[param].zero_grad()


def batches(codes, length=20, size=32):
    windows = codes.unfold(0, length + 1, 5)
    windows = windows[torch.randperm(len(windows))]
    for batch in windows.split(size):
        if len(batch) == size:
            yield batch[:, :-1], batch[:, 1:]


def train(codes, symbols, micro_batches, epochs=3):
    torch.manual_seed(11)
    model = CharGRU(symbols)
    updater = OptimizerInBackward(model, lr=0.5, momentum=0.9)
    history = []
    for _ in range(epochs):
        losses = []
        for inputs, targets in batches(codes):
            parts = list(zip(inputs.chunk(micro_batches), targets.chunk(micro_batches)))
            total = 0.0
            for number, (x, y) in enumerate(parts):
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / micro_batches
                updater.gradient_complete = number == micro_batches - 1
                loss.backward()
                total += loss.item()
            losses.append(total)
        history.append(sum(losses) / len(losses))
    return history


def main():
    torch.set_num_threads(1)
    alphabet = sorted(set(TEXT))
    codes = torch.tensor([alphabet.index(c) for c in TEXT])
    whole = train(codes, len(alphabet), micro_batches=1)
    split = train(codes, len(alphabet), micro_batches=4)
    print("batches of 32:        ", " ".join(f"{loss:.3f}" for loss in whole))
    print("4 micro-batches of 8: ", " ".join(f"{loss:.3f}" for loss in split))
    difference = max(abs(a - b) for a, b in zip(whole, split))
    print("loss curves agree" if difference < 0.01 else "loss curves differ")


if __name__ == "__main__":
    main()
