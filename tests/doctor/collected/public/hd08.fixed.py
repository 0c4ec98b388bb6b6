"""Matrix factorisation with BPR; what autograd keeps for backward is stored in half precision."""
import torch
from torch import nn
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks


class HalfStorage:
    """Saved tensors above `threshold` elements are packed to 16 bit and restored on use."""

    def __init__(self, threshold=64):
        self.threshold = threshold
        self.bytes_before = 0
        self.bytes_after = 0

    def pack(self, tensor):
        if tensor.numel() < self.threshold or not tensor.is_floating_point():
            return None, tensor
        packed = tensor.to(torch.float16)
        self.bytes_before += tensor.numel() * tensor.element_size()
        self.bytes_after += packed.numel() * packed.element_size()
        return tensor.dtype, packed

    def unpack(self, state):
        dtype, tensor = state
        return tensor if dtype is None else tensor.to(dtype)

    def __call__(self):
        return saved_tensors_hooks(self.pack, self.unpack)


class Factorisation(nn.Module):
    def __init__(self, users, items, rank=16):
        super().__init__()
        self.user = nn.Embedding(users, rank)
        self.item = nn.Embedding(items, rank)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)

    def score(self, users, items):
        return (self.user(users) * torch.tanh(self.item(items))).sum(-1)

    def forward(self, users, liked, other):
        return self.score(users, liked) - self.score(users, other)


def make_interactions(users, items, count):
    user = torch.randint(0, users, (count,))
    liked = torch.randint(0, items, (count,))
    other = torch.randint(0, items, (count,))
    return user, liked, other


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    users, items = 800, 5050
    data = make_interactions(users, items, 20000)
    model = Factorisation(users, items)
    initial = model.item.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    storage = HalfStorage()

    for epoch in range(3):
        total = 0.0
        batches = torch.randperm(len(data[0])).split(1000)
        for rows in batches:
            user, liked, other = (column[rows] for column in data)
            with storage():
                loss = -F.logsigmoid(model(user, liked, other)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: bpr loss {total / len(batches):.4f}")

    occurring = torch.cat([data[1], data[2]]).unique()
    unchanged = (model.item.weight.detach()[occurring] == initial[occurring]).all(1).sum().item()
    print(f"packed tensors take {storage.bytes_after / storage.bytes_before:.2f} of their size")
    print(f"items of the data: {len(occurring)}, of these still at the initial vector: {unchanged}")


if __name__ == "__main__":
    main()
