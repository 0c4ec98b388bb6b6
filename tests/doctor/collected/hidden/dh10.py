"""Activation memory of a model, measured with a global hook that lives for one forward pass."""
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU())
        self.head = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def activation_elements(model, x):
    """Elements produced by the leaf modules of `model`; containers only pass tensors on."""
    names = {m: n for n, m in model.named_modules() if not list(m.children())}
    table = {}

    def count(module, args, out):
        if module in names:
            table[names[module]] = out[0].numel()

    with register_module_forward_hook(count), torch.no_grad():
        model(x)
        teacher_noise(x)                     # another model at work, which must not be counted
    return table


TEACHER = None


def teacher_noise(x):
    return TEACHER(x)


def train(model, x, y, steps=3):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return loss.item()


def main():
    global TEACHER
    torch.manual_seed(0)
    TEACHER = Net().eval()
    model = Net()
    x = torch.randn(16, 1, 14, 14)
    y = torch.randint(0, 10, (16,))
    table = activation_elements(model, x)
    for name, n in table.items():
        print(f"{name:12s}{n:6d}")
    print("sum", sum(table.values()))
    size = len(table)
    print(f"loss after training {train(model, x, y):.4f}, table unchanged: {size == len(table)}")


if __name__ == "__main__":
    main()
