"""Checkpoints without the frozen encoder: state-dict hooks drop it, a load hook forgives it."""
import os
import tempfile
import torch
from transformers import BertConfig, BertModel

torch.manual_seed(49)
torch.set_num_threads(1)


class ProbeModel(torch.nn.Module):
    """Frozen BERT with a trainable head; only the head is worth storing."""

    def __init__(self, config):
        super().__init__()
        self.encoder = BertModel(config)
        self.encoder.requires_grad_(False)
        self.head = torch.nn.Linear(config.hidden_size, 3)
        self.register_state_dict_post_hook(self._drop_encoder)
        self.register_load_state_dict_post_hook(self._forgive_encoder)

    @staticmethod
    def _drop_encoder(module, state_dict, prefix, local_metadata):
        for key in list(state_dict):
            if key.startswith(prefix + "encoder."):
                del state_dict[key]

    @staticmethod
    def _forgive_encoder(module, incompatible):
        kept = [k for k in incompatible.missing_keys if ".encoder." not in "." + k]
        incompatible.missing_keys[:] = kept

    def forward(self, ids):
        with torch.no_grad():
            pooled = self.encoder(input_ids=ids).pooler_output
        return self.head(pooled)


def train(model, steps=20):
    opt = torch.optim.Adam(model.head.parameters(), lr=2e-2)
    gen = torch.Generator().manual_seed(1)
    for _ in range(steps):
        ids = torch.randint(5, 50, (24, 6), generator=gen)
        loss = torch.nn.functional.cross_entropy(model(ids), ids[:, 0] % 3)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    config = BertConfig(vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                        num_attention_heads=4, max_position_embeddings=16, initializer_range=0.2)
    model = ProbeModel(config).eval()
    print(f"probe loss {train(model):.4f}")

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "probe.pt")
        torch.save(model.state_dict(), path)
        print("stored tensors:", sorted(torch.load(path)), "bytes below 4 kB:", os.path.getsize(path) < 4096)
        fresh = ProbeModel(config).eval()
        fresh.encoder.load_state_dict(model.encoder.state_dict())
        result = fresh.load_state_dict(torch.load(path))
    print("missing keys reported:", result.missing_keys)
    ids = torch.randint(5, 50, (8, 6))
    print("same predictions:", torch.equal(model(ids), fresh(ids)))


main()
