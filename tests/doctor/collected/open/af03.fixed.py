"""Answer a few questions and keep a prompt vector of each for a nearest-neighbour index."""
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(2)
torch.set_num_threads(1)


class PromptIndexer:
    def __init__(self, model, layer):
        self.model = model
        self.state = {}
        block = model.transformer.h[layer]
        self.handle = block.register_forward_hook(self._remember)
        self.vectors, self.lengths = [], []

    def _remember(self, module, args, output):
        # hidden states of the whole prompt, one row per token
        self.state.setdefault("hidden", output.detach())

    @torch.no_grad()
    def answer(self, ids, new_tokens=6):
        self.state.clear()
        out = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens,
            do_sample=False, pad_token_id=0)
        hidden = self.state["hidden"]
        self.vectors.append(hidden.mean(dim=1))
        self.lengths.append(hidden.shape[1])
        return out[:, ids.shape[1]:]

    def nearest(self, i):
        bank = F.normalize(torch.cat(self.vectors), dim=-1)
        sim = bank @ bank[i]
        sim[i] = -2.0
        return int(sim.argmax()), sim.max().item()


def main():
    cfg = GPT2Config(vocab_size=80, n_positions=64, n_embd=32, n_layer=3, n_head=4,
                     bos_token_id=0, eos_token_id=None)
    model = GPT2LMHeadModel(cfg).eval()

    base = torch.randint(1, 80, (3, 9))
    questions = []
    for row in base:
        # every question comes with a light paraphrase (one token replaced)
        twin = row.clone()
        twin[3] = (twin[3] + 7) % 80
        questions += [row[None], twin[None]]

    index = PromptIndexer(model, layer=1)
    for q in questions:
        reply = index.answer(q)
        print("question", q[0, :4].tolist(), "... reply", reply[0].tolist())

    print("tokens behind each prompt vector:", index.lengths)
    hits = 0
    for i in range(len(questions)):
        j, sim = index.nearest(i)
        hits += int(j == i ^ 1)
        print(f"question {i} -> {j} (cosine {sim:.3f})")
    print(f"paraphrase found for {hits} of {len(questions)} questions")
    index.handle.remove()


main()
