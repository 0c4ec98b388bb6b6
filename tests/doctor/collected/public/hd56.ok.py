"""Two-tower recommender: averaged weights via an optimizer hook, old checkpoints via a load hook."""
import copy

import torch
from torch import nn
import torch.nn.functional as F


class Tower(nn.Module):
    """Was called `table`/`dense` in the first release; old checkpoints are still accepted."""

    renamed = {"table.": "lookup.", "dense.": "mlp.0."}

    def __init__(self, entries, width=16):
        super().__init__()
        self.lookup = nn.Embedding(entries, width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.register_load_state_dict_pre_hook(self._accept_old_names)

    @staticmethod
    def _accept_old_names(module, state_dict, prefix, *unused):
        for key in [key for key in state_dict if key.startswith(prefix)]:
            local = key[len(prefix):]
            for old, new in module.renamed.items():
                if local.startswith(old):
                    state_dict[prefix + new + local[len(old):]] = state_dict.pop(key)

    def forward(self, ids):
        return self.mlp(self.lookup(ids))


class TwoTowers(nn.Module):
    def __init__(self, users, items):
        super().__init__()
        self.user = Tower(users)
        self.item = Tower(items)

    def forward(self, users, items):
        return 4.0 * self.user(users) @ self.item(items).T


class AveragedWeights:
    def __init__(self, model, optimizer, decay=0.95):
        self.model = model
        self.decay = decay
        self.average = copy.deepcopy(model).requires_grad_(False)
        self.handle = optimizer.register_step_post_hook(self._update)

    @torch.no_grad()
    def _update(self, optimizer, args, kwargs):
        for slow, fast in zip(self.average.parameters(), self.model.parameters()):
            slow.lerp_(fast, 1.0 - self.decay)

    def finish(self):
        self.handle.remove()
        return self.average


def old_checkpoint(model):
    state = model.state_dict()
    for old, new in Tower.renamed.items():
        state = {key.replace("." + new, "." + old): value.clone() for key, value in state.items()}
    return state


def make_clicks(count, users, items, groups=10):
    user = torch.randint(0, users, (count,))
    other = torch.randint(0, items // groups, (count,)) * groups
    return user, other + user % groups


@torch.no_grad()
def hit_rate(model, user, item, items, k=30):
    best = model(user, torch.arange(items)).topk(k, 1).indices
    return (best == item[:, None]).any(1).float().mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    users, items = 200, 300
    user, item = make_clicks(6000, users, items)
    test_user, test_item = make_clicks(500, users, items)

    checkpoint = old_checkpoint(TwoTowers(users, items))
    print("first keys of the old checkpoint:", ", ".join(sorted(checkpoint)[:2]))
    model = TwoTowers(users, items)
    model.load_state_dict(checkpoint)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    averaged = AveragedWeights(model, optimizer)
    for epoch in range(4):
        losses = []
        for rows in torch.randperm(len(user)).split(200):
            loss = F.cross_entropy(model(user[rows], item[rows]), torch.arange(len(rows)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
    average = averaged.finish()
    for title, candidate in (("last weights", model), ("averaged weights", average)):
        print(f"{title}: hit rate {hit_rate(candidate, test_user, test_item, items):.3f}")


if __name__ == "__main__":
    main()
