"""Speaker-invariant features: the speaker branch is trained through a reversed gradient."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)
torch.set_num_threads(1)


class ReversedBranch(nn.Module):
    """Runs a head on its input and hands back the negated, scaled gradient."""

    def __init__(self, head):
        super().__init__()
        self.head = head
        self.strength = 0.0
        self.register_full_backward_hook(self.flip)

    @staticmethod
    def flip(branch, grad_input, grad_output):
        (grad,) = grad_input
        if grad is None:
            return None
        return (-branch.strength * grad,)

    def forward(self, features):
        return self.head(features)


class WordAndSpeaker(nn.Module):
    def __init__(self, inputs=12, hidden=32, words=4, speakers=5):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden))
        self.word_head = nn.Linear(hidden, words)
        self.speaker_branch = ReversedBranch(
            nn.Sequential(nn.Linear(hidden, 24), nn.ReLU(), nn.Linear(24, speakers))
        )

    def forward(self, x):
        features = self.encoder(x)
        return self.word_head(features), self.speaker_branch(features)


def make_utterances(count=400):
    word_codes = torch.randn(4, 12) * 1.5
    speaker_codes = torch.randn(5, 12)
    words = torch.randint(0, 4, (count,))
    speakers = torch.randint(0, 5, (count,))
    inputs = word_codes[words] + speaker_codes[speakers] + 0.5 * torch.randn(count, 12)
    return inputs, words, speakers


def train(model, inputs, words, speakers, epochs=10, batch_size=50):
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(epochs):
        model.speaker_branch.strength = min(1.0, epoch / 5)
        order = torch.randperm(len(inputs))
        for index in order.split(batch_size):
            optimizer.zero_grad()
            word_logits, speaker_logits = model(inputs[index])
            word_loss = F.cross_entropy(word_logits, words[index])
            speaker_loss = F.cross_entropy(speaker_logits, speakers[index])
            (word_loss + speaker_loss).backward()
            optimizer.step()
        if epoch % 3 == 0:
            print(f"epoch {epoch}: word loss {word_loss.item():.3f}  "
                  f"speaker loss {speaker_loss.item():.3f}")


def direction(model, inputs, speakers):
    """Inner product of the encoder's update direction with the true speaker gradient."""
    last = model.encoder[2].weight
    features = model.encoder(inputs)
    plain = F.cross_entropy(model.speaker_branch.head(features), speakers)
    plain_grad = torch.autograd.grad(plain, last)[0]
    reversed_loss = F.cross_entropy(model(inputs)[1], speakers)
    reversed_grad = torch.autograd.grad(reversed_loss, last)[0]
    return F.cosine_similarity(plain_grad.flatten(), reversed_grad.flatten(), dim=0).item()


def main():
    inputs, words, speakers = make_utterances()
    model = WordAndSpeaker()
    train(model, inputs, words, speakers)
    print(f"cosine of branch gradient and speaker gradient {direction(model, inputs, speakers):.3f}")
    model.eval()
    with torch.no_grad():
        word_logits, speaker_logits = model(inputs)
    print(f"word accuracy {(word_logits.argmax(1) == words).float().mean().item():.2f}")
    print(f"speaker accuracy {(speaker_logits.argmax(1) == speakers).float().mean().item():.2f}")


if __name__ == "__main__":
    main()
