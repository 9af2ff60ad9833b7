"""Conclusions of the chapter measure: each test would refute one."""

from conclusions import prose

from tools import books


def test_quoted_fp8_programs_are_the_compilers() -> None:
    compiled_text = (books.ROOT / "roofline_helpers/data/measured/fp8.hlo.txt").read_text("utf-8")
    for part in (
        "%wrapped_transpose = f8e4m3fn[8192,8192]{0,1} fusion(%bitcast.7.0), kind=kLoop",
        "custom-call(%args_0_.1, %wrapped_transpose, %constant, %constant)",
        'custom_call_target="__cublas$lt$matmul$f8"',
    ):
        assert part in compiled_text
        assert part in prose("measure")
