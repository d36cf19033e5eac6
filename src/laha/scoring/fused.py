"""Logits of all labels after every projection, in one fused kernel, with gradients (needs Triton)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

PRECISION = {torch.float32: "ieee"}  # float32 stays float32; half precision knows only one product
GLUON = "3.6."  # the version of Triton whose Gluon is known
WIDEST = 256  # features of a tile by descriptor
SMALLEST = 32  # features: one word of sign bits, and no less than a tensor core multiplies


def available(device: torch.device | str) -> bool:
    """Tell whether the kernels run here: on a CUDA device from Ampere on, or anywhere in Triton's interpreter."""
    if find_spec("triton") is None:
        return False
    from triton import knobs, language
    from triton.runtime.jit import JITFunction

    if knobs.runtime.interpret:
        return not isinstance(language.sum, JITFunction)  # TRITON_INTERPRET was there when Triton was imported
    device = torch.device(device)
    return device.type == "cuda" and torch.cuda.is_available() and torch.cuda.get_device_capability(device) >= (8, 0)


def fused_logits(
    K_S: Tensor,
    K_I: Tensor,
    V: Tensor,
    g: Tensor,
    lengths: Tensor,
    Q_S: Tensor,
    Q_I: Tensor,
    c: Tensor,
    b_f: Tensor,
    w_o: Tensor,
    b_o: Tensor,
) -> Tensor:
    """Return the logits (batch, k) in float32 of the labels whose queries are given.

    `K_S` (batch, n, d_a), `K_I`, `V` (batch, n, r) and the gates' columns `g` (batch, n, 2) are the projected words of
    documents of `lengths` (batch) words, at least one each; `Q_S` (k, d_a), `Q_I` (k, r) the labels' queries; `c` (2),
    `b_f`, `w_o` (r) and `b_o` (1) the constants behind the attention, or `w_o` (k, r) and `b_o` (k), each label's
    own. With A_S, A_I the softmax over words of `Q K`:

        α = σ(log σ(A_S g_0 + c_0) − log σ(A_I g_1 + c_1)),   logit = w_o · ReLU((α A_S + (1 − α) A_I) V + b_f) + b_o

    Products are taken in the type of `K_S`, sums in float32. Padding is never read.
    """
    size = max(SMALLEST, 1 << (max(K_S.shape[2], V.shape[2]) - 1).bit_length())
    # features of zeros add nothing to any product, and ReLU of nothing times nothing is nothing
    K_S, K_I, V, Q_S, Q_I, b_f, w_o = (widen(x, size) for x in (K_S, K_I, V, Q_S, Q_I, b_f, w_o))
    arguments = (K_S, K_I, V, g, lengths, Q_S, Q_I, c, b_f, w_o, b_o)
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in arguments)):
        return run_forward(*arguments)[0]
    logits: Tensor = FusedLogits.apply(*arguments)  # type: ignore[no-untyped-call]
    return logits


def widen(x: Tensor, size: int) -> Tensor:
    """Return x with zeros added to its last dimension up to `size`."""
    return x if x.shape[-1] == size else F.pad(x, (0, size - x.shape[-1]))


def bucket(count: int) -> int:
    """Round up to a power of two, so that the autotuner meets few different sizes.

    >>> [bucket(count) for count in (1, 500, 512, 29_947)]
    [1, 512, 512, 32768]
    """
    return 1 << max(0, count - 1).bit_length()


def programs(device: torch.device) -> int:
    """Return how many blocks of 128 rows the device works on at once."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Make the device the one that kernels are launched on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x in the type of the products, with features side by side; any other strides stay, so no copy."""
    x = x.to(dtype)
    return x if x.stride(-1) == 1 else x.contiguous()


def run_forward(
    K_S: Tensor,
    K_I: Tensor,
    V: Tensor,
    g: Tensor,
    lengths: Tensor,
    Q_S: Tensor,
    Q_I: Tensor,
    c: Tensor,
    b_f: Tensor,
    w_o: Tensor,
    b_o: Tensor,
    training: bool = False,
    hidden_kept: bool = False,
) -> tuple[Tensor, list[Tensor]]:
    """Return the logits, and for `training` what the backward kernels need (ReLU(u) among it if `hidden_kept`)."""
    from laha.scoring.fused_forward import DESCRIBED_WORDS, SUMS, forward_kernel, prepare_kernel

    dtype, device = K_S.dtype, K_S.device
    K_S, K_I, V = (rows(x, dtype) for x in (K_S, K_I, V))
    Q_S, Q_I = (x.to(dtype).contiguous() for x in (Q_S, Q_I))
    g, c, b_f, b_o = (rows(x, torch.float32) for x in (g, c, b_f, b_o))
    w_o = w_o.float().contiguous()
    lengths = lengths.to(device=device, dtype=torch.int32)
    (documents, n, size), k = V.shape, len(Q_S)
    logits = torch.empty((documents, k), device=device)
    kept = k if training else 0
    statistics = torch.empty((6, documents, kept), device=device)  # lse_S, lse_I, x, y, e_S, e_I
    signs = torch.empty((documents, kept, size // 32), dtype=torch.int32, device=device)
    hidden = torch.empty((documents, k if hidden_kept else 0, size), dtype=dtype, device=device)  # ReLU(u)

    described = describable(K_S) and describable(K_I)
    specialized = described and not training and hopper(V)
    clean = torch.empty(V.shape, dtype=dtype, device=device) if described else V
    G = torch.empty((documents, n, SUMS.value), dtype=dtype, device=device)
    at_once = programs(device)
    aside = torch.empty((at_once * 128, size), dtype=dtype, device=device)
    tiles = documents * -(-k // 128)
    unsure = torch.zeros(1 + tiles if specialized else 0, dtype=torch.int32, device=device)

    def grid(block: dict[str, Any]) -> tuple[int]:
        slots = at_once * 128 // block["BLOCK_ROWS"]
        return (min(slots, documents * -(-k // block["BLOCK_ROWS"])),)

    constants = (c, b_f, w_o, b_o)
    with on(device):
        prepare_kernel[(-(-n // 32), documents)](
            *(V, g, lengths, clean, G, n, *V.stride()[:2], *g.stride()[:2]), R=size, COPY=described, BLOCK_COLUMNS=32
        )
        if specialized:
            from laha.scoring.fused_hopper import launch

            launch(Q_S, Q_I, (K_S, K_I, clean, G), lengths, *constants, logits, aside, unsure, at_once)
        words: list[Any] = [K_S, K_I, clean, G]
        if described:
            words = [describe(x, DESCRIBED_WORDS) for x in words]
        forward_kernel[grid](
            *(Q_S, Q_I, *words, lengths, *constants, logits, statistics, signs, hidden, aside, unsure),
            *(documents, n, k, statistics.stride(0), *K_S.stride()[:2], *K_I.stride()[:2], *clean.stride()[:2]),
            *(bucket(k), bucket(n)),
            R=size,
            TRAINING=training,
            OWN=w_o.dim() == 2,
            HIDDEN=hidden_kept,
            DESCRIBED=described,
            SECOND=specialized,
            PRECISION=PRECISION.get(dtype, "tf32"),
        )
    return logits, [K_S, K_I, V, g, lengths, Q_S, Q_I, c, b_f, w_o, statistics, signs, hidden]


@cache
def has(module: str) -> bool:
    """Tell whether the installed Triton has a module."""
    return find_spec(module) is not None


def describable(x: Tensor) -> bool:
    """Tell whether tiles of x may be read by tensor descriptors: on Hopper and its heirs, in half precision, aligned.

    The interpreter, which has no tiles to fit, does it in any precision.
    """
    if not has("triton.tools.tensor_descriptor"):
        return False
    fit = not x.is_cuda or (torch.cuda.get_device_capability(x.device)[0] in (9, 10) and x.element_size() == 2)
    aligned = x.data_ptr() % 16 == 0 and x.stride(1) * x.element_size() % 16 == 0
    flat = len(x) == 1 or x.stride(0) == x.shape[1] * x.stride(1)  # documents behind each other, as rows of one matrix
    return fit and aligned and flat and x.shape[2] <= WIDEST


def hopper(V: Tensor) -> bool:
    """Tell whether the kernel made for Hopper runs: on that chip, in bfloat16, at the paper's size, by one Triton.

    Gluon is an experiment of Triton's and changes from version to version.
    """
    if V.dtype != torch.bfloat16 or V.shape[2] != WIDEST or not V.is_cuda:
        return False
    return torch.cuda.get_device_capability(V.device) == (9, 0) and gluon_known()


@cache
def gluon_known() -> bool:
    """Tell whether the installed Triton is one whose Gluon the kernel for Hopper was made for."""
    import triton

    if not triton.__version__.startswith(GLUON):
        return False
    try:
        import laha.scoring.fused_hopper  # noqa: F401
    except ImportError:
        return False
    return True


def describe(x: Tensor, rows: int) -> Any:
    """Return the descriptor of tiles of so many words of x (batch, n, features), its documents behind each other."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(x.flatten(0, 1), [rows, x.shape[2]])


class FusedLogits(torch.autograd.Function):
    """The kernels as one differentiable function; all features already as wide as each other."""

    @staticmethod
    def forward(
        ctx: Any,
        K_S: Tensor,
        K_I: Tensor,
        V: Tensor,
        g: Tensor,
        lengths: Tensor,
        Q_S: Tensor,
        Q_I: Tensor,
        c: Tensor,
        b_f: Tensor,
        w_o: Tensor,
        b_o: Tensor,
    ) -> Tensor:
        """Run the forward kernel; keep what the backward kernels need."""
        inputs = (K_S, K_I, V, g, Q_S, Q_I, c, b_f, w_o, b_o)
        ctx.dtypes = [x.dtype for x in inputs]
        logits, kept = run_forward(
            *(K_S, K_I, V, g, lengths, Q_S, Q_I, c, b_f, w_o, b_o),
            training=True,
            hidden_kept=w_o.dim() == 2 and ctx.needs_input_grad[9],
        )
        ctx.save_for_backward(*kept)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor) -> Any:
        """Run the backward kernels that the asked-for gradients need."""
        from laha.scoring.fused_backward import key_gradient_kernel, query_gradient_kernel, value_gradient_kernel

        K_S, K_I, V, g, lengths, Q_S, Q_I, c, b_f, w_o, statistics, signs, hidden = ctx.saved_tensors
        wanted = dict(
            zip(
                ("K_S", "K_I", "V", "g", "lengths", "Q_S", "Q_I", "c", "b_f", "w_o", "b_o"),
                ctx.needs_input_grad,
                strict=True,
            )
        )
        dtype, device = K_S.dtype, K_S.device
        documents, n, size = V.shape
        k = len(Q_S)
        delta = delta.float()
        lse = statistics[:2]
        weights, slopes, offsets = label_coefficients(delta, statistics, c)  # (2, batch, k) each
        own = w_o.dim() == 2
        V_w = V if own else (V * w_o).to(dtype).contiguous()
        W_o = w_o.to(dtype)
        sizes = (bucket(k), bucket(n))
        meta = {"R": size, "OWN": own, "PRECISION": PRECISION.get(dtype, "tf32")}

        def label_blocks(block: dict[str, Any]) -> tuple[int]:
            return (-(-k // block["BLOCK_ROWS"]),)

        def word_blocks(block: dict[str, Any]) -> tuple[int, int]:
            return (-(-n // block["BLOCK_ROWS"]), documents)

        dg = torch.zeros((documents, n, 2), device=device)
        dQ: list[Tensor | None] = [None, None]
        dK: list[Tensor | None] = [None, None]
        with on(device):
            for side, (Q, K, query, key) in enumerate(((Q_S, K_S, "Q_S", "K_S"), (Q_I, K_I, "Q_I", "K_I"))):
                strides = (*K.stride()[:2], *V_w.stride()[:2], *g.stride()[:2])
                of_labels = (signs, lse[side], weights[side], slopes[side], offsets[side])
                if wanted[query]:
                    dQ[side] = dQ_side = torch.empty(Q.shape, device=device)
                    query_gradient_kernel[label_blocks](
                        *(Q, K, V_w, W_o, g[..., side], lengths, *of_labels, dQ_side, documents, k, *strides, *sizes),
                        **meta,
                    )
                if wanted[key] or wanted["g"]:
                    dK[side] = dK_side = torch.zeros((documents, n, size), device=device)
                    key_gradient_kernel[word_blocks](
                        *(Q, K, V_w, W_o, lengths, *of_labels, g[..., side], dK_side, dg[..., side], n, k, *strides),
                        *sizes,
                        **meta,
                    )
            dV = None
            if wanted["V"] or wanted["b_f"] or (wanted["w_o"] and not own):
                dV = torch.zeros((documents, n, size), device=device)  # still without a shared w_o
                strides = (*K_S.stride()[:2], *K_I.stride()[:2])
                value_gradient_kernel[word_blocks](
                    *(Q_S, Q_I, K_S, K_I, W_o, lengths, signs, lse, weights, dV, n, k, lse.stride(0), *strides, *sizes),
                    **meta,
                )
        db_f = dw_o = None
        db_o = delta.sum(0) if own else delta.sum().reshape(1)
        if own:
            db_f = None if dV is None else dV.sum((0, 1))  # attention sums to 1 over words
            dw_o = row_gradients(delta, hidden) if wanted["w_o"] else None
        elif dV is not None:
            # attention sums to 1 over words, so Σ_words dV' = Σ_labels δ m, what b_f and w_o's gradients need
            total = dV.sum((0, 1))  # (r)
            here = torch.arange(n, device=device) < lengths.unsqueeze(1)
            dw_o = (V.float().masked_fill(~here.unsqueeze(-1), 0.0) * dV).sum((0, 1)) + b_f * total
            dV *= w_o
            db_f = w_o * total
        gradients = (dK[0], dK[1], dV, dg, dQ[0], dQ[1], slopes.sum((1, 2)), db_f, dw_o, db_o)
        K_S_, K_I_, V_, g_, *others = (
            None if x is None else x.to(kind) for x, kind in zip(gradients, ctx.dtypes, strict=True)
        )
        return K_S_, K_I_, V_, g_, None, *others


def row_gradients(delta: Tensor, hidden: Tensor) -> Tensor:
    """Return the gradient (k, r) of labels' own rows, `Σ_documents δ ReLU(u)`, with nothing of its size beside it."""
    total = torch.zeros(hidden.shape[1:], device=hidden.device)
    for slope, positive in zip(delta, hidden, strict=True):
        total.addcmul_(positive, slope.unsqueeze(1))
    return total


def label_coefficients(delta: Tensor, statistics: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return for both attentions w, s, D of `dS = P (w G + s g − D)`, from the logits' gradient δ.

    w = α δ or β δ, what the label's attention counts; s = dx or dy, the gradient of its gate; D = Σ_words P dP.
    """
    _, _, x, y, e_S, e_I = statistics.unbind()
    alpha = torch.sigmoid(F.logsigmoid(x) - F.logsigmoid(y))  # (batch, k)
    through = delta * (e_S - e_I) * alpha * (1 - alpha)
    weights = torch.stack([alpha * delta, (1 - alpha) * delta])
    slopes = torch.stack([through * torch.sigmoid(-x), -through * torch.sigmoid(-y)])
    offsets = torch.stack([weights[0] * e_S + slopes[0] * (x - c[0]), weights[1] * e_I + slopes[1] * (y - c[1])])
    return weights, slopes, offsets
