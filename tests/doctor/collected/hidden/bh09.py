"""DQN with a feature probe that survives copying: every network has its own slot in the store."""
import copy
import random
import weakref
import torch
from torch import nn

torch.manual_seed(109)
random.seed(109)
STATES, GAMMA = 10, 0.9

store = weakref.WeakKeyDictionary()


def probe(module, args, output):
    store[module] = output              # one slot per module object, a copied hook writes to the copy's slot


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(STATES, 48), nn.ReLU())
        self.q = nn.Linear(48, 2)
        self.phi.register_forward_hook(probe)

    def forward(self, s):
        return self.q(self.phi(s))


def encode(states):
    return nn.functional.one_hot(torch.tensor(states), STATES).float()


def replay(n=500):
    out, s = [], 0
    for _ in range(n):
        a = random.randint(0, 1)
        s2 = min(STATES - 1, s + 1) if a else max(0, s - 1)
        out.append((s, a, float(s2 == STATES - 1), s2))
        s = 0 if s2 == STATES - 1 else s2
    return out


online = QNet()
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.Adam(online.parameters(), lr=3e-3)
memory = replay()

for update in range(150):
    s, a, r, s2 = zip(*random.sample(memory, 32))
    q = online(encode(s)).gather(1, torch.tensor(a).unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        r = torch.tensor(r)
        goal = r + GAMMA * (1 - r) * target(encode(s2)).max(dim=1).values
    td = nn.functional.smooth_l1_loss(q, goal)
    reg = 0.02 * store[online.phi].pow(2).sum(dim=1).mean()
    optimizer.zero_grad()
    (td + reg).backward()
    optimizer.step()
    if update % 25 == 24:
        target.load_state_dict(online.state_dict())
    if update % 50 == 49:
        print(f"update {update + 1}: td {td.item():.4f}  feature penalty {reg.item():.4f}")

print("slots:", len(store), "| online features carry a gradient:", store[online.phi].requires_grad,
      "| target features:", store[target.phi].requires_grad)
with torch.no_grad():
    print("greedy actions:", online(encode(list(range(STATES)))).argmax(dim=1).tolist())
