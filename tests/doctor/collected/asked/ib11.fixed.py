"""Generate an answer and keep the prompt's hidden states to compare prompts."""
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

PROMPT_LEN = 9
NEW_TOKENS = 6


def build_model():
    config = GPT2Config(
        vocab_size=120,
        n_positions=48,
        n_embd=32,
        n_layer=3,
        n_head=4,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


class PromptEncoder:
    """Runs generation and returns the mean hidden state of the prompt at one layer."""

    def __init__(self, model, layer):
        self.model = model
        self.layer = layer
        self.hidden = None

    def _keep_hidden(self, module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        if hidden.shape[1] > 1:
            self.hidden = hidden.detach()

    @torch.no_grad()
    def __call__(self, input_ids):
        block = self.model.transformer.h[self.layer]
        handle = block.register_forward_hook(self._keep_hidden)
        try:
            generated = self.model.generate(
                input_ids,
                attention_mask=torch.ones_like(input_ids),
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
            )
        finally:
            handle.remove()
        answer = generated[:, input_ids.shape[1] :]
        embedding = self.hidden.mean(dim=1)
        return answer, embedding, self.hidden.shape[1]


def make_prompts():
    """Two topics; prompts of one topic share most of their tokens."""
    generator = torch.Generator().manual_seed(4)
    topics = torch.randint(1, 120, (2, PROMPT_LEN), generator=generator)
    prompts = topics.repeat_interleave(3, dim=0)
    for row in prompts:
        place = torch.randint(0, PROMPT_LEN, (1,), generator=generator)
        row[place] = torch.randint(1, 120, (1,), generator=generator)
    return prompts


def main():
    model = build_model()
    encoder = PromptEncoder(model, layer=1)
    prompts = make_prompts()
    answers, embeddings, positions = encoder(prompts)
    print(f"{len(prompts)} prompts of {prompts.shape[1]} tokens, {answers.shape[1]} new tokens each")
    print(f"embedding averages over {positions} token positions")

    centered = embeddings - embeddings.mean(dim=0)
    similarity = F.cosine_similarity(centered[:, None], centered[None], dim=-1)
    same = torch.zeros(6, 6, dtype=torch.bool)
    same[:3, :3] = same[3:, 3:] = True
    off_diagonal = ~torch.eye(6, dtype=torch.bool)
    print(f"similarity within a topic  {similarity[same & off_diagonal].mean():+.3f}")
    print(f"similarity between topics  {similarity[~same].mean():+.3f}")


if __name__ == "__main__":
    main()
