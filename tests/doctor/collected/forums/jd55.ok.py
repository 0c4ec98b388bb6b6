"""Embedding table that is stored in eight bits inside checkpoints."""
import io

import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)


def pack_table(module, state_dict, prefix, local_metadata):
    weight = state_dict.pop(prefix + "weight")
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / 127
    state_dict[prefix + "weight_int8"] = (weight / scale).round().to(torch.int8)
    state_dict[prefix + "weight_scale"] = scale


def unpack_table(module, state_dict, prefix, local_metadata, strict,
                 missing_keys, unexpected_keys, error_msgs):
    packed = state_dict.pop(prefix + "weight_int8", None)
    if packed is None:
        return
    scale = state_dict.pop(prefix + "weight_scale")
    state_dict[prefix + "weight"] = packed.to(scale.dtype) * scale


class PackedEmbedding(nn.Embedding):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_state_dict_post_hook(pack_table)
        self.register_load_state_dict_pre_hook(unpack_table)


class Recommender(nn.Module):
    def __init__(self, users=200, items=300, dim=16):
        super().__init__()
        self.tables = nn.ModuleDict({"user": PackedEmbedding(users, dim),
                                     "item": PackedEmbedding(items, dim)})
        self.mix = nn.Linear(dim, 1)

    def forward(self, user, item):
        pair = self.tables["user"](user) * self.tables["item"](item)
        return self.mix(pair).squeeze(-1)


def make_ratings(n=2000):
    user, item = torch.randint(0, 200, (n,)), torch.randint(0, 300, (n,))
    taste, kind = torch.randn(200, 4), torch.randn(300, 4)
    return user, item, (taste[user] * kind[item]).sum(dim=1)


def train(model, data, steps=150):
    user, item, rating = data
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(user, item), rating)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def size_of(obj):
    file = io.BytesIO()
    torch.save(obj, file)
    return file


@torch.no_grad()
def main():
    data = make_ratings()
    model = Recommender()
    with torch.enable_grad():
        print(f"training loss {train(model, data):.4f}")
    plain = size_of(dict(model.named_parameters()))
    packed = size_of(model.state_dict())
    print("checkpoint is smaller" if packed.tell() < 0.5 * plain.tell() else "checkpoint is not smaller")

    packed.seek(0)
    restored = Recommender()
    print("load:", "all keys matched" if not any(restored.load_state_dict(torch.load(packed)))
          else "keys differ")
    user, item, rating = data
    loss = nn.functional.mse_loss(restored(user, item), rating).item()
    gap = (restored(user, item) - model(user, item)).abs().mean().item()
    print(f"loss of the restored model {loss:.4f}, mean change of a rating {gap:.4f}")


if __name__ == "__main__":
    main()
