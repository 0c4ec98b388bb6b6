"""Training a classifier with a K-FAC style preconditioner whose Kronecker
factors are collected by hooks on the linear layers."""
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(41)


class KFAC:
    def __init__(self, model, damping=0.1):
        self.damping = damping
        self.layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
        self.factors = {}
        for layer in self.layers:
            self.factors[layer] = {
                "A": torch.zeros(layer.in_features + 1, layer.in_features + 1), "rows_A": 0,
                "G": torch.zeros(layer.out_features, layer.out_features), "rows_G": 0,
            }
            layer.register_forward_pre_hook(self.save_input)
            layer.register_full_backward_pre_hook(self.save_grad_output)

    def save_input(self, module, inputs):
        a = inputs[0].detach()
        a = torch.cat([a, a.new_ones(len(a), 1)], dim=1)
        state = self.factors[module]
        state["A"] += a.t() @ a
        state["rows_A"] += len(a)

    def save_grad_output(self, module, grad_output):
        g = grad_output[0].detach() * len(grad_output[0])
        state = self.factors[module]
        state["G"] += g.t() @ g
        state["rows_G"] += len(g)

    @torch.no_grad()
    def precondition(self):
        for layer in self.layers:
            state = self.factors[layer]
            A = state["A"] / state["rows_A"]
            G = state["G"] / state["rows_G"]
            A = A + self.damping * torch.eye(len(A))
            G = G + self.damping * torch.eye(len(G))
            grad = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], dim=1)
            update = torch.linalg.solve(G, torch.linalg.solve(A, grad.t()).t())
            layer.weight.grad.copy_(update[:, :-1])
            layer.bias.grad.copy_(update[:, -1])


def make_split(n, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 10, generator=generator) + shift
    y = (x[:, 0] * x[:, 1] > shift).long() + (x[:, 2] > shift).long()
    return x, y


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
    model.train()
    return accuracy


def main():
    train_x, train_y = make_split(256, 0.0, seed=1)
    test_x, test_y = make_split(400, 0.6, seed=2)
    model = nn.Sequential(nn.BatchNorm1d(10), nn.Linear(10, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 3))
    kfac = KFAC(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(6):
        running = 0.0
        for chunk in torch.randperm(len(train_x)).split(64):
            optimizer.zero_grad()
            loss = criterion(model(train_x[chunk]), train_y[chunk])
            loss.backward()
            kfac.precondition()
            optimizer.step()
            running += loss.item() * len(chunk) / len(train_x)
        print(f"epoch {epoch + 1}: loss {running:.4f}, test accuracy {evaluate(model, test_x, test_y):.3f}")

    first = kfac.factors[model[1]]
    print(f"rows in the input factor: {first['rows_A']}, rows in the gradient factor: {first['rows_G']}")
    mean_input = first["A"][:-1, -1] / first["rows_A"]
    print(f"mean input seen by the first linear layer: {mean_input.mean().item():+.3f}")


if __name__ == "__main__":
    main()
