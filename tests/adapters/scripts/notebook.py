#!/usr/bin/env python
# coding: utf-8

# # Spirals with a small MLP
# 
# First try, just to see that it learns something.

# In[1]:


import math
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(42)


# In[3]:


n = 300
r = torch.linspace(0.1, 1, n)
theta = torch.stack([3 * r + 2 * math.pi * k / 3 for k in range(3)]) + 0.15 * torch.randn(3, n)
X = torch.stack([r * theta.cos(), r * theta.sin()], dim=-1).reshape(-1, 2)
y = torch.arange(3).repeat_interleave(n)
X.shape, y.shape

perm = torch.randperm(len(X))
X_train, y_train = X[perm[:750]], y[perm[:750]]
X_val, y_val = X[perm[750:]], y[perm[750:]]
print(X_train.shape, X_val.shape)


# In[5]:


model = nn.Sequential(
    nn.Linear(2, 64),
    nn.ReLU(),
    nn.Linear(64, 32),
    nn.ReLU(),
    nn.Linear(32, 3),
)
model


# In[9]:


opt = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []

def fit(epochs, bs=50):
    for epoch in range(epochs):
        for i in range(0, len(X_train), bs):
            xb, yb = X_train[i:i+bs], y_train[i:i+bs]
            loss = F.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            print(f"{len(losses)-1}: loss {losses[-1]!r}")
        with torch.no_grad():
            print("epoch", epoch, "val acc", (model(X_val).argmax(1) == y_val).float().mean().item())

fit(2)


# Still going down, so a bit more with a smaller learning rate:

# In[11]:


for g in opt.param_groups:
    g['lr'] = 3e-3
fit(2)


# In[12]:


print("checksum", repr(sum(p.detach().double().sum().item() for p in model.parameters())))


# In[ ]:



