"""Mean teacher: the teacher is a deep copy of the student, never trained; hooks on both take the features compared."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

student = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 3))
teacher = copy.deepcopy(student).requires_grad_(False)
taken = {}
student[3].register_forward_hook(lambda m, args, out: taken.update(student=out))
teacher[3].register_forward_hook(lambda m, args, out: taken.update(teacher=out))

optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
losses = []
for step in range(8):
    x, y = torch.randn(32, 8), torch.randint(3, (32,))
    logits = student(x)
    with torch.no_grad():
        teacher(x + 0.1 * torch.randn_like(x))
    loss = F.cross_entropy(logits, y) + F.mse_loss(taken["student"], taken["teacher"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    taken.clear()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.lerp_(s, 0.05)
    losses.append(loss.item())
result = [losses, [p.detach().clone() for net in (student, teacher) for p in net.parameters()]]
