import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)

ACCUM_STEPS = 4
MICRO_BATCH = 8
EPOCHS = 2

# toy classification problem: which of the 5 centres is the point closest to?
centres = torch.randn(5, 10) * 1.5
points = torch.randn(480, 10)
labels = torch.cdist(points, centres).argmin(dim=1)
loader = DataLoader(TensorDataset(points, labels), batch_size=MICRO_BATCH, shuffle=True)

model = nn.Sequential(
    nn.Linear(10, 64),
    nn.ReLU(),
    nn.Dropout(p=0.1),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 5),
)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

step = 0
accumulated_loss = 0.0
optimizer.zero_grad()
for epoch in range(EPOCHS):
    model.train()
    for i, (inputs, targets) in enumerate(loader):
        outputs = model(inputs)
        loss = criterion(outputs, targets) / ACCUM_STEPS
        loss.backward()
        accumulated_loss += loss.item()

        if (i + 1) % ACCUM_STEPS == 0:
            optimizer.step()
            optimizer.zero_grad()
            print(f"epoch {epoch} step {step} loss {accumulated_loss!r}")
            accumulated_loss = 0.0
            step += 1

model.eval()
with torch.no_grad():
    acc = (model(points).argmax(dim=1) == labels).float().mean().item()
print("train accuracy", repr(acc))
print("checksum", repr(sum(p.detach().double().sum().item() for p in model.parameters())))
