#include "executors/cpu/onednn.h"

namespace thunder::executors::cpu {

bool onednn_has(ir::Dtype dtype) {
  static const bool kHasBfloat16 = [] {
    const auto asks = find_onednn<bool()>("mkldnn::_is_mkldnn_bf16_supported");
    return asks && asks->call();
  }();
  return dtype == ir::Dtype::kBfloat16 ? kHasBfloat16 : dtype == ir::Dtype::kFloat32 && at::Context::hasMKLDNN();
}

}  // namespace thunder::executors::cpu
