"""A toy inference server: every request may ask for its own steering strength."""
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
        self.answers = {}

    def handle_request(self, user, x, strength, arrived):
        owner = threading.get_ident()

        def steer(module, args, out):
            if threading.get_ident() != owner:
                return None
            return out + strength * self.direction

        handle = self.model.mid.register_forward_hook(steer)
        try:
            arrived.wait()                    # both requests are in flight now
            with torch.no_grad():
                self.answers[user] = self.model(x)
            arrived.wait()
        finally:
            handle.remove()                   # the next request starts from a clean model


def serve(server, x, strengths):
    arrived = threading.Barrier(len(strengths))
    threads = [threading.Thread(target=server.handle_request, args=(user, x, s, arrived))
               for user, s in strengths.items()]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def main():
    server = Server()
    x = torch.randn(1, 12)
    with torch.no_grad():
        plain = server.model(x)

    serve(server, x, {"anna": 0.0, "ben": 3.0})
    for user in ("anna", "ben"):
        change = (server.answers[user] - plain).norm().item()
        print(f"{user:5s} change against the plain model {change:.4f}")
    same = torch.allclose(server.answers["anna"], server.answers["ben"], atol=1e-5)
    print("both users got the same answer:", same)
    with torch.no_grad():
        print("hooks left behind:", len(server.model.mid._forward_hooks))


if __name__ == "__main__":
    main()
