"""Self-distillation (mean teacher): the student's hidden layer follows the teacher's, two views per step."""
import copy
import torch
from torch import nn

torch.manual_seed(110)
MOMENTUM = 0.95


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(12, 32), nn.ReLU())
        self.out = nn.Linear(32, 8)

    def forward(self, x):
        return self.out(self.hidden(x))


class Recorder:
    """All outputs of a layer since the last clear(), in call order."""

    def __init__(self, layer, detach):
        self.items, self.detach = [], detach
        layer.register_forward_hook(self.add)

    def add(self, module, args, output):
        self.items.append(output.detach() if self.detach else output)

    def clear(self):
        self.items = []


student = Encoder()
teacher = copy.deepcopy(student).requires_grad_(False)
seen_s = Recorder(student.hidden, detach=False)     # needs the graph, it is trained through the record
seen_t = Recorder(teacher.hidden, detach=True)      # only a target
start = student.hidden[0].weight.detach().clone()


@torch.no_grad()
def pull_teacher(optimizer, args, kwargs):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.lerp_(s, 1 - MOMENTUM)


optimizer = torch.optim.SGD(student.parameters(), lr=0.2)
optimizer.register_step_post_hook(pull_teacher)
data = torch.randn(256, 12)

for step in range(60):
    x = data[torch.randint(0, 256, (64,))]
    seen_s.clear()
    seen_t.clear()
    for _ in range(2):                              # two noisy views
        student(x + 0.2 * torch.randn_like(x))
        teacher(x + 0.2 * torch.randn_like(x))
    s1, s2 = seen_s.items
    t1, t2 = seen_t.items
    loss = nn.functional.mse_loss(s1, t2) + nn.functional.mse_loss(s2, t1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1}: consistency {loss.item():.4f}  records {len(seen_s.items)}/{len(seen_t.items)}")

print(f"student moved by {(student.hidden[0].weight.detach() - start).norm():.3f}")
print(f"teacher is {(student.hidden[0].weight - teacher.hidden[0].weight).norm().item():.3f} behind")
print("output layer was left out on purpose:", student.out.weight.grad is None)
