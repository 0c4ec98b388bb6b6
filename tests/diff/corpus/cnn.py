"""A CNN with batch norm on small pictures."""

import argparse
from collections import OrderedDict

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--freeze-bn", type=int, default=99, help="use the running statistics from this step on")
parser.add_argument("--evaluate", action="store_true", help="evaluate after every second step")
parser.add_argument("--channels-last", action="store_true")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


class Conv(nn.Conv2d):
    flip = False

    def forward(self, x):
        y = super().forward(x)
        if self.flip:
            y.detach()[1, 2, 3, 3].view(torch.int32).bitwise_xor_(1 << 12)
        return y


def conv_bn(cin, cout, stride, **bn):
    return nn.Sequential(
        OrderedDict(conv=Conv(cin, cout, 3, stride, 1, bias=False), bn=nn.BatchNorm2d(cout, **bn), relu=nn.ReLU())
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        momentum = 0.2 if plant == "bn-momentum" else 0.1
        eps = 1.01e-5 if plant == "bn-eps" else 1e-5
        self.stem = conv_bn(3, 8, 1)
        self.layer1 = conv_bn(8, 16, 2, momentum=momentum)
        self.layer2 = conv_bn(16, 16, 2, eps=eps)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.head(x.mean((2, 3)))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
data = torch.Generator().manual_seed(1)
test_data = torch.Generator().manual_seed(2)
if args.channels_last:
    model = model.to(memory_format=torch.channels_last)

for step in range(8):
    x = torch.randn(16, 3, 16, 16, generator=data)
    y = torch.randint(0, 10, (16,), generator=data)
    if args.channels_last:
        x = x.to(memory_format=torch.channels_last)
    model.train()
    if plant == "eval" and step >= 4:
        model.eval()
    if step >= args.freeze_bn:
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
    if plant == "buffer" and step == 5:
        model.layer1.bn.running_mean[3] += 1e-3
    if plant == "momentum" and step >= 3:
        optimizer.param_groups[0]["momentum"] = 0.8
    model.layer2.conv.flip = plant == "bit" and step == 3
    smoothing = 0.1 if plant == "smoothing" and step >= 2 else 0.0
    criterion = nn.CrossEntropyLoss(label_smoothing=smoothing)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    if plant == "zero-channel" and step == 4:
        model.layer1.conv.weight.grad[5] = 0
    optimizer.step()
    print(step, loss.item())
    if args.evaluate and step % 2 == 1:
        model.eval()
        with torch.no_grad():
            pred = model(torch.randn(8, 3, 16, 16, generator=test_data)).argmax(1)
        print("eval", pred.tolist())
