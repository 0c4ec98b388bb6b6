"""A steering notebook, exported as a script: every cell is a function, run in the order of the session."""
import torch
from torch import nn

torch.set_num_threads(1)


# In [1]: the model
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


# In [2]: the direction "formal - casual", from two sets of tokens
def cell_2():
    global direction
    with torch.no_grad():
        formal = model.embed(torch.arange(0, 10)).mean(dim=0)
        casual = model.embed(torch.arange(10, 20)).mean(dim=0)
    direction = nn.functional.normalize(formal - casual, dim=0)


# In [3]: try a strength; change the number and run the cell again
def cell_3(strength):
    def steer(module, args, out):
        return out + strength * direction

    global handle
    handle = model.mid.register_forward_hook(steer)
    with torch.no_grad():
        hidden = model.mid(model.embed(prompt))
        token = model(prompt)[0, -1].argmax().item()
    shift = ((hidden - baseline) @ direction).mean().item()
    print(f"strength {strength:5.1f}: shift along the direction {shift:6.2f}, next token {token}")


# In [4]: done, compare with the unsteered model
def cell_4():
    handle.remove()
    with torch.no_grad():
        hidden = model.mid(model.embed(prompt))
    shift = ((hidden - baseline) @ direction).mean().item()
    print(f"without steering: shift along the direction {shift:6.2f}")


if __name__ == "__main__":
    cell_1()
    cell_2()
    for s in (2.0, 4.0, 8.0):     # the user ran the cell three times
        cell_3(s)
    cell_4()
