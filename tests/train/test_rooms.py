"""Memory that steps share."""

import torch

from apical.train.stack.activations import Rooms


def test_a_name_and_a_shape_are_a_tensor_that_stays():
    rooms = Rooms()
    room = rooms("forward", (3, 4), torch.empty(0, dtype=torch.float64))
    assert room.shape == (3, 4)
    assert room.dtype == torch.float64
    assert rooms("forward", (3, 4), room) is room
    assert rooms("backward", (3, 4), room).data_ptr() != room.data_ptr()


def test_other_shapes_of_a_name_share_its_memory():
    rooms = Rooms()
    large = rooms("forward", (2, 3, 4), torch.empty(0))
    flat, small = rooms("forward", (6, 4), large), rooms("forward", (2, 5), large)
    assert large.data_ptr() == flat.data_ptr() == small.data_ptr()


def test_memory_that_is_too_small_is_replaced_with_all_that_lay_in_it():
    rooms = Rooms()
    small = rooms("forward", (2, 2), torch.empty(0))
    large = rooms("forward", (20, 20), small)
    assert rooms("forward", (2, 2), small).data_ptr() == large.data_ptr() != small.data_ptr()
