"""FLOPs and bytes of a transformer block, kernel by kernel."""

from __future__ import annotations

from roofline_helpers.work import fuse, transformer_block


def test_a_block_of_the_original_kind():
    b, s, d, h, f = 2, 16, 64, 4, 256
    n = b * s
    block = transformer_block(b, s, d, h, f)
    norm, qkv, attention, out, add1, norm2, up, act, down, add2 = block
    assert [kernel.matrix_flops for kernel in (qkv, attention, out, up, down)] == [
        2 * n * d * 3 * d,
        4 * b * s * s * d,
        2 * n * d * d,
        2 * n * d * f,
        2 * n * f * d,
    ]
    assert [kernel.bytes for kernel in block] == [
        2 * (2 * n * d + 2 * d),
        2 * (n * d + 3 * d * d + 3 * n * d),
        2 * 4 * n * d,
        2 * (2 * n * d + d * d),
        2 * 3 * n * d,
        2 * (2 * n * d + 2 * d),
        2 * (n * d + d * f + n * f),
        2 * 2 * n * f,
        2 * (n * f + f * d + n * d),
        2 * 3 * n * d,
    ]
    assert norm.flops == norm2.flops == 7 * n * d + 4 * n
    assert (act.flops, add1.flops, add2.flops) == (9 * n * f, n * d, n * d)
    assert dict(qkv.writes) == {"q": 2 * n * d, "k, new": 2 * n * d, "v, new": 2 * n * d}
    assert down.dtype == "bf16"


def test_tensors_of_a_block_lead_from_one_kernel_to_the_next():
    for gated in (False, True):
        block = transformer_block(1, 4, 8, 2, 16, gated=gated)
        made = {"x", "k", "v"}
        for kernel in block:
            enter = [t for t in kernel.reads if not t.startswith(("W ", "γ", "β"))]
            assert set(enter) <= made
            made |= set(kernel.writes)
        fused = fuse(*block)
        assert "x''" in fused.writes
        assert "n1" not in fused.reads


def test_a_decode_step_of_llama_3_8b():
    block = transformer_block(4, 1, 4096, 32, 14336, kv_heads=8, kv_len=1000, gated=True)
    _, qkv, attention, out, _, norm2, gate, up, act, down, _ = block
    widths = [
        (4096, 6144),
        (4096, 4096),
        (4096, 14336),
        (4096, 14336),
        (14336, 4096),
    ]
    for kernel, (k, n) in zip((qkv, out, gate, up, down), widths, strict=True):
        assert kernel.matrix_flops == 2 * 4 * k * n
        assert kernel.bytes == 2 * (4 * k + k * n + 4 * n)
        assert kernel.dtype == "bf16"
    assert attention.matrix_flops == 4 * 4 * 32 * 1000 * 128
    assert attention.bytes == 2 * (2 * 4 * 4096 + 2 * 4 * 8 * 1000 * 128)
    assert act.flops == 5 * 4 * 14336
    assert norm2.flops == 4 * (4 * 4096 + 3)
    assert dict(qkv.writes) == {"q": 32768, "k, new": 8192, "v, new": 8192}


def test_heads_may_be_wider_than_their_share_of_the_model():
    """gpt-oss: 64 heads of 64 on a width of 2,880."""
    qkv, out = transformer_block(1, 8, 2880, 64, 2880, kv_heads=8, head_dim=64)[1:4:2]
    assert qkv.matrix_flops == 2 * 8 * 2880 * (64 + 2 * 8) * 64
    assert out.matrix_flops == 2 * 8 * 64 * 64 * 2880
