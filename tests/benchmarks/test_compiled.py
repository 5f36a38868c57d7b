import sys

from benchmarks.compiled import __main__ as script
from benchmarks.compiled import kernels, traffic

HLO = """HloModule step

ENTRY %main (a: bf16[4,2,64,64]) -> bf16[8,64,16] {
  %a = bf16[4,2,64,64]{3,2,1,0} parameter(0)
  %v = bf16[8,64,16]{2,1,0} parameter(1)
  %w = f32[4,512,512]{2,1,0} parameter(2)
  %p = bf16[4,2,64,64]{3,2,1,0} fusion(%a), kind=kCustom, calls=%c, metadata={op_name="block_3/Softmax_1"}
  %b = bf16[8,64,64]{2,1,0} bitcast(%p)
  %d = bf16[8,64,16]{2,1,0} fusion(%b, %v), kind=kCustom, calls=%g, kinds={"kind":"__triton_nested_gemm_fusion"}
  %s = f32[4,512,512]{1,2,0} copy(%w)
  %n = f32[] fusion(%w), kind=kInput, calls=%r
  %m = (f32[], f32[]) fusion(%n), kind=kLoop, calls=%l
  %o = f32[] get-tuple-element(%m), index=0
  ROOT %e = (bf16[8,64,16]{2,1,0}, s8[64]{0}) custom-call(%b, %v), custom_call_target="__cublas$gemm"
}
"""


def test_kernels_are_counted_by_kind():
    found = kernels.count(HLO)
    expected = {"products": 2, "blocks": 1, "copies": 1, "reductions": 1, "loops": 1}
    assert dict(found.counts) == expected
    assert found.small == 4  # all except the two kernels that read the weight of 4 MiB
    # attention scores, but not the square weights
    scores, rest = 8 * 64 * 64 * 2, 8 * 64 * 16 * 2
    assert found.scores == 3  # the softmax and both products
    assert found.scores_moved == 2 * scores + 2 * (scores + 2 * rest) + 64
    assert traffic.by_operation(HLO)["block/Softmax"] == 2 * scores


ON_TPU = """HloModule step

ENTRY %main (a: f32[8,128]) -> f32[8,128] {
  %a = f32[8,128]{1,0:T(8,128)} parameter(0)
  %s = ((f32[8,128]{1,0:T(8,128)}), f32[2,128]{1,0:T(8,128)S(1)}, s32[]{:S(2)}) slice-start(%a), slice={[0:2], [0:128]}
  %d = f32[2,128]{1,0:T(8,128)S(1)} slice-done(%s)
  %f = bf16[8,128]{1,0:T(8,128)} fusion(%a, %d), kind=kLoop, metadata={op_name="layer_3/Mul_1" source_line=1}
  %g = bf16[8,128]{1,0:T(8,128)S(1)} fusion(%f), kind=kLoop, metadata={op_name="layer_4/Mul_7"}
  ROOT %t = (bf16[8,128]{1,0:T(8,128)S(1)}) tuple(%g)
}
"""


def test_traffic_is_counted_at_the_memory():
    # the operand and the result in memory, but not the slice, which is already in the core
    assert traffic.by_operation(ON_TPU) == {"slice-start": 2 * 128 * 4, "layer/Mul": 8 * 128 * (4 + 2) + 8 * 128 * 2}


def test_the_script_prints_both_kinds_of_programs(tmp_path, monkeypatch, capsys):
    for name, text in (("gpu", HLO), ("tpu", ON_TPU)):
        (tmp_path / f"{name}.hlo").write_text(text)
    monkeypatch.setattr(sys, "argv", ["compiled", f"{tmp_path}/gpu.hlo", f"{tmp_path}/tpu.hlo"])
    script.main()
    of_gpu, of_tpu = capsys.readouterr().out.split(f"{tmp_path}/tpu.hlo: ")
    assert "  6 kernels: 2 products" in of_gpu and "block/Softmax" in of_gpu
    assert "layer/Mul" in of_tpu and "kernels" not in of_tpu
