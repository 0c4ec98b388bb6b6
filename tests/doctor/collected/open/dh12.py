"""A notebook session as a script; the steering cell may be run as often as one likes."""
import torch
from torch import nn

torch.set_num_threads(1)


# In [1]
def cell_1():
    global model, prompt, baseline
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("embed", nn.Embedding(50, 16))
    model.add_module("mid", nn.Linear(16, 16))
    model.add_module("head", nn.Linear(16, 50))
    model.eval()
    prompt = torch.tensor([[3, 14, 15, 9, 26]])
    with torch.no_grad():
        baseline = model.mid(model.embed(prompt))


# In [2]
def cell_2():
    global direction, strength
    with torch.no_grad():
        formal = model.embed(torch.arange(0, 10)).mean(dim=0)
        casual = model.embed(torch.arange(10, 20)).mean(dim=0)
    direction = nn.functional.normalize(formal - casual, dim=0)
    strength = 0.0


# In [3]: the hook looks up the strength when it runs, so it is registered only once per model
def cell_3():
    def steer(module, args, out):
        return out + strength * direction if strength else None

    old = getattr(model.mid, "_steering", None)
    if old is not None:
        old.remove()
    model.mid._steering = model.mid.register_forward_hook(steer)


# In [4]: change the number and run the cell again
def cell_4(value):
    global strength
    strength = value
    with torch.no_grad():
        hidden = model.mid(model.embed(prompt))
    shift = ((hidden - baseline) @ direction).mean().item()
    print(f"strength {strength:4.1f}: shift {shift:5.2f}, hooks {len(model.mid._forward_hooks)}")


if __name__ == "__main__":
    cell_1()
    cell_2()
    cell_3()
    for value in (2.0, 4.0):
        cell_4(value)
    cell_3()                 # run again by accident
    cell_4(4.0)
    cell_1()                 # a new model: the old one and its hook are gone
    cell_4(4.0)              # no hook yet, therefore no shift
    cell_3()
    cell_4(8.0)
    cell_4(0.0)              # switched off, the hook stays and returns nothing
