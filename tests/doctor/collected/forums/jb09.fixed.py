"""Mean-teacher training with a consistency loss on intermediate features."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(8)
torch.set_num_threads(1)


class Backbone(nn.Module):
    """MLP whose intermediate features are available in `activations` after a forward pass."""

    def __init__(self, inputs=12, width=32, classes=4):
        super().__init__()
        self.layer1 = nn.Linear(inputs, width)
        self.layer2 = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)
        self.activations = {}
        self.layer1.register_forward_hook(self.get_activation("1"))
        self.layer2.register_forward_hook(self.get_activation("2"))

    def get_activation(self, name):
        def hook(module, inputs, output):
            self.activations[name] = output
        return hook

    def forward(self, x):
        x = torch.tanh(self.layer1(x))
        x = torch.tanh(self.layer2(x))
        return self.head(x)


def make_teacher(student):
    teacher = Backbone()
    teacher.load_state_dict(student.state_dict())
    return teacher.requires_grad_(False).eval()


@torch.no_grad()
def update_teacher(teacher, student, decay=0.95):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.lerp_(s, 1.0 - decay)


def feature_consistency(student, teacher):
    total = torch.zeros(())
    for name, wanted in teacher.activations.items():
        total = total + F.mse_loss(student.activations[name], wanted)
    return total


def make_data(n=400):
    x = torch.randn(n, 12)
    y = (x[:, 0] > 0).long() * 2 + (x[:, 1] + x[:, 2] > 0).long()
    return x, y


def main():
    student = Backbone()
    teacher = make_teacher(student)
    opt = torch.optim.Adam(student.parameters(), lr=5e-3)
    x, y = make_data()
    unlabeled = torch.randn(800, 12)

    for epoch in range(8):
        totals = torch.zeros(2)
        for step in range(8):
            xb, yb = x[step * 50:(step + 1) * 50], y[step * 50:(step + 1) * 50]
            ub = unlabeled[step * 100:(step + 1) * 100]
            supervised = F.cross_entropy(student(xb), yb)

            with torch.no_grad():
                teacher(ub)
            student(ub + 0.2 * torch.randn_like(ub))
            consistency = feature_consistency(student, teacher)

            loss = supervised + 2.0 * consistency
            opt.zero_grad()
            loss.backward()
            opt.step()
            update_teacher(teacher, student)
            totals += torch.tensor([supervised.item(), consistency.item()]) / 8
        print(f"epoch {epoch}: supervised {totals[0]:.4f}  consistency {totals[1]:.4f}")

    with torch.no_grad():
        acc = (teacher(x).argmax(1) == y).float().mean().item()
    print(f"teacher accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
