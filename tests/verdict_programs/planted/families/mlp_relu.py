"""Regression: a ReLU network imitates a small teacher network (SGD with momentum)."""

import json
import os

import torch
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
STEPS = 160
now = 0


def on(kind: str, name: str = LAYER) -> bool:
    """Whether the fault `kind` is planted at this layer and this is its step."""
    return kind == KIND and name == LAYER and now == STEP


class Block(nn.Module):
    """Linear layer with activation."""

    def __init__(self, name: str, inputs: int, outputs: int) -> None:
        super().__init__()
        self.name = name
        self.linear = nn.Linear(inputs, outputs)
        nn.init.kaiming_normal_(self.linear.weight, nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        if on("fwd_log", self.name):
            h = h + torch.log(h.mean(dim=1, keepdim=True))  # negative for some rows
        if on("fwd_exp", self.name):
            h = h.mul(200.0).exp().mul(1e-30)  # a softplus written by hand, without the usual limit
        if on("bwd_where", self.name):
            h = torch.where(h > 0, h.sqrt(), torch.zeros_like(h))  # the gradient of the unused branch is NaN
        if KIND == "sigmoid_stack":
            return torch.sigmoid(h)
        return torch.relu(h)


class Net(nn.Module):
    """Six blocks and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [12] + [48] * 6
        self.hidden = nn.ModuleList(Block(f"hidden.{i}", sizes[i], sizes[i + 1]) for i in range(6))
        self.head = nn.Linear(48, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.hidden:
            x = block(x)
        return self.head(x)


teacher = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4)).requires_grad_(False)
for p in teacher.parameters():
    p.mul_(2.0)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs with the teacher's answers."""
    x = torch.randn(128, 12)
    y = teacher(x)
    if on("data_nan"):
        x[17] = float("nan")  # a row that could not be read
    if on("data_inf"):
        x[:, 3] = x[:, 3] / torch.zeros(())  # feature scaled with a spread of zero
    if on("batch_scale"):
        x = x * 255.0
    if on("batch_labels"):
        y = y * 100.0  # labels in percent
    return x, y


model = Net()
lr, decay = 0.01, 1e-4
if KIND == "lr_high":
    lr = 2.0
if KIND == "lr_zero":
    lr = 0.0
if KIND == "wd_huge":
    decay = 8.0
if KIND == "dead_bias":
    model.get_submodule(LAYER).linear.bias.data.fill_(-1000.0)
optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=decay)
loss_fn = nn.MSELoss()

if KIND == "grad_hook":
    weight = model.get_submodule(LAYER).linear.weight
    weight.register_hook(lambda g: g * 1e4 if now >= STEP else g)

for step in range(STEPS):
    now = step
    if KIND == "lr_jump" and step == STEP:
        optimizer.param_groups[0]["lr"] = lr * 100
    if on("param_nan"):
        with torch.no_grad():  # average over zero checkpoints
            w = model.get_submodule(LAYER).linear.weight
            w.copy_(torch.zeros_like(w) / 0)
    if on("opt_state"):
        for state in optimizer.state.values():
            state["momentum_buffer"].mul_(3000.0)  # a buffer of scaled gradients, loaded without dividing
    x, y = batch()
    optimizer.zero_grad()
    prediction = model(x)
    loss = loss_fn(prediction, y)
    if on("loss_log"):
        loss = loss + 0.1 * torch.log(prediction.softmax(1) - 0.5).mean()
    loss.backward()
    optimizer.step()
    if KIND == "decay_sign":
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 0.03)  # own weight decay with the wrong sign
    if step % 20 == 0 or step == STEPS - 1:
        print(f"step {step} loss {loss.item():.4f}")
