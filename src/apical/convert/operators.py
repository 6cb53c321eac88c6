"""What a forward computes that is neither linear nor an activation that is known: the last look at every operator.

The idea. All other modules recognise activations; whatever they do not recognise would stay without a word. This one
asks the opposite: it has a list of what is *no* activation (layers, sums, norms, pools, softmax, views, losses), and
every other operator on data is unexplained, unless it is a part of an activation that is listed already. The data are
numbers, masks of numbers (`h > 0`), places of such (`nonzero`), or whole numbers such as token ids and all that is
computed from them. A mask or place decides about numbers where it meets them. Functions of which statistics are made
(a root, a square, an exponential) are no activations where they end in one: in a norm, a softmax or a penalty.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

COPIES = (
    "clone", "to_copy", "detach", "alias", "contiguous", "to", "type", "type_as", "float", "double", "half", "bfloat16",
    "lift_fresh", "copy",
)  # fmt: skip
LINEAR = {
    *COPIES, "add", "sub", "rsub", "subtract", "neg", "mul", "multiply", "div", "divide", "positive", "true_divide",
}  # fmt: skip


class Data(IntEnum):
    """What a value is of the inputs of a model."""

    WHOLE = 0  # whole numbers that are inputs, or computed from such without a weight
    PLACES = 1
    MASK = 2
    NUMBERS = 3


_MOVING = {
    "alias", "alias_copy", "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors",
    "broadcast_to", "cat", "channel_shuffle", "chunk", "col2im", "column_stack", "concat", "concatenate", "conj",
    "constant_pad_nd", "diag", "diag_embed", "diagonal", "diagonal_copy", "dsplit", "dstack", "expand", "expand_as",
    "flatten", "flip", "fliplr", "flipud", "fold", "gather", "getitem", "hsplit", "hstack", "im2col", "index",
    "index_copy", "index_select", "masked_select", "meshgrid", "moveaxis", "movedim", "narrow",
    "native_channel_shuffle", "pad", "pad_sequence", "pack_padded_sequence", "pad_packed_sequence", "permute",
    "pixel_shuffle", "pixel_unshuffle", "ravel", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "repeat",
    "repeat_interleave",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "reshape", "reshape_as", "resize", "resolve_conj",
    "resolve_neg", "roll", "rot90", "row_stack", "scatter", "select", "select_copy", "select_scatter", "set",
    "slice", "slice_copy", "slice_scatter", "split", "split_with_sizes", "squeeze", "stack", "swapaxes", "swapdims",
    "t", "take", "take_along_dim", "tensor_split", "tile", "transpose", "tril", "triu", "unbind", "unflatten", "unfold",
    "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "unsafe_view", "unsqueeze", "view", "view_as",
    "view_as_complex", "view_as_real", "view_copy", "vsplit", "vstack", "real", "imag", "H", "T", "mT", "mH", "data",
    "adjoint", "as_strided_scatter", "cartesian_prod", "coalesce", "combinations", "diagflat", "diagonal_scatter",
    "fill_diagonal", "resize_as", "sparse_mask", "to_padded_tensor", "values", "indices",
    "reshape_alias", "pin_memory", "share_memory", "numpy", "item", "tolist",
}  # fmt: skip
_REDUCTIONS = {
    "sum", "mean", "nansum", "nanmean", "std", "var", "std_mean", "var_mean", "amax", "amin", "aminmax", "max", "min",
    "prod", "norm", "logsumexp", "linalg_vector_norm", "linalg_norm", "linalg_matrix_norm", "vector_norm", "median",
    "nanmedian", "cumsum", "dist", "trace", "cosine_similarity", "pairwise_distance", "cdist", "pdist",
    "all", "any", "count_nonzero", "dot", "vdot", "inner", "cross", "linalg_cross",
    "frobenius_norm", "nuclear_norm", "norm_except_dim", "quantile", "nanquantile", "sum_to_size", "trapezoid", "trapz",
    *(f"{how}avg_pool{n}d" for how in ("", "adaptive_") for n in (1, 2, 3)),
}  # fmt: skip
_CHOOSING = {
    "argmax", "argmin", "argsort", "topk", "sort", "msort", "kthvalue", "mode", "max", "min", "cummax", "cummin", "nms",
    "multinomial", "unique", "unique2", "unique_dim", "unique_consecutive", "median", "nanmedian", "aminmax",
    *(f"{how}max_pool{n}d{end}" for how in ("", "adaptive_", "fractional_") for n in (1, 2, 3)
      for end in ("", "_with_indices")),
}  # fmt: skip
"""What compares numbers with one another: it takes the largest, or says which that is."""

_COMPARING_ALL = {"amax", "amin", "logsumexp", "softmax", "log_softmax", "safe_softmax", "softmin"}
_JOINING = {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"}
_LAYERS = {
    "module", "data_parallel", "get_cached_parametrization",
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bilinear", "bmm", "chain_matmul", "einsum", "ger", "kron", "linear",
    "matmul", "mm", "multi_dot", "mv", "outer", "tensordot", "trilinear", "conv1d", "conv2d", "conv3d", "convolution",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution_overrideable", "mkldnn_convolution",
    "mkldnn_linear", "thnn_conv2d", "slow_conv3d", "conv_depthwise2d", "slow_conv_dilated2d", "slow_conv_transpose2d",
    "cudnn_convolution", "cudnn_convolution_transpose", "miopen_convolution", "mps_convolution", "conv_tbc",
    "deform_conv2d", "int_mm", "scaled_mm", "sparse_mm", "spmm", "embedding", "embedding_bag", "grouped_mm",
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm", "fused_rms_norm", "local_response_norm",
    "native_batch_norm", "native_group_norm", "native_layer_norm", "cudnn_batch_norm", "miopen_batch_norm",
    "batch_norm_impl_index", "native_batch_norm_legit", "native_batch_norm_legit_no_training",
    "batch_norm_with_update", "batch_norm_no_update", "normalize", "renorm",
    "softmax", "log_softmax", "safe_softmax", "masked_softmax", "softmin", "gumbel_softmax", "logcumsumexp",
    "scaled_dot_product_attention", "scaled_dot_product_attention_math", "multi_head_attention_forward",
    "native_multi_head_attention", "transformer_encoder_layer_fwd", "flex_attention",
    *(f"scaled_dot_product_{how}" for how in (
        "flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention",
        "fused_attention_overrideable", "attention_math_for_mps")),
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
    "native_dropout", "fused_dropout", "nan_to_num",
    "interpolate", "grid_sample", "affine_grid", "affine_grid_generator", "grid_sampler", "grid_sampler_2d",
    "grid_sampler_3d", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "lp_pool1d", "lp_pool2d", "lp_pool3d",
    *(f"upsample_{how}" for how in (
        "nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d")),
    *(f"upsample_{how}_aa" for how in ("bilinear2d", "bicubic2d")),
    "upsample_nearest_exact1d", "upsample_nearest_exact2d", "upsample_nearest_exact3d", "upsample",
    "max_unpool1d", "max_unpool2d", "max_unpool3d", "fft_c2c", "fft_c2r", "fft_r2c", "stft", "istft", "diff", "cov",
    "corrcoef", "index_add", "index_reduce", "scatter_add", "scatter_reduce", "segment_reduce", "bincount", "histc",
    "batch_norm_elemt", "batch_norm_gather_stats_with_counts", "batch_norm_stats", "cholesky", "cholesky_inverse",
    "cholesky_solve", "det", "gradient", "inverse", "logdet", "lu", "lu_solve", "matrix_power", "mkldnn_max_pool2d",
    "pca_lowrank", "pinverse", "qr", "slogdet", "solve", "svd", "svd_lowrank", "triangular_solve", "upsample_bilinear",
    "upsample_nearest",
}  # fmt: skip
_LOSSES = {
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy",
    "cross_entropy_loss", "ctc_loss", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_margin_loss_forward",
    "multilabel_soft_margin_loss", "nll_loss", "nll_loss2d", "nll_loss2d_forward", "nll_loss_forward", "nll_loss_nd",
    "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "linear_cross_entropy",
}  # fmt: skip
_COPYING = {
    *LINEAR, *COPIES, "fill", "zero", "cpu", "cuda", "int", "long", "bool", "short", "requires_grad", "backward",
    "register_hook", "retain_grad", "to_dense", "to_sparse", "complex", "local_scalar_dense", "assert_async",
    "as_tensor", "asarray", "as_subclass", "byte", "char", "cdouble", "cfloat", "one_hot",
    "assert_scalar",
}  # fmt: skip
_SHAPED = {
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros",
    "new_ones", "new_empty", "new_full", "new_tensor", "new_empty_strided", "empty_strided", "size", "dim", "numel",
    "stride", "shape", "ndim", "dtype", "device", "is_floating_point", "sym_size", "is_cuda", "type", "element_size",
    "nelement", "ndimension", "is_contiguous", "is_complex", "storage_offset", "data_ptr", "get_device", "names",
    "len", "is_nonzero", "has_names", "requires_grad", "layout", "is_sparse", "is_nested",
    "is_same_size", "equal", "allclose", "is_tensor", "broadcast_shapes", "result_type",
    "arange", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn", "randperm", "range",
    "tensor", "tril_indices", "triu_indices", "zeros",
}  # fmt: skip
"""What looks at the shape of a value, and not at its numbers."""

_COMPARING = {
    "gt", "ge", "lt", "le", "eq", "ne", "greater", "greater_equal", "less", "less_equal", "not_equal", "isnan", "isinf",
    "isfinite", "isposinf", "isneginf", "isreal", "isclose", "signbit", "bucketize", "searchsorted", "logical_not",
    "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "and", "or",
    "xor", "invert", "isin", "nonzero", "argwhere", "nonzero_static",
}  # fmt: skip
_STATISTIC = {
    "abs", "absolute", "pow", "square", "float_power", "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log",
    "log1p", "log2", "log10", "clamp", "clamp_min", "clamp_max", "clip", "maximum", "minimum", "mul", "multiply", "div",
    "divide", "true_divide", "addcdiv", "addcmul",
}  # fmt: skip
"""What roots, squares and bounds statistics are made of; products and quotients of data are bent in some uses alone."""

_PRODUCTS = {"mul", "multiply", "div", "divide", "true_divide", "addcmul", "addcdiv", "lerp"}
_QUOTIENTS = {"div", "divide", "true_divide"}
_WHOLE_RESULTS = {"argmax", "argmin", "argsort", "long", "int", "short", "bool", "one_hot", "any", "all"}
_MASKED = {"where", "masked_fill", "masked_scatter", "index_put", "index_fill", "scatter", "put"}
_BOUNDS = {"clamp", "clamp_min", "clamp_max", "clip"}
_SOFTMAXES = {"softmax", "log_softmax", "safe_softmax"}
_WAVES = {"sin", "cos"}
_SELECTING = {"index", "masked_select", "getitem", "index_select", "gather", "take", "take_along_dim"}

HARMLESS = frozenset({*_MOVING, *_REDUCTIONS, *_CHOOSING, *_LAYERS, *_COPYING, *_SHAPED, *_MASKED} - _PRODUCTS)
"""Operators, functions and methods of tensors that apply no activation to data."""

WHOLE_CALLS = frozenset(_LAYERS)
"""Functions of torch that are harmless with all the operators that they consist of."""

LOSSES = frozenset(_LOSSES)
"""Functions that are harmless where their result is an output, or is averaged for one."""


def is_harmless(name: str) -> bool:
    """Whether a function of torch of this name applies no activation."""
    return name.removesuffix("_copy") in HARMLESS or name.startswith(("linalg_", "fft_"))


def is_about_shape(name: str) -> bool:
    """Whether a function, method or attribute of this name looks at no numbers."""
    return name in _SHAPED


@dataclass(eq=False)
class Operation:
    """One operator that ran, or one call in a graph: what it made of what."""

    name: str
    label: str
    data: Data
    inputs: list["Operation"] = field(default_factory=list)
    origin: Any = None
    floating: bool = True
    known: bool = False
    """Whether it is a part of an activation that is listed, or of what is harmless as a whole."""
    step: Any = None
    """The step of formula.py that it is."""
    users: list["Operation"] = field(default_factory=list)
    returned: bool = False
    """Whether it is an output of the model."""
    layered: bool = False
    """Whether a weight decides about it."""
    statistic: bool = False
    """Whether it was computed from sums, means, ... of numbers alone."""
    boolean: bool = False
    """Whether it says yes or no instead of a number."""
    compared: "Operation | None" = None
    """The operator that made the mask which this value holds."""
    joined: bool = False
    """Whether constants stand beside numbers in it: the largest of a number and 0 is a ReLU."""
    group: "Operation | None" = None
    """The first operator of the unexplained expression that this is a part of."""


def quotient(name: str, of_data: list[bool]) -> str:
    """The name of a quotient by what of it is data: one by a constant is a product, one of a constant a reciprocal."""
    if name not in _QUOTIENTS or len(of_data) < 2 or all(of_data):
        return name
    return "mul" if of_data[0] else "reciprocal"


def operation(
    name: str,
    label: str,
    inputs: list[Operation],
    origin: Any,
    *,
    floating: bool | None,
    weighted: bool,
    constants: bool,
) -> Operation:
    """What an operator makes; `weighted` says that a weight is among its arguments, `constants` that other tensors are.

    Where nothing ran, what is `floating` may not be known. An argument of a forward may be token ids there.
    """
    most = max((each.data for each in inputs), default=Data.WHOLE)
    layered = weighted or name in ("module", "embedding") or any(each.layered for each in inputs)
    layered = layered and name not in _SHAPED
    if floating is None:
        keeps = name in (*_MOVING, *_REDUCTIONS, *COPIES) and name != "float"
        floating = name not in (*_COMPARING, *_WHOLE_RESULTS) and (most == Data.NUMBERS or not keeps)
        most = most if floating or layered else Data.WHOLE
    if name in _SHAPED:
        data = Data.WHOLE
    elif floating:
        data = Data.NUMBERS if most or layered else Data.WHOLE
    elif most == Data.WHOLE or (name in _CHOOSING and most == Data.NUMBERS):
        data = Data.WHOLE
    else:
        data = Data.PLACES if name in ("nonzero", "nonzero_static", "argwhere") else Data.MASK
    made = Operation(name, label, data, inputs, origin, floating, layered=layered)
    numbers = [each for each in inputs if each.data == Data.NUMBERS]
    passes = name in _MOVING or name in _COPYING or name in _STATISTIC
    made.statistic = name in _REDUCTIONS or (passes and bool(numbers) and all(each.statistic for each in numbers))
    beside = name in _JOINING and (constants or any(each.data == Data.WHOLE for each in inputs))
    made.joined = bool(numbers) and (beside or (name in _MOVING and any(each.joined for each in inputs)))
    made.boolean = name in _COMPARING or (name in _MOVING and bool(inputs) and inputs[0].boolean)
    if data in (Data.MASK, Data.PLACES):
        made.compared = next((each.compared for each in inputs if each.compared is not None), made)
    for each in inputs:
        each.users.append(made)
    return made


def unexplained(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The first operator of each expression that is neither harmless nor known, in the order in which they ran."""
    ends: dict[tuple[int, bool], bool] = {}
    for each in operations:
        near = next((i.group for i in each.inputs if i.group and i.group.origin[0] is each.origin[0]), None)
        if each.known:
            continue
        if _is_bent(each) and not _is_for_statistics(each, ends):
            first = next((i.compared for i in each.inputs if i.compared is not None), each)
            each.group = near or first
            if near is None:
                yield first
        elif not each.floating or getattr(each.step, "base", None) is not None:
            each.group = near


def _is_bent(made: Operation) -> bool:
    """Whether an operator makes numbers of data by another rule than a linear one."""
    data = [each for each in made.inputs if each.data > Data.WHOLE]
    if not data or not made.floating or made.data == Data.WHOLE:
        return False
    deciding = [each for each in data if each.data < Data.NUMBERS]
    if deciding:
        return not (made.name in _SELECTING and all(each.boolean or each.data == Data.PLACES for each in deciding))
    if data[0].joined and (made.name in _CHOOSING or made.name in _COMPARING_ALL):
        return True
    if made.name in _QUOTIENTS:
        return len(data) > 1 and not data[1].statistic
    if made.name in _PRODUCTS:
        return len(data) > 1 and _is_square(made)
    if made.name in _WAVES and not made.layered:  # of a position or a time
        return not {user.name for user in data[0].users} >= _WAVES
    return not is_harmless(made.name)


def _is_square(made: Operation) -> bool:
    """Whether a product is one of a value with itself, by straight lines alone."""
    base = getattr(made.step, "base", None)
    return base is not None and all(each.name in {*LINEAR, *_PRODUCTS} for each in made.step.between(base))


def _is_for_statistics(made: Operation, known: dict[tuple[int, bool], bool]) -> bool:
    """Whether an operator is a part of a norm, a softmax or a penalty that is written out."""
    if made.name in _LOSSES:
        return _ends(made, True, known)
    return made.name in _STATISTIC and (_ends(made, False, known) or (made.name in _BOUNDS and _bounds_softmax(made)))


def _ends(made: Operation, reduced: bool, known: dict[tuple[int, bool], bool]) -> bool:
    """Whether a value goes into statistics alone: those that scale data, decide, or are an output."""
    key, reduced = (id(made), reduced), reduced or made.statistic
    if key not in known:
        known[key] = False
        uses = [_is_statistic_use(each, made, reduced, known) for each in made.users if each.floating]
        known[key] = all(uses) and (reduced or (bool(made.users) and not made.returned))
    return known[key]


def _is_statistic_use(user: Operation, made: Operation, reduced: bool, known: dict[tuple[int, bool], bool]) -> bool:
    others = [each for each in user.inputs if each is not made and each.data == Data.NUMBERS]
    scaled = [not each.statistic if made.statistic else _is_statistic_of(each, made) for each in others]
    if user.name in (*_PRODUCTS, "sub", "rsub") and any(scaled):
        return True
    if user.name in _REDUCTIONS:
        return _ends(user, True, known)
    passes = any(user.name in names for names in (LINEAR, _MOVING, _STATISTIC, _LOSSES))
    return passes and _ends(user, reduced, known)


def _bounds_softmax(made: Operation) -> bool:
    """Whether a value goes into a softmax alone, or is scaled before."""
    users = [each for each in made.users if each.floating]
    return bool(users) and all(
        each.name in _SOFTMAXES or (each.name in LINEAR and _bounds_softmax(each)) for each in users
    )


def _is_statistic_of(statistic: Operation, made: Operation) -> bool:
    """Whether a value is a statistic of another, as the sum in a softmax is."""
    waiting = [statistic] if statistic.statistic else []
    while waiting:
        each = waiting.pop()
        if each is made:
            return True
        waiting += each.inputs if each.statistic or each.name in LINEAR or each.name in _STATISTIC else []
    return False
