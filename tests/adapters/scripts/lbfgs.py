# Fit a small network to a damped oscillation with full-batch L-BFGS.
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

np.random.seed(0)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, n_hidden=16):
        super(Net, self).__init__()
        self.lin1 = nn.Linear(1, n_hidden)
        self.lin2 = nn.Linear(n_hidden, n_hidden)
        self.lin3 = nn.Linear(n_hidden, 1)

    def forward(self, t):
        h = torch.tanh(self.lin1(t))
        h = torch.tanh(self.lin2(h))
        return self.lin3(h)


def oscillator(d, w0, t):
    w = np.sqrt(w0 ** 2 - d ** 2)
    return np.exp(-d * t) * np.cos(w * t)


if __name__ == '__main__':
    t = np.linspace(0, 1, 120)
    u = oscillator(2, 12, t) + 0.01 * np.random.randn(t.size)
    t = torch.tensor(t, dtype=torch.float64).view(-1, 1)
    u = torch.tensor(u, dtype=torch.float64).view(-1, 1)

    net = Net().double()
    criterion = nn.MSELoss()
    # use LBFGS as optimizer since we can load the whole data to train
    optimizer = torch.optim.LBFGS(net.parameters(), lr=1, max_iter=8, line_search_fn='strong_wolfe', history_size=10)

    for i in range(30):

        def closure():
            optimizer.zero_grad()
            out = net(t)
            loss = criterion(out, u)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        print('STEP:', i, 'loss:', repr(loss.item()))

    with torch.no_grad():
        print('final loss:', repr(criterion(net(t), u).item()))
    print('checksum', repr(sum(p.detach().double().sum().item() for p in net.parameters())))
