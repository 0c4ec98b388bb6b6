"""Dead-unit search in forked workers; every worker sends its own counts back."""
import torch
import torch.multiprocessing as mp
from torch import nn

HIDDEN = 24
WORKERS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(12, HIDDEN)
        self.relu = nn.ReLU()
        self.out = nn.Linear(HIDDEN, 5)

    def forward(self, x):
        return self.out(self.relu(self.enc(x)))


class Counter:
    def __init__(self):
        self.fired = torch.zeros(HIDDEN, dtype=torch.long)

    def __call__(self, module, args, out):
        self.fired += (out > 0).sum(dim=0)


def evaluate(worker, model, counter, shard, results):
    # the counter of this process; the parent's one stays at zero, which is intended
    torch.set_num_threads(1)
    with torch.no_grad():
        predictions = model(shard).argmax(dim=1)
    results.put((worker, predictions.tolist(), counter.fired.tolist()))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net().eval()
    with torch.no_grad():
        model.enc.bias[:4] = -40.0
    counter = Counter()
    handle = model.relu.register_forward_hook(counter)

    data = torch.randn(128, 12)
    ctx = mp.get_context("fork")
    results = ctx.SimpleQueue()
    procs = [ctx.Process(target=evaluate, args=(w, model, counter, data[w::WORKERS], results)) for w in range(WORKERS)]
    for p in procs:
        p.start()
    parts = sorted(results.get() for _ in procs)
    for p in procs:
        p.join()
    handle.remove()

    total = torch.tensor([fired for _, _, fired in parts]).sum(dim=0)
    dead = (total == 0).nonzero().flatten().tolist()
    print("predictions:", sum(len(p) for _, p, _ in parts))
    print(f"dead units: {dead}")
    print("counted in the parent itself:", int(counter.fired.sum()))
    check = Counter()
    with model.relu.register_forward_hook(check), torch.no_grad():
        model(data)
    print("same as a single process:", torch.equal(check.fired, total))


if __name__ == "__main__":
    main()
