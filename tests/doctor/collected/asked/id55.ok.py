import io

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.set_num_threads(1)


class Encoder(nn.Module):
    """Was written with `layer_a` and `layer_b`; old checkpoints still use these names."""

    RENAMED = {"layer_a": "project", "layer_b": "mix"}

    def __init__(self, n_features=8, dim=20):
        super().__init__()
        self.project = nn.Linear(n_features, dim)
        self.mix = nn.Linear(dim, dim)
        self.register_load_state_dict_pre_hook(self._accept_old_names)

    @staticmethod
    def _accept_old_names(
        module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        for old, new in module.RENAMED.items():
            for kind in ("weight", "bias"):
                value = state_dict.pop(f"{prefix}{old}.{kind}", None)
                if value is not None:
                    state_dict[f"{prefix}{new}.{kind}"] = value

    def forward(self, x):
        return torch.tanh(self.mix(torch.tanh(self.project(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(20, 3)

    def forward(self, x):
        return self.head(self.encoder(x))


def old_checkpoint():
    torch.manual_seed(40)
    back = {new: old for old, new in Encoder.RENAMED.items()}
    state = {}
    for key, value in Model().state_dict().items():
        parts = [back.get(part, part) for part in key.split(".")]
        state[".".join(parts)] = value.clone()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


def main():
    torch.manual_seed(0)
    x = torch.randn(240, 8)
    y = (x[:, :3] + 0.2 * torch.randn(240, 3)).argmax(dim=1)

    model = Model()
    result = model.load_state_dict(torch.load(old_checkpoint()))
    print(f"missing {len(result.missing_keys)}, unexpected {len(result.unexpected_keys)}")

    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = optimizer.register_step_post_hook(
        lambda optimizer, args, kwargs: average.update_parameters(model)
    )
    for epoch in range(5):
        for start in range(0, len(x), 40):
            loss = nn.functional.cross_entropy(model(x[start : start + 40]), y[start : start + 40])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    handle.remove()

    print(f"averaged over {int(average.n_averaged)} steps")
    with torch.no_grad():
        for name, network in (("model", model), ("average", average)):
            accuracy = (network(x).argmax(dim=1) == y).float().mean().item()
            print(f"{name} accuracy {accuracy:.2f}")
    copy = Model()
    copy.load_state_dict(average.module.state_dict())
    print(f"copy of the average agrees: {torch.equal(copy(x), average(x))}")


if __name__ == "__main__":
    main()
