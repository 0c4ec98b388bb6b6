"""Find units that never fire; the evaluation is split over worker processes."""
import torch
import torch.multiprocessing as mp
from torch import nn

HIDDEN = 24
WORKERS = 2
WORKER_ID = 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(12, HIDDEN)
        self.relu = nn.ReLU()
        self.out = nn.Linear(HIDDEN, 5)

    def forward(self, x):
        return self.out(self.relu(self.enc(x)))


def make_data():
    g = torch.Generator().manual_seed(2)
    return torch.randn(128, 12, generator=g)


# one line of counters per worker, so that they do not step on each other's toes
fired = torch.zeros(WORKERS, HIDDEN)


def count_active(module, args, out):
    fired[WORKER_ID] += (out > 0).sum(dim=0)


def evaluate(worker, model, shard, results):
    global WORKER_ID
    torch.set_num_threads(1)
    WORKER_ID = worker
    with torch.no_grad():
        results.put((worker, model(shard).argmax(dim=1).tolist()))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net().eval()
    with torch.no_grad():
        model.enc.bias[:4] = -40.0           # four units that were switched off long ago
    model.relu.register_forward_hook(count_active)

    data = make_data()
    ctx = mp.get_context("fork")
    results = ctx.SimpleQueue()
    procs = [ctx.Process(target=evaluate, args=(w, model, data[w::WORKERS], results)) for w in range(WORKERS)]
    for p in procs:
        p.start()
    answers = dict(results.get() for _ in procs)
    for p in procs:
        p.join()

    print("predictions:", sum(len(a) for a in answers.values()))
    total = fired.sum(dim=0)
    dead = (total == 0).nonzero().flatten().tolist()
    print(f"units that never fired: {len(dead)} of {HIDDEN}")
    keep = HIDDEN - len(dead)
    print("width of the slimmed layer:", keep)


if __name__ == "__main__":
    main()
