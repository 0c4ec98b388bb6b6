"""Mixtral with checkpointed layers and a home-made load-balancing term on the router."""
import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.set_num_threads(1)
EXPERTS = 4


def build():
    torch.manual_seed(16)
    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=60, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=EXPERTS,
        num_experts_per_tok=1, max_position_embeddings=32, use_cache=False,
        bos_token_id=1, eos_token_id=2, pad_token_id=0))
    with torch.no_grad():
        model.model.embed_tokens.weight += 0.02
        for layer in model.model.layers:
            layer.mlp.gate.weight[0] += 0.05     # expert 0 is the favourite at the start
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    return model.train()


class RouterTap:
    def __init__(self, model):
        self.logits = []
        for layer in model.model.layers:
            layer.mlp.gate.register_forward_hook(self._tap)

    def _tap(self, module, args, output):
        # (router logits, weights of the chosen experts, their indices)
        self.logits.append(output[0])

    def balance_loss(self):
        """Squared distance of the mean routing probability from uniform."""
        loss = 0.0
        for logits in self.logits:
            share = logits.float().softmax(-1).mean(0)
            loss = loss + ((share - 1.0 / EXPERTS) ** 2).sum() * EXPERTS
        return loss / len(self.logits)


def train(weight, steps=12):
    model = build()
    tap = RouterTap(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(4)
    trace = []
    for _ in range(steps):
        ids = torch.randint(3, 60, (6, 10), generator=gen)
        tap.logits.clear()
        lm = model(input_ids=ids, labels=ids).loss
        balance = tap.balance_loss()
        (lm + weight * balance).backward()
        opt.step()
        opt.zero_grad()
        trace.append(balance.item())
    gates = torch.stack([layer.mlp.gate.weight.detach() for layer in model.model.layers])
    return trace, lm.item(), gates


def main():
    results = {}
    for weight in (0.0, 1.0):
        trace, lm, gates = train(weight)
        results[weight] = gates
        print(f"balance weight {weight}: lm loss {lm:.4f}, imbalance {trace[0]:.4f} -> {trace[-1]:.4f}")
    gap = (results[1.0] - results[0.0]).norm() / results[0.0].norm()
    print(f"router weights of the two runs differ by {gap.item():.4f}")


if __name__ == "__main__":
    main()
