"""Bi-encoder retrieval with BERT: attribute the match score to pooled features of both sides."""
import torch
from transformers import BertConfig, BertModel

torch.manual_seed(26)
torch.set_num_threads(1)


class BiEncoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        cfg = BertConfig(vocab_size=80, hidden_size=24, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, max_position_embeddings=32,
                         hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.encoder = BertModel(cfg)

    def encode(self, ids):
        return self.encoder(input_ids=ids).pooler_output

    def forward(self, query, document):
        return (self.encode(query) * self.encode(document)).sum(-1)


class InputTimesGradient:
    """activation * gradient at the pooler, for every text that goes through the encoder."""

    def __init__(self, pooler):
        self.parts = []
        self.activations = []
        self.handles = [
            pooler.register_forward_hook(self._forward),
            pooler.register_full_backward_hook(self._backward),
        ]

    def _forward(self, module, args, output):
        self.activations.append(output.detach())

    def _backward(self, module, grad_input, grad_output):
        self.parts.append(self.activations.pop() * grad_output[0])

    def close(self):
        for h in self.handles:
            h.remove()


def main():
    model = BiEncoder()
    query = torch.randint(5, 80, (3, 6))
    document = torch.randint(5, 80, (3, 14))

    explain = InputTimesGradient(model.encoder.pooler)
    score = model(query, document)
    score.sum().backward()
    explain.close()

    # the document went through the encoder last, so its gradient comes out first
    by_side = {"document": explain.parts[0], "query": explain.parts[1]}
    for i in range(3):
        print(f"pair {i}: score {score[i].item():+.4f}")
        for side in ("query", "document"):
            attr = by_side[side][i]
            top = attr.abs().topk(3).indices.tolist()
            print(f"   {side:<9} attributions sum to {attr.sum().item():+.4f}, strongest features {top}")
    # the score is linear in either side, so the attributions must add up to it
    gaps = {s: (by_side[s].sum(-1) - score.detach()).abs().max().item() for s in by_side}
    print("completeness gap:", {s: round(g, 4) for s, g in gaps.items()})


if __name__ == "__main__":
    main()
