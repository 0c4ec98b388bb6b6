"""Follow how a Llama commits to its next token over the layers (logit lens) while it generates."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 90
PROMPT = 7
NEW_TOKENS = 5


def build_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        initializer_range=0.15,
    )
    return LlamaForCausalLM(config).eval()


class LogitLens:
    """The first pass of generate sees the whole prompt, each later one a single token; only the last position counts."""

    def __init__(self, model):
        self.model = model
        self.steps = [[] for _ in model.model.layers]
        self.handles = []

    def __enter__(self):
        for i, layer in enumerate(self.model.model.layers):
            handle = layer.register_forward_hook(lambda module, args, output, i=i: self.collect(i, output))
            self.handles.append(handle)
        return self

    def __exit__(self, *exc):
        while self.handles:
            self.handles.pop().remove()

    def collect(self, i, hidden):
        self.steps[i].append(hidden[:, -1].detach().clone())

    @torch.no_grad()
    def tokens(self, i):
        hidden = torch.stack(self.steps[i], dim=1)
        return self.model.lm_head(self.model.model.norm(hidden)).argmax(dim=-1)


def main():
    model = build_model()
    prompts = torch.randint(1, VOCAB, (3, PROMPT), generator=torch.Generator().manual_seed(3))
    with LogitLens(model) as lens:
        output = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
        )
    generated = output[:, PROMPT:]
    print(f"generated {tuple(generated.shape)}: {generated[0].tolist()}")
    for i in range(len(lens.steps)):
        tokens = lens.tokens(i)
        agreement = (tokens == generated).float().mean()
        print(f"layer {i}: {tokens.shape[1]} steps, agreement with the output {agreement:.2f}")


if __name__ == "__main__":
    main()
