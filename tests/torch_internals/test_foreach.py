"""Check the private operations on lists of tensors. The test fails when torch changes their behaviour."""

from __future__ import annotations

import torch

from tenterhook import torch_internals as private


def test_lists_of_tensors_are_measured_cleared_and_copied_in_one_call():
    tensors = [torch.tensor([3.0, 4.0]), torch.tensor([[1.0]]).double(), torch.zeros(0)]
    norms = private.foreach_norm(tensors)
    assert [n.tolist() for n in norms] == [5.0, 1.0, 0.0]
    assert [(n.dtype, n.shape) for n in norms] == [(t.dtype, ()) for t in tensors]
    assert private.foreach_norm([torch.tensor([torch.inf])])[0].isinf()
    into = [torch.ones(2), torch.ones(1, 1)]
    before = [(one.data_ptr(), one._version) for one in into]
    private.foreach_copy_(into, [torch.tensor([5.0, 6.0]).bfloat16(), torch.tensor([[7.0]]).double()])
    assert [one.tolist() for one in into] == [[5.0, 6.0], [[7.0]]]
    private.foreach_zero_(into)
    assert [one.tolist() for one in into] == [[0.0, 0.0], [[0.0]]]
    assert [(one.data_ptr(), one._version - 2) for one in into] == before
    for alias in (private.foreach_norm, private.foreach_zero_, private.foreach_copy_):
        assert not hasattr(alias, "__code__"), "a call must not enter a Python frame"
