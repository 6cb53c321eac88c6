"""Memory that steps share."""

import torch

from apical.train.stack.activations import BufferPool


def test_a_name_and_a_shape_are_a_tensor_that_stays():
    pool = BufferPool()
    buffer = pool("forward", (3, 4), torch.empty(0, dtype=torch.float64))
    assert buffer.shape == (3, 4)
    assert buffer.dtype == torch.float64
    assert pool("forward", (3, 4), buffer) is buffer
    assert pool("backward", (3, 4), buffer).data_ptr() != buffer.data_ptr()


def test_other_shapes_of_a_name_share_its_memory():
    pool = BufferPool()
    large = pool("forward", (2, 3, 4), torch.empty(0))
    flat, small = pool("forward", (6, 4), large), pool("forward", (2, 5), large)
    assert large.data_ptr() == flat.data_ptr() == small.data_ptr()


def test_memory_that_is_too_small_is_replaced_with_all_that_lay_in_it():
    pool = BufferPool()
    small = pool("forward", (2, 2), torch.empty(0))
    large = pool("forward", (20, 20), small)
    assert pool("forward", (2, 2), small).data_ptr() == large.data_ptr() != small.data_ptr()
