"""Score generated answers with a linear probe on the hidden states that the model had while answering."""
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 150
PROMPT_LENGTH = 9
NEW_TOKENS = 7
LAYERS = (1, 2)


def build_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=40,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        initializer_range=0.1,
    )
    return LlamaForCausalLM(config).eval()


class HiddenStateRecorder:
    def __init__(self, model, layers):
        self.model = model
        self.layers = layers
        self.states = {}
        self.handles = []

    def make_hook(self, layer):
        def hook(module, args, output):
            self.states.setdefault(layer, []).append(output.detach())

        return hook

    def __enter__(self):
        for layer in self.layers:
            block = self.model.model.layers[layer]
            self.handles.append(block.register_forward_hook(self.make_hook(layer)))
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def get(self, layer):
        return torch.cat(self.states[layer], dim=1)


class TruthProbe(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.linear = nn.Linear(hidden_size, 1)

    def forward(self, states):
        return torch.sigmoid(self.linear(states)).squeeze(-1)


@torch.no_grad()
def answer(model, prompts):
    with HiddenStateRecorder(model, LAYERS) as recorder:
        tokens = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
        )
    return tokens, recorder


def main():
    model = build_model()
    probe = TruthProbe(model.config.hidden_size)
    prompts = torch.randint(1, VOCAB, (3, PROMPT_LENGTH), generator=torch.Generator().manual_seed(5))

    tokens, recorder = answer(model, prompts)
    print(f"sequence length {tokens.shape[1]} ({PROMPT_LENGTH} prompt + {NEW_TOKENS} new)")
    for layer in LAYERS:
        states = recorder.get(layer)
        with torch.no_grad():
            scores = probe(states)
        print(f"layer {layer}: {states.shape[1]} positions scored")
        for i, row in enumerate(scores):
            print(f"  answer {i}: mean {row.mean():.4f}, lowest {row.min():.4f}, highest {row.max():.4f}")


if __name__ == "__main__":
    main()
