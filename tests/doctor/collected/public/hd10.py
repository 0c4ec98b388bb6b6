"""Credit scoring with per-sample gradient norms (for spotting mislabelled applications)."""
import torch
from torch import nn
import torch.nn.functional as F


class ScoreNet(nn.Module):
    def __init__(self, cardinalities=(12, 30, 7), width=32):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 6) for n in cardinalities)
        self.hidden = nn.Linear(6 * len(cardinalities), width)
        self.out = nn.Linear(width, 1)

    def forward(self, categories):
        columns = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        return self.out(F.relu(self.hidden(torch.cat(columns, 1)))).squeeze(-1)


class PerSampleNorms:
    """For a linear layer the norm of a sample's weight gradient is |input| * |output gradient|."""

    def __init__(self, model):
        self.inputs = {}
        self.squared = None
        for module in model.modules():
            if isinstance(module, nn.Linear):
                self.inputs[module] = []
                module.register_forward_hook(self._keep_input)
                module.register_full_backward_hook(self._combine)

    def _keep_input(self, module, inputs, output):
        self.inputs[module].append(inputs[0].detach())

    def _combine(self, module, grad_input, grad_output):
        activation = self.inputs[module].pop()
        norms = activation.pow(2).sum(1) * grad_output[0].detach().pow(2).sum(1)
        self.squared = norms if self.squared is None else self.squared + norms

    def collect(self):
        norms, self.squared = self.squared.sqrt(), None
        return norms

    def held(self):
        tensors = [t for stack in self.inputs.values() for t in stack]
        return len(tensors), sum(t.numel() * t.element_size() for t in tensors) / 1024


def make_applications(count):
    categories = torch.stack([torch.randint(0, n, (count,)) for n in (12, 30, 7)], 1)
    logits = 0.5 * (categories[:, 0] - 5) - 0.1 * (categories[:, 1] - 15)
    return categories, (torch.rand(count) < torch.sigmoid(logits)).float()


@torch.no_grad()
def validate(model, categories, labels):
    hits = 0
    for start in range(0, len(labels), 100):
        rows = slice(start, start + 100)
        hits += ((model(categories[rows]) > 0).float() == labels[rows]).sum().item()
    return hits / len(labels)


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    categories, labels = make_applications(1000)
    wrong = torch.randperm(len(labels))[:40]
    labels[wrong] = 1 - labels[wrong]
    valid_categories, valid_labels = make_applications(500)

    model = ScoreNet()
    tracker = PerSampleNorms(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(4):
        norms = torch.zeros(len(labels))
        for rows in torch.randperm(len(labels)).split(100):
            loss = F.binary_cross_entropy_with_logits(model(categories[rows]), labels[rows], reduction="sum")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            norms[rows] = tracker.collect()
        accuracy = validate(model, valid_categories, valid_labels)
        tensors, kib = tracker.held()
        print(f"epoch {epoch}: validation accuracy {accuracy:.3f}, held {tensors} activations ({kib:.0f} KiB)")
    found = torch.isin(norms.topk(100).indices, wrong).sum().item()
    print(f"mislabelled among the 100 largest norms: {found}")


if __name__ == "__main__":
    main()
