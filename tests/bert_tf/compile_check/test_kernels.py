from bert_tf.compile_check import kernels, traffic

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
    assert found.describe().startswith("6 kernels: 2 products, ")


def test_attention_scores_are_found_and_square_weights_are_not():
    found = kernels.count(HLO)
    scores, rest = 8 * 64 * 64 * 2, 8 * 64 * 16 * 2
    assert found.scores == 3  # the softmax and both products
    assert found.scores_moved == 2 * scores + 2 * (scores + 2 * rest) + 64
    assert traffic.by_operation(HLO)["block/Softmax"] == 2 * scores
