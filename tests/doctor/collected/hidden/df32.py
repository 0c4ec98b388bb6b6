"""Vanishing-gradient report: how much signal arrives at the input of every layer?"""
import torch
from torch import nn

torch.set_num_threads(1)


class DeepNet(nn.Module):
    def __init__(self, width=16, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.watch = None

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if self.watch is not None:
                self.watch(i, x)
            x = torch.sigmoid(x)
        return x


class SignalReport:
    def __init__(self, model):
        self.norms = {}
        model.watch = self.on_layer

    def on_layer(self, index, out):
        def node_hook(grad_inputs, grad_outputs):
            # what the node of the layer passes on to its input
            self.norms[index] = grad_inputs[0].norm().item()

        out.grad_fn.register_hook(node_hook)

    def show(self):
        for index in sorted(self.norms):
            print(f"layer {index}: gradient arriving at the input {self.norms[index]:.6f}")


def main():
    torch.manual_seed(0)
    model = DeepNet()
    report = SignalReport(model)
    x = torch.randn(32, 16, requires_grad=True)
    target = torch.rand(32, 16)

    loss = nn.functional.mse_loss(model(x), target)
    loss.backward()
    report.show()
    first, last = report.norms[0], report.norms[max(report.norms)]
    print(f"loss {loss.item():.5f}, signal shrinks by a factor of {last / first:.1f}")
    # the first layer reads x itself, so its entry can be compared with x.grad
    print(f"x.grad {x.grad.norm().item():.6f}, report {first:.6f}")
    print("consistent:", abs(x.grad.norm().item() - first) < 1e-7)


if __name__ == "__main__":
    main()
