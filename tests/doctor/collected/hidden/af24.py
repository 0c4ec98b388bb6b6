"""Steer only the answer of a GPT-2, not the question: positions behind the prompt get a push."""
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(23)
torch.set_num_threads(1)


def make_model():
    cfg = GPT2Config(vocab_size=90, n_positions=64, n_embd=32, n_layer=3, n_head=4,
                     bos_token_id=0, eos_token_id=None, initializer_range=0.2)
    return GPT2LMHeadModel(cfg).eval()


@torch.no_grad()
def contrast_direction(model, layer, positive, negative):
    """Difference of mean hidden states between two sets of examples."""
    means = []
    for group in (positive, negative):
        hidden = model(input_ids=group, output_hidden_states=True).hidden_states[layer + 1]
        means.append(hidden[:, -1].mean(0))
    return F.normalize(means[0] - means[1], dim=0)


class AnswerSteering:
    def __init__(self, direction, strength):
        self.push = strength * direction
        self.prompt_length = 0
        self.steps = 0

    def __call__(self, module, args, output):
        steered = output.clone()
        # everything before prompt_length is the question and stays as it is
        steered[:, self.prompt_length:] += self.push
        self.steps += 1
        return steered


def answer(model, ids, n=12):
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n,
                             do_sample=False, pad_token_id=0)
    return out[:, ids.shape[1]:]


def main():
    model, layer = make_model(), 1
    positive = torch.randint(1, 45, (12, 8))
    negative = torch.randint(45, 90, (12, 8))
    direction = contrast_direction(model, layer, positive, negative)
    questions = [torch.randint(1, 90, (1, 6 + i)) for i in range(4)]

    steer = AnswerSteering(direction, strength=8.0)
    total = changed = 0
    for i, q in enumerate(questions):
        plain = answer(model, q)
        steer.prompt_length = q.shape[1]
        handle = model.transformer.h[layer].register_forward_hook(steer)
        pushed = answer(model, q)
        handle.remove()
        diff = int((plain != pushed).sum())
        total += plain.numel()
        changed += diff
        print(f"question {i}: {diff} of {plain.numel()} answer tokens changed; {pushed[0, :6].tolist()} ...")
    print(f"hook ran {steer.steps} times, answer tokens changed: {changed} of {total}")


if __name__ == "__main__":
    main()
