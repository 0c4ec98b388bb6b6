"""A mean teacher: the weights of the teacher are a moving average of the weights of the student."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--no-grad", action="store_true", help="run the frozen teacher under torch.no_grad as well")
args = parser.parse_args()
plant = args.plant
torch.set_num_threads(1)
torch.manual_seed(101)
step = 0


class MeanTeacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(10, 24), nn.ELU(), nn.Dropout(0.2), nn.Linear(24, 24), nn.ELU(), nn.Linear(24, 4))
        self.teacher = copy.deepcopy(self.student).requires_grad_(False).eval()

    def forward(self, weak, strong):
        if plant == "swap" and step == 8:
            weak, strong = strong, weak
        guess = self.student(strong)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not args.no_grad):
            aim = self.teacher(weak)
        return guess, aim

    @torch.no_grad()
    def average(self, decay):
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters()):
            slow.lerp_(fast, 1 - decay)


model = MeanTeacher()
optimizer = torch.optim.SGD(model.student.parameters(), lr=0.05, momentum=0.8)
g = torch.Generator().manual_seed(102)
for step in range(20):
    x = torch.randn(32, 10, generator=g)
    weak, strong = x + 0.05 * torch.randn(32, 10, generator=g), x + 0.3 * torch.randn(32, 10, generator=g)
    labels = x[:, :4].argmax(1)
    if plant == "weak" and step == 11:
        weak[0, 0] += 1e-4
    if plant == "noisy-labels" and step >= 4:
        labels[:3] = (labels[:3] + 1) % 4
    if plant == "teacher-train" and step == 5:
        model.teacher.train()
    if plant == "teacher-weight" and step == 9:
        model.teacher[3].weight.data[1, 1] += 0.02
    if plant == "nesterov" and step == 10:
        optimizer.param_groups[0]["nesterov"] = True
    if plant == "student-weight" and step == 14:
        model.student[5].bias.data[0] += 1e-5
    guess, aim = model(weak, strong)
    loss = F.cross_entropy(guess, labels) + F.mse_loss(guess.softmax(1), aim.softmax(1))
    optimizer.zero_grad()
    loss.backward()
    if plant == "negative" and step == 13:
        model.student[3].weight.grad[0].neg_()
    optimizer.step()
    model.average(0.9 if plant == "decay" and step >= 6 else 0.99)
    print(step, loss.item())
