"""Two-stage fine-tuning of a BERT classifier: first the head alone, then everything."""
import torch
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(4)
torch.set_num_threads(1)


class BackboneGate:
    """Stops the gradient that leaves the head and enters the encoder while closed."""

    def __init__(self, backbone):
        self.closed = True
        self.handle = backbone.register_full_backward_pre_hook(self._gate)

    def _gate(self, module, grad_output):
        if self.closed:
            return tuple(None if g is None else torch.zeros_like(g) for g in grad_output)
        return None


def make_data(n=48, length=10):
    ids = torch.randint(5, 100, (n, length))
    labels = (ids[:, 1:4].float().mean(1) > 52).long()
    return ids, labels


def snapshot(module):
    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def run_epoch(model, opt, ids, labels, batch=16):
    total = 0.0
    for start in range(0, len(ids), batch):
        part = slice(start, start + batch)
        out = model(input_ids=ids[part], labels=labels[part])
        opt.zero_grad()
        out.loss.backward()
        opt.step()
        total += out.loss.item()
    return total / (len(ids) // batch)


def main():
    cfg = BertConfig(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                     num_attention_heads=4, max_position_embeddings=32, num_labels=2,
                     hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForSequenceClassification(cfg)
    model.train()
    ids, labels = make_data()
    opt = torch.optim.SGD(model.parameters(), lr=0.2)

    gate = BackboneGate(model.bert)
    for epoch in range(4):
        # the encoder joins in after two epochs of head-only training
        gate.closed = epoch < 2
        before_body, before_head = snapshot(model.bert), snapshot(model.classifier)
        loss = run_epoch(model, opt, ids, labels)
        body = (snapshot(model.bert) - before_body).norm().item()
        head = (snapshot(model.classifier) - before_head).norm().item()
        stage = "head only" if gate.closed else "full"
        print(f"epoch {epoch} [{stage:<9}] loss {loss:.4f}  head moved {head:.4f}  encoder moved {body:.4f}")
    gate.handle.remove()


main()
