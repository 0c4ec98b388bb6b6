"""Feature distillation: the student imitates the teacher's hidden layer."""
import torch
from torch import nn


def mlp(width):
    return nn.ModuleDict({
        "inner": nn.Linear(8, width),
        "act": nn.ReLU(),
        "outer": nn.Linear(width, 2),
    })


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = mlp(width)

    def forward(self, x):
        for layer in self.layers.values():
            x = layer(x)
        return x


class Distiller:
    def __init__(self, teacher, student, teacher_width, student_width):
        self.teacher, self.student = teacher.eval(), student
        self.adapter = nn.Linear(student_width, teacher_width)
        params = [*student.parameters(), *self.adapter.parameters()]
        self.optimizer = torch.optim.Adam(params, lr=1e-2)
        self.captured = []

    def capture(self, module, args, output):
        self.captured.append(output.detach())

    def step(self, x):
        self.captured.clear()
        self.teacher.layers["act"].register_forward_hook(self.capture)
        with torch.no_grad():
            target = self.teacher(x)
        hidden = self.student.layers["act"](self.student.layers["inner"](x))
        output = self.student.layers["outer"](hidden)
        loss = nn.functional.mse_loss(output, target)
        projected = self.adapter(hidden)
        for feature in self.captured:
            loss = loss + 0.1 * nn.functional.mse_loss(projected, feature)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    distiller = Distiller(Net(32), Net(8), 32, 8)
    data = torch.randn(8, 64, 8)
    for step, batch in enumerate(data):
        loss = distiller.step(batch)
        print(f"step {step} loss {loss:.4f} feature terms {len(distiller.captured)}")


if __name__ == "__main__":
    main()
