"""FLOPs and bytes of attention, against counts written out by hand."""

from roofline_helpers.work import flash_attention, latent_attention, naive_attention

B, S, T, H, D, K = 3, 8, 16, 12, 32, 2  # batch, queries, keys, heads, head size, KV heads


def test_naive_attention():
    scores, normalise, output = kernels = naive_attention(B, S, T, H, D, K, "bf16")
    pairs = B * H * S * T
    assert [kernel.name for kernel in kernels] == ["Q·Kᵀ", "scale+softmax", "P·V"]
    assert scores.matrix_flops == output.matrix_flops == 2 * pairs * D
    assert (normalise.vector_flops, normalise.transcendentals) == (6 * pairs, pairs)
    assert normalise.matrix_flops == output.vector_flops == 0
    q, kv = 2 * B * H * S * D, 2 * B * K * T * D
    assert [kernel.bytes for kernel in kernels] == [
        q + kv + 2 * pairs,
        2 * pairs + 2 * pairs,
        2 * pairs + kv + q,
    ]


def test_flash_attention_leaves_the_scores_inside():
    job = flash_attention(B, S, T, H, D, K, "bf16")
    naive = naive_attention(B, S, T, H, D, K, "bf16")
    assert job.bytes == 2 * (2 * B * H * S * D + 2 * B * K * T * D)
    assert sum(kernel.bytes for kernel in naive) - job.bytes == 4 * 2 * B * H * S * T
    assert job.flops == 4 * B * H * S * T * D + 6 * B * H * S * T
    assert job.name == "flash attention"
    assert (set(job.reads), set(job.writes)) == ({"q", "k", "v"}, {"o"})
    narrow = flash_attention(B, S, T, H, D, K, "bf16", kv_dtype="fp8")
    assert narrow.bytes == 2 * 2 * B * H * S * D + 2 * B * K * T * D
    assert narrow.flops == job.flops


def test_causal_attention_counts_the_pairs_that_a_mask_leaves():
    for queries, keys in (
        (1, 1),
        (1, 9),
        (5, 5),
        (4, 7),
        (7, 8),
    ):
        pairs = sum(keys - queries + 1 + i for i in range(queries))  # the last query sees every key
        job = flash_attention(B, queries, keys, H, D, causal=True)
        wanted = (4 * B * H * pairs * D, 6 * B * H * pairs, B * H * pairs)
        assert (job.matrix_flops, job.vector_flops, job.transcendentals) == wanted, (queries, keys)
        assert job.bytes == flash_attention(B, queries, keys, H, D).bytes
        assert type(job.matrix_flops) is int


def test_keys_are_read_once_a_block_of_queries():
    job = flash_attention(B, S, T, H, D, K, block_q=3)  # 3 blocks of 8 queries
    assert job.bytes == 2 * (2 * B * H * S * D + 3 * 2 * B * K * T * D)
    assert flash_attention(B, S, T, H, D, K, block_q=S).passes["k"] == 1
    blocks = flash_attention(B, S, T, H, D, K, block_q=[1, 8])
    assert blocks.passes["v"].tolist() == [8, 1]


def test_a_prompt_s_latent_attention_counts_the_pairs_that_a_mask_leaves():
    job = latent_attention(2, 8, heads=4)  # heads of 128 + 64 for the keys, of 128 for the values
    pairs = 2 * 4 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8)
    assert job.matrix_flops == 2 * pairs * (192 + 128)
    assert (job.vector_flops, job.transcendentals) == (6 * pairs, pairs)
    assert job.bytes == 2 * 2 * 8 * 4 * (192 + 192 + 128 + 128)


def test_a_token_s_latent_attention_reads_one_vector_a_key_for_all_heads():
    job = latent_attention(2, 1, 9, heads=4, kv_dtype="fp8")
    pairs = 2 * 4 * 9
    assert job.matrix_flops == 2 * pairs * (512 + 64 + 512)
    assert (job.vector_flops, job.transcendentals) == (6 * pairs, pairs)
    assert dict(job.reads) == {"q": 2 * 2 * 4 * 576, "cache": 2 * 9 * 576}
    assert dict(job.writes) == {"o": 2 * 2 * 4 * 512}
    prompt = latent_attention(2, 8, heads=4, kv_dtype="fp8").reads
    assert dict(prompt) == {"q": 2 * 64 * 192, "k": 64 * 192, "v": 64 * 128}
