"""The forward kernel for scoring on Hopper (compute capability 9.0): warps of one task each (Triton's Gluon)."""

# One warp copies tiles by TMA, two groups of four warps multiply, each for 64 labels. Nothing waits for the whole
# block: copies and groups meet at barriers in shared memory, and while a group's tensor cores multiply P V of one step,
# its other units take exp2 of the next step's logits. Softmax is optimistic, without the maximum: a sum of weights
# within [1e-27, 1e33] proves it right, as bfloat16 has the exponents of float32. Anything else is told in `unsure`, and
# forward_kernel does those tiles again. What is read behind a document's end gets no weight; in V it has to be finite.

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

LOG2E = gl.constexpr(1.4426950408889634)
LABELS, WORDS, STAGES, REGISTERS = 128, 64, 2, 240  # the best of six on an H200: 3.2 ms at the claims' shape


@gluon.jit
def log_sigmoid(x):
    """Return log σ(x) without overflow."""
    return gl.minimum(x, 0.0) - gl.log(1.0 + gl.exp(-gl.abs(x)))


@gluon.jit
def copy_tiles(inputs, tiles, barriers, constants, outputs, documents, n, k):
    """Ask for every tile as soon as its place is free."""
    Q_S, Q_I, K_S, K_I, V, G, lengths = inputs
    q, ks, vs, gs = tiles
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    STAGES: gl.constexpr = ks.shape[0]
    WORDS: gl.constexpr = ks.shape[1]
    R: gl.constexpr = ks.shape[2]
    label_blocks = gl.cdiv(k, 128)
    step = 0
    attention = 0
    for tile in range(gl.program_id(0), documents * label_blocks, gl.num_programs(0)):
        document = tile // label_blocks
        label = (tile % label_blocks) * 128
        length = gl.maximum(gl.load(lengths + document), 1)
        for side in gl.static_range(2):
            for group in gl.static_range(2):
                mbarrier.wait(q_empty.index(group), (attention & 1) ^ 1)
                mbarrier.expect(q_full.index(group), 64 * R * 2)
                if side == 0:
                    tma.async_copy_global_to_shared(Q_S, [label + group * 64, 0], q_full.index(group), q.index(group))
                else:
                    tma.async_copy_global_to_shared(Q_I, [label + group * 64, 0], q_full.index(group), q.index(group))
            for start in range(0, length, WORDS):
                place = step % STAGES
                phase = ((step // STAGES) & 1) ^ 1
                word = document * n + start
                mbarrier.wait(k_empty.index(place), phase)
                mbarrier.expect(k_full.index(place), WORDS * R * 2)
                if side == 0:
                    tma.async_copy_global_to_shared(K_S, [word, 0], k_full.index(place), ks.index(place))
                else:
                    tma.async_copy_global_to_shared(K_I, [word, 0], k_full.index(place), ks.index(place))
                mbarrier.wait(v_empty.index(place), phase)
                mbarrier.expect(v_full.index(place), WORDS * R * 2 + WORDS * 16 * 2)
                tma.async_copy_global_to_shared(V, [word, 0], v_full.index(place), vs.index(place))
                tma.async_copy_global_to_shared(G, [word, 0], v_full.index(place), gs.index(place))
                step += 1
            attention += 1


@gluon.jit
def weigh(M, start, length, WORDS: gl.constexpr, M_layout: gl.constexpr, TYPE: gl.constexpr):
    """Return the weights P of one step, none behind the document's end."""
    # in both branches, and not alike: ptxas would move work that follows a branch behind the next wait
    if start + WORDS > length:
        word = gl.arange(0, WORDS, layout=gl.SliceLayout(0, M_layout))
        P = gl.where((start + word < length)[None, :], gl.exp2(M * LOG2E), 0.0).to(TYPE)
    else:
        P = gl.exp2(M * LOG2E).to(TYPE)
    return P


@gluon.jit
def multiply(group: gl.constexpr, OWN: gl.constexpr, inputs, tiles, barriers, constants, outputs, documents, n, k):
    """Score 64 labels of a tile, one attention after the other."""
    lengths = inputs[6]
    q, ks, vs, gs = tiles
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    c, b_f, w_o, b_o = constants
    logits, aside, unsure = outputs
    STAGES: gl.constexpr = ks.shape[0]
    WORDS: gl.constexpr = ks.shape[1]
    R: gl.constexpr = ks.shape[2]
    TYPE: gl.constexpr = vs.dtype
    M_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WORDS, 16])
    C_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, R, 16])
    sums_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 16, 16])
    # (64, R) where a thread's 8 neighbouring columns are 16 bytes, and four threads' 64
    aside_layout: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 2], [0, 4], [0, 32], [0, 64], [0, 128], [8, 0]],
        lane_bases=[[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, R],
    )
    label_blocks = gl.cdiv(k, 128)
    Q = q.index(group)
    none = gl.zeros([64, WORDS], gl.float32, M_layout)
    column = gl.arange(0, 16, layout=gl.SliceLayout(0, sums_layout))
    row = gl.arange(0, 64, layout=gl.SliceLayout(1, C_layout))
    unit = gl.arange(0, R, layout=gl.SliceLayout(0, C_layout))
    aside_row = (gl.program_id(0) * 2 + group) * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, aside_layout))
    C_aside = aside + aside_row[:, None] * R + gl.arange(0, R, layout=gl.SliceLayout(0, aside_layout))[None, :]
    step = 0
    attention = 0
    for tile in range(gl.program_id(0), documents * label_blocks, gl.num_programs(0)):
        document = tile // label_blocks
        label = (tile % label_blocks) * 128 + group * 64 + row
        real = label < k
        length = gl.maximum(gl.load(lengths + document), 1)
        x = gl.zeros([64], gl.float32, gl.SliceLayout(1, C_layout))
        for side in gl.static_range(2):
            mbarrier.wait(q_full.index(group), attention & 1)
            place = step % STAGES
            mbarrier.wait(k_full.index(place), (step // STAGES) & 1)
            M = warpgroup_mma(Q, ks.index(place).permute((1, 0)), none, use_acc=False, is_async=True)
            M = warpgroup_mma_wait(0, deps=[M])
            mbarrier.arrive(k_empty.index(place))
            P = weigh(M, 0, length, WORDS, M_layout, TYPE)
            C = gl.zeros([64, R], gl.float32, C_layout)
            sums = gl.zeros([64, 16], gl.float32, sums_layout)
            for start in range(WORDS, length, WORDS):  # logits of this step, products of the one before
                place = step % STAGES
                next_place = (step + 1) % STAGES
                mbarrier.wait(k_full.index(next_place), ((step + 1) // STAGES) & 1)
                M = warpgroup_mma(Q, ks.index(next_place).permute((1, 0)), none, use_acc=False, is_async=True)
                mbarrier.wait(v_full.index(place), (step // STAGES) & 1)
                P_values = gl.convert_layout(P, gl.DotOperandLayout(0, C_layout, 2))
                P_sums = gl.convert_layout(P, gl.DotOperandLayout(0, sums_layout, 2))
                C = warpgroup_mma(P_values, vs.index(place), C, is_async=True)
                sums = warpgroup_mma(P_sums, gs.index(place), sums, is_async=True)
                M = warpgroup_mma_wait(2, deps=[M])
                mbarrier.arrive(k_empty.index(next_place))  # the compiler puts a barrier of the group before it
                P = weigh(M, start, length, WORDS, M_layout, TYPE)
                # the wait takes P, or the compiler moves the work behind it
                C, sums, P_values, P_sums, P = warpgroup_mma_wait(0, deps=[C, sums, P_values, P_sums, P])
                mbarrier.arrive(v_empty.index(place))
                step += 1
            mbarrier.arrive(q_empty.index(group))
            place = step % STAGES
            mbarrier.wait(v_full.index(place), (step // STAGES) & 1)
            P_values = gl.convert_layout(P, gl.DotOperandLayout(0, C_layout, 2))
            P_sums = gl.convert_layout(P, gl.DotOperandLayout(0, sums_layout, 2))
            C = warpgroup_mma(P_values, vs.index(place), C, is_async=True)
            sums = warpgroup_mma(P_sums, gs.index(place), sums, is_async=True)
            C, sums, P_values, P_sums = warpgroup_mma_wait(0, deps=[C, sums, P_values, P_sums])
            mbarrier.arrive(v_empty.index(place))
            step += 1
            attention += 1

            total = gl.sum(gl.where((column == 0)[None, :], sums, 0.0), 1)
            parts = (column == 1 + 2 * side) | (column == 2 + 2 * side)
            gate = gl.sum(gl.where(parts[None, :], sums, 0.0), 1) / total
            total = gl.convert_layout(total, gl.SliceLayout(1, C_layout))
            gate = gl.convert_layout(gate, gl.SliceLayout(1, C_layout))
            doubtful = ((total < 1e33) & (total > 1e-27)) == 0  # NaN too
            gl.store(unsure + row * 0, row * 0 + 1, mask=doubtful & real)
            gl.store(unsure + 1 + tile + row * 0, row * 0 + 1, mask=doubtful & real)
            C = C * (1.0 / total)[:, None]
            # columns in an order in which a thread's are neighbours: only this thread reads them again
            if side == 0:
                x = gate
                mixed = C.to(TYPE).reshape([64, R // 32, 4, 4, 2]).permute(0, 1, 3, 2, 4).reshape([64, R])
                gl.store(C_aside, gl.convert_layout(mixed, aside_layout))
            else:
                mixed = gl.load(C_aside).reshape([64, R // 32, 4, 4, 2]).permute(0, 1, 3, 2, 4).reshape([64, R])
                C_S = gl.convert_layout(mixed, C_layout).to(gl.float32)
                x_ = x + gl.load(c)
                y_ = gate + gl.load(c + 1)
                alpha = 1.0 / (1.0 + gl.exp(log_sigmoid(y_) - log_sigmoid(x_)))
                u = alpha[:, None] * C_S + (1.0 - alpha)[:, None] * C + gl.load(b_f + unit)[None, :]
                if OWN:
                    w = gl.load(w_o + label[:, None] * R + unit[None, :], mask=real[:, None], other=0.0)
                    b = gl.load(b_o + label, mask=real, other=0.0)
                else:
                    w = gl.load(w_o + unit)[None, :]
                    b = gl.load(b_o)
                score = gl.sum(gl.maximum(u, 0.0) * w, 1) + b
                gl.store(logits + document.to(gl.int64) * k + label, score, mask=real)


@gluon.jit(do_not_specialize=["documents", "n", "k"])
def hopper_kernel(
    Q_S,
    Q_I,
    K_S,
    K_I,
    V,
    G,
    lengths,
    c,
    b_f,
    w_o,
    b_o,
    logits,
    aside,
    unsure,
    documents,
    n,
    k,
    OWN: gl.constexpr,
    WORDS: gl.constexpr,
    STAGES: gl.constexpr,
    R: gl.constexpr,
    REGISTERS: gl.constexpr,
):
    """Write the logits of 128 labels for one document after the other, and in `unsure` which are not to be trusted."""
    q = gl.allocate_shared_memory(Q_S.dtype, [2, 64, R], Q_S.layout)
    ks = gl.allocate_shared_memory(K_S.dtype, [STAGES, WORDS, R], K_S.layout)
    vs = gl.allocate_shared_memory(V.dtype, [STAGES, WORDS, R], V.layout)
    gs = gl.allocate_shared_memory(G.dtype, [STAGES, WORDS, 16], G.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for group in gl.static_range(2):
        mbarrier.init(q_full.index(group), count=1)
        mbarrier.init(q_empty.index(group), count=1)
    for place in gl.static_range(STAGES):
        mbarrier.init(k_full.index(place), count=1)
        mbarrier.init(k_empty.index(place), count=2)  # both groups read it
        mbarrier.init(v_full.index(place), count=1)
        mbarrier.init(v_empty.index(place), count=2)
    fence_async_shared()
    inputs = (Q_S, Q_I, K_S, K_I, V, G, lengths)
    tiles = (q, ks, vs, gs)
    barriers = (q_full, q_empty, k_full, k_empty, v_full, v_empty)
    outputs = (logits, aside, unsure)
    common = (inputs, tiles, barriers, (c, b_f, w_o, b_o), outputs, documents, n, k)
    gl.warp_specialize(  # Gluon reads no `*common` within a tuple
        [(multiply, (0, OWN) + common), (multiply, (1, OWN) + common), (copy_tiles, common)],  # noqa: RUF005
        *([4, 1], [REGISTERS, 24]),
    )


def describe(x: torch.Tensor, rows: int) -> TensorDescriptor:
    """Return the descriptor of tiles of so many rows of x, whose rows lie behind each other."""
    x = x if x.dim() == 2 else x.flatten(0, 1)
    shape = [rows, x.shape[1]]
    return TensorDescriptor.from_tensor(x, shape, gl.NVMMASharedLayout.get_default_for(shape, gl.bfloat16))


def launch(Q_S, Q_I, words, lengths, c, b_f, w_o, b_o, logits, aside, unsure, programs) -> None:
    """Run the kernel; `words` are K_S, K_I, V and G, V without a number in it that is not finite."""
    documents, n, size = words[2].shape
    k = len(Q_S)
    described = [*(describe(Q, 64) for Q in (Q_S, Q_I)), *(describe(x, WORDS) for x in words)]
    hopper_kernel[(min(programs, documents * -(-k // LABELS)),)](
        *(*described, lengths, c, b_f, w_o, b_o, logits, aside, unsure, documents, n, k),
        OWN=w_o.dim() == 2,
        WORDS=WORDS,
        STAGES=STAGES,
        R=size,
        REGISTERS=REGISTERS,
        num_warps=4,
    )
