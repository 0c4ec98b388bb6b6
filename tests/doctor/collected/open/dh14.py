"""Steering per request: one permanent hook, the strength lives in a thread-local variable."""
import threading

import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.inp = nn.Linear(dim, dim)
        self.mid = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        return self.out(torch.tanh(self.mid(torch.tanh(self.inp(x)))))


class Server:
    def __init__(self):
        torch.manual_seed(0)
        self.model = Net().eval()
        self.direction = nn.functional.normalize(torch.randn(12), dim=0)
        self.request = threading.local()
        self.lock = threading.Lock()
        self.steered = 0
        self.answers = {}
        self.model.mid.register_forward_hook(self.steer)      # for the life of the server

    def steer(self, module, args, out):
        strength = getattr(self.request, "strength", 0.0)
        if not strength:
            return None                       # nothing to do for this request
        with self.lock:
            self.steered += 1
        return out + strength * self.direction

    def handle_request(self, user, x, strength, arrived):
        self.request.strength = strength
        arrived.wait()
        with torch.no_grad():                 # grad mode is per thread, too
            self.answers[user] = self.model(x)


def main():
    server = Server()
    x = torch.randn(1, 12)
    with torch.no_grad():
        plain = server.model(x)
    strengths = {"anna": 0.0, "ben": 3.0, "cleo": -3.0}
    arrived = threading.Barrier(len(strengths))
    threads = [threading.Thread(target=server.handle_request, args=(u, x, s, arrived)) for u, s in strengths.items()]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for user in strengths:
        change = (server.answers[user] - plain).norm().item()
        print(f"{user:5s} change against the plain model {change:.4f}")
    print("steered requests:", server.steered)
    with torch.no_grad():
        print("main thread unsteered:", torch.equal(server.model(x), plain))


if __name__ == "__main__":
    main()
