"""Self-distillation with a moving-average copy: hook objects are copied along with the model."""
import copy
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(51)
torch.set_num_threads(1)


class Keeper:
    """A callable object: deepcopy gives the copied model a keeper of its own."""

    def __init__(self):
        self.value = None

    def __call__(self, module, args, output):
        self.value = output


def keeper_of(model):
    (keeper,) = [h for h in model.transformer.h[0].mlp._forward_hooks.values() if isinstance(h, Keeper)]
    return keeper


@torch.no_grad()
def update_average(average, model, decay):
    for a, p in zip(average.parameters(), model.parameters()):
        a.lerp_(p, 1.0 - decay)


def main():
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=50, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=0,
        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).train()
    model.transformer.h[0].mlp.register_forward_hook(Keeper())

    average = copy.deepcopy(model).eval()
    average.requires_grad_(False)
    student, teacher = keeper_of(model), keeper_of(average)
    print("two separate keepers:", student is not teacher)

    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(12):
        ids = (torch.arange(6)[:, None] * 7 + torch.arange(10)[None] + step) % 50
        lm = model(input_ids=ids, labels=ids).loss
        with torch.no_grad():
            average(input_ids=ids)
        # the student's value still carries its graph, the teacher's has none
        hint = (student.value - teacher.value).pow(2).mean()
        opt.zero_grad()
        (lm + 10.0 * hint).backward()
        opt.step()
        update_average(average, model, decay=0.9)
        if step % 4 == 0:
            print(f"step {step:2d}: lm {lm.item():.4f} hint {hint.item():.6f} "
                  f"graph {student.value.requires_grad}/{teacher.value.requires_grad}")


if __name__ == "__main__":
    main()
