"""Serve embeddings (penultimate layer) from a small thread pool."""
import threading
import time
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Service:
    def __init__(self, model):
        self.model = model.eval()
        self.embedding = None
        model[2].register_forward_hook(self._keep)

    def _keep(self, module, args, output):
        self.embedding = output.detach()

    def handle(self, x):
        with torch.no_grad():
            logits = self.model(x)
        label = int(logits.argmax())
        time.sleep(0.002)
        return {"label": label, "embedding": self.embedding.clone()}


model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 6), nn.ReLU(), nn.Linear(6, 4))
service = Service(model)
requests = [torch.randn(1, 8) for _ in range(40)]

one_by_one = [service.handle(x) for x in requests]
with ThreadPoolExecutor(max_workers=4) as pool:
    parallel = list(pool.map(service.handle, requests))

for name, answers in (("one by one", one_by_one), ("4 threads", parallel)):
    with torch.no_grad():
        truth = [model[2](model[1](model[0](x))) for x in requests]
    good_label = sum(a["label"] == b["label"] for a, b in zip(answers, one_by_one))
    good_emb = sum(torch.allclose(a["embedding"], t) for a, t in zip(answers, truth))
    print(f"{name:10s}: correct labels {good_label}/40, correct embeddings {good_emb}/40")
print("threads alive:", threading.active_count())
