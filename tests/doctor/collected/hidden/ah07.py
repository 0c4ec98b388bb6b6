"""Call census of a whole pipeline (teacher and student) with a global forward hook."""
from collections import Counter
import torch
from torch.nn.modules.module import register_module_forward_hook
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

torch.manual_seed(46)
torch.set_num_threads(1)


class Census:
    """Counts every module call in the process, whatever model it belongs to."""

    def __init__(self):
        self.by_type = Counter()
        self.elements = Counter()

    def _count(self, module, args, output):
        kind = type(module).__name__
        self.by_type[kind] += 1
        if torch.is_tensor(output):
            self.elements[kind] += output.numel()

    def __enter__(self):
        self.handle = register_module_forward_hook(self._count)
        return self

    def __exit__(self, *exc):
        self.handle.remove()


class Pipeline(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = BertModel(BertConfig(
            vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
            num_attention_heads=4, max_position_embeddings=32))
        self.student = GPT2Model(GPT2Config(
            vocab_size=60, n_positions=32, n_embd=32, n_layer=1, n_head=4, bos_token_id=0, eos_token_id=0))

    def forward(self, ids):
        with torch.no_grad():
            target = self.teacher(input_ids=ids).last_hidden_state
        guess = self.student(input_ids=ids).last_hidden_state
        return (guess - target).pow(2).mean()


def main():
    pipe = Pipeline().eval()
    ids = torch.randint(1, 60, (4, 10))
    with Census() as census:
        loss = pipe(ids)
    print(f"distillation loss {loss.item():.4f}")
    # both models are meant to be in the census
    for kind, n in sorted(census.by_type.items()):
        if kind in ("Linear", "Conv1D", "LayerNorm", "Embedding", "BertLayer", "GPT2Block"):
            print(f"{kind:<10} {n:3d} calls, {census.elements[kind]} output elements")
    before = sum(census.by_type.values())
    pipe(ids)
    print("calls counted after the census was closed:", sum(census.by_type.values()) - before)


main()
