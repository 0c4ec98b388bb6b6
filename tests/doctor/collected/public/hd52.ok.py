"""Session embeddings from an inner layer, computed by worker processes."""
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
import torch.multiprocessing as mp

STATE = {}


class SessionNet(nn.Module):
    def __init__(self, pages=120, width=16, hidden=24):
        super().__init__()
        self.pages = nn.Embedding(pages, width)
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.squeeze = nn.Linear(hidden, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, sessions):
        _, last = self.gru(self.pages(sessions))
        return self.head(torch.tanh(self.squeeze(last[-1])))


def make_sessions(count, length=12, pages=120):
    buys = torch.randint(0, 2, (count,))
    sessions = torch.randint(0, pages, (count, length))
    shop = torch.rand(count, length) < 0.3
    return torch.where(shop & (buys[:, None] == 1), sessions % 15, sessions), buys


def train(model, sessions, buys, epochs=3):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        losses = []
        for rows in torch.randperm(len(sessions)).split(64):
            loss = F.cross_entropy(model(sessions[rows]), buys[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")


def start_worker(weights):
    torch.set_num_threads(1)
    model = SessionNet()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    model.eval()
    STATE["model"] = model

    def keep(module, inputs, output):
        STATE["embedding"] = output

    model.squeeze.register_forward_hook(keep)


def embed(sessions):
    with torch.inference_mode():
        logits = STATE["model"](torch.from_numpy(sessions))
    return STATE.pop("embedding").numpy(), logits.argmax(1).numpy()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sessions, buys = make_sessions(1200)
    model = SessionNet()
    train(model, sessions, buys)

    new_sessions, new_buys = make_sessions(400)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    chunks = [chunk.numpy() for chunk in new_sessions.split(100)]
    with mp.get_context("fork").Pool(2, initializer=start_worker, initargs=(weights,)) as pool:
        results = pool.map(embed, chunks, chunksize=1)
    embeddings = np.concatenate([embedding for embedding, _ in results])
    predicted = np.concatenate([labels for _, labels in results])

    labels = new_buys.numpy()
    centers = np.stack([embeddings[labels == k].mean(0) for k in (0, 1)])
    nearest = ((embeddings[:, None] - centers) ** 2).sum(-1).argmin(1)
    print("embeddings:", embeddings.shape)
    print(f"accuracy of the model {np.mean(predicted == labels):.3f}, of the nearest centre {np.mean(nearest == labels):.3f}")


if __name__ == "__main__":
    main()
