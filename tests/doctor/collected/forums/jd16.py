"""Block ablation of a residual network, on the graph that will be deployed."""
import torch
import torch.fx as fx
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.drop = nn.Dropout(0.1)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(self.drop(torch.relu(self.up(self.norm(x)))))


class ResNet(nn.Module):
    def __init__(self, dim=16, depth=4, classes=5):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Ablation:
    def __init__(self, model):
        self.skipped = None
        self.handles = [block.register_forward_hook(self.bypass(index))
                        for index, block in enumerate(model.blocks)]

    def bypass(self, index):
        def hook(module, args, output):
            if self.skipped == index:
                return args[0]
        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()


def without_dropout(model):
    graph_model = fx.symbolic_trace(model)
    modules = dict(graph_model.named_modules())
    for node in list(graph_model.graph.nodes):
        if node.op == "call_module" and isinstance(modules[node.target], nn.Dropout):
            node.replace_all_uses_with(node.args[0])
            graph_model.graph.erase_node(node)
    graph_model.recompile()
    return graph_model


def make_data(n=800):
    angles = torch.randn(5, 16)
    x = torch.randn(n, 16)
    return x, (x.abs() @ angles.t().abs() * torch.sign(x[:, :5])).argmax(dim=1)


@torch.no_grad()
def accuracy(predict, x, y):
    return (predict(x).argmax(dim=1) == y).float().mean().item()


def main():
    x, y = make_data()
    model = ResNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()

    ablation = Ablation(model)
    deployed = without_dropout(model)
    full = accuracy(deployed, x, y)
    print(f"accuracy of the deployed graph: {full:.3f}")
    for index in range(len(model.blocks)):
        ablation.skipped = index
        print(f"without block {index}: accuracy drop {full - accuracy(deployed, x, y):.3f}")
    ablation.close()


if __name__ == "__main__":
    main()
