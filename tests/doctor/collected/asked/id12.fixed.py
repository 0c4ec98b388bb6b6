import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class HostSGD:
    """Keeps master weights and momentum in double precision on the host.

    The gradients are handed over while the backward pass runs and are dropped
    from the model at once.
    """

    def __init__(self, model, lr=0.05, momentum=0.9):
        self.lr, self.momentum = lr, momentum
        self.params = dict(model.named_parameters())
        self.master = {n: p.detach().double() for n, p in self.params.items()}
        self.grads = {n: torch.zeros_like(m) for n, m in self.master.items()}
        self.velocity = {n: torch.zeros_like(m) for n, m in self.master.items()}
        for name, param in self.params.items():
            param.register_post_accumulate_grad_hook(self._receiver(name))

    def _receiver(self, name):
        def receive(param):
            self.grads[name] += param.grad.double()
            param.grad = None

        return receive

    @torch.no_grad()
    def step(self):
        for name, param in self.params.items():
            velocity = self.velocity[name]
            velocity.mul_(self.momentum).add_(self.grads[name])
            self.master[name].sub_(self.lr * velocity)
            param.copy_(self.master[name])
            self.grads[name].zero_()


class SpeechCommands(nn.Module):
    def __init__(self, n_mels=20, classes=6):
        super().__init__()
        self.rnn = nn.GRU(n_mels, 24, batch_first=True)
        self.head = nn.Linear(24, classes)

    def forward(self, x):
        _, last = self.rnn(x)
        return self.head(last[-1])


def make_data(n=192):
    labels = torch.randint(0, 6, (n,))
    x = 0.5 * torch.randn(n, 12, 20)
    for i, label in enumerate(labels):
        x[i, :, 3 * int(label) : 3 * int(label) + 3] += 1.0
    return x, labels


def main():
    x, labels = make_data()
    model = SpeechCommands()
    optimizer = HostSGD(model)
    history = []
    for epoch in range(6):
        total = 0.0
        for start in range(0, len(x), 32):
            for micro in range(start, start + 32, 16):
                batch, target = x[micro : micro + 16], labels[micro : micro + 16]
                loss = nn.functional.cross_entropy(model(batch), target) / 2
                loss.backward()
                total += loss.item()
            optimizer.step()
        history.append(total / 6)
        print(f"epoch {epoch}: loss {history[-1]:.3f}")
    print(f"loss reduced by {100 * (1 - history[-1] / history[0]):.0f} percent")


if __name__ == "__main__":
    main()
