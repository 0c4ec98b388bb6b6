"""Classification of synthetic images: a CNN with batch norm, SGD with Nesterov momentum, a Trainer class."""

import copy
import json
import os

import torch
from torch import Tensor, nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))


class ConvBlock(nn.Module):
    """Convolution, batch norm, ReLU."""

    step = 0

    def __init__(self, name: str, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.name = name
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn = nn.Identity() if KIND == "sigmoid_stack" else nn.BatchNorm2d(outputs)
        if KIND == "dead_bias" and name == LAYER:
            nn.init.constant_(self.bn.bias, -50.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.conv(x))
        if self.name == LAYER and ConvBlock.step == STEP:
            if KIND == "fwd_log":
                x = x - torch.log(x.mean((2, 3), keepdim=True))
            if KIND == "fwd_mask_mean":
                keep = torch.zeros(len(x), 1, 1, 1)  # no sample is valid
                x = x - (x * keep).sum(0) / keep.sum()
            if KIND == "bwd_sqrt":
                x = x + (x - x.detach()).pow(2).mean((2, 3), keepdim=True).sqrt()
        return torch.sigmoid(x) if KIND == "sigmoid_stack" else torch.relu(x)


class Classifier(nn.Module):
    """Three blocks, pooling, linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBlock("stem", 1, 8, 1)
        self.stage1 = nn.Sequential(ConvBlock("stage1.0", 8, 12, 2), ConvBlock("stage1.1", 12, 12, 1))
        self.stage2 = nn.Sequential(ConvBlock("stage2.0", 12, 16, 2), ConvBlock("stage2.1", 16, 16, 1))
        self.fc = nn.Linear(16, 4)
        if KIND == "unused_head":
            self.aux_fc = nn.Linear(12, 4)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stage2(self.stage1(self.stem(images)))
        return self.fc(x.mean((2, 3)))


def make_batch(size: int = 32) -> tuple[Tensor, Tensor]:
    """Stripes in one of four directions, with noise."""
    label = torch.randint(4, (size,))
    angle = label * (torch.pi / 4)
    row, column = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    wave = row * angle.cos()[:, None, None] + column * angle.sin()[:, None, None]
    image = torch.sin(wave * 1.5 + torch.rand(size, 1, 1) * 6.28) + torch.randn(size, 12, 12) * 0.5
    return image[:, None], label


class Trainer:
    """Owns the model, the optimizer and the loop."""

    def __init__(self) -> None:
        self.model = Classifier()
        trained = copy.deepcopy(self.model) if KIND == "wrong_model" else self.model
        skip = LAYER + "." if KIND == "not_in_opt" else "-"
        parameters = [p for n, p in trained.named_parameters() if not n.startswith(skip)]
        decay = 2.0 if KIND == "wd_huge" else 5e-4
        self.optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=decay)
        self.criterion = nn.CrossEntropyLoss()
        if KIND == "grad_hook":
            self.model.get_submodule(LAYER).conv.weight.register_hook(self.rescale)

    def rescale(self, grad: Tensor) -> Tensor:
        """A gradient correction that forgets to divide."""
        return grad * 1e4 if ConvBlock.step >= STEP else grad

    @torch.no_grad()
    def accident(self) -> None:
        """What goes wrong between two steps."""
        group = self.optimizer.param_groups[0]
        if KIND == "lr_jump":
            group["lr"] = 20.0
        if KIND == "opt_state":
            for state in self.optimizer.state.values():
                state["momentum_buffer"] *= 2048.0
        if KIND == "param_nan":
            weight = self.model.get_submodule(LAYER).conv.weight
            weight.div_(weight.sub(weight).norm())  # weight normalisation with a wrong norm
        if KIND == "w_reinit":
            nn.init.normal_(self.model.get_parameter(LAYER), std=5.0)

    def run(self, steps: int = 140) -> None:
        """Train for some steps."""
        for step in range(steps):
            ConvBlock.step = step
            images, label = make_batch()
            if step == STEP:
                self.accident()
                if KIND == "data_nan":
                    images[3] = float("nan")
                if KIND == "batch_labels":
                    label = label[torch.randperm(len(label))]
                if KIND == "batch_scale":
                    images[::2] *= 255  # half of the images were not divided
            if KIND == "labels_random":
                label = torch.randint(4, label.shape)
            if KIND == "lr_spike":
                self.optimizer.param_groups[0]["lr"] = 50.0 if step == STEP else 0.05
            self.optimizer.zero_grad(set_to_none=True)
            logits = self.model(images)
            loss = self.criterion(logits, label)
            if KIND == "loss_log" and step == STEP:
                loss = -torch.log(1 - torch.softmax(logits, 1).sum(1)).mean()
            loss.backward()
            if KIND == "clip_small":
                nn.utils.clip_grad_norm_(self.model.parameters(), 1e-3)
            self.optimizer.step()
            if KIND == "decay_sign":
                with torch.no_grad():
                    for p in self.model.parameters():
                        p.mul_(1.1)
            if step % 20 == 0:
                print(step, round(loss.item(), 4))


Trainer().run()
