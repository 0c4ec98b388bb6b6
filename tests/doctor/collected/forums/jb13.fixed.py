"""Answer prompts with generate() and keep a representation of each prompt for a linear probe."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(12)
torch.set_num_threads(1)


def build_model():
    config = GPT2Config(
        vocab_size=90,
        n_positions=64,
        n_embd=32,
        n_layer=3,
        n_head=4,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


class PromptRecorder:
    """Hidden states of one block, averaged over the tokens of the prompt."""

    def __init__(self, model, layer):
        self.hidden = {}
        self.layer = layer
        self.handle = model.transformer.h[layer].register_forward_hook(self.save)

    def save(self, module, inputs, output):
        hidden = output[0] if isinstance(output, tuple) else output
        self.hidden.setdefault(self.layer, hidden.detach())

    def reset(self):
        self.hidden.clear()

    def representation(self):
        states = self.hidden[self.layer]
        return states.mean(dim=1).squeeze(0), states.shape[1]

    def remove(self):
        self.handle.remove()


def make_prompts(count=6):
    prompts = []
    for i in range(count):
        length = 8 + 2 * i
        prompts.append(torch.randint(1, 90, (1, length)))
    return prompts


@torch.no_grad()
def main():
    model = build_model()
    recorder = PromptRecorder(model, layer=1)
    prompts = make_prompts()

    bank = []
    for index, prompt in enumerate(prompts):
        recorder.reset()
        reply = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=6,
            min_new_tokens=6,
            do_sample=False,
        )
        vector, tokens = recorder.representation()
        bank.append(vector)
        answer = reply[0, prompt.shape[1]:].tolist()
        print(f"prompt {index}: length {prompt.shape[1]:2d}  averaged tokens {tokens:2d}  "
              f"norm {vector.norm().item():.3f}  answer {answer}")
    recorder.remove()

    bank = torch.nn.functional.normalize(torch.stack(bank), dim=-1)
    similarity = bank @ bank.T
    off_diagonal = similarity[~torch.eye(len(bank), dtype=torch.bool)]
    print(f"mean cosine between prompts {off_diagonal.mean().item():.3f}")


if __name__ == "__main__":
    main()
