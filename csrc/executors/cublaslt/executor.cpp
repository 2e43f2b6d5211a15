#include "executors/cublaslt/executor.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bridge/convert.h"
#include "executors/api/operands.h"
#include "executors/cublaslt/epilogues.h"
#include "executors/fused/fused_region.h"
#include "fusion/region.h"
#include "ir/uses.h"
#include "operators/facts.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cublaslt {
namespace {

const Backend& backend_of(const Executor& self) { return *static_cast<const Backend*>(self.state); }

/// A block of a matmul and its epilogue, as one call of the library.
class Block {
 public:
  Block(const ir::BoundSymbol& block, const ir::Trace& trace, Matmuls& matmuls)
      : region_(fusion::region_of(block, trace)), matmuls_(matmuls) {
    const ir::Trace& region = region_.region();
    const std::vector<ir::BoundSymbol>& operations = region.symbols[0].nested;
    const ir::BoundSymbol& matmul = operations[0];
    const operators::Matmul& places = *operators::find_matmul(*matmul.op);
    left_ = place_of(passes::value_argument(matmul, places.left));
    right_ = place_of(passes::value_argument(matmul, places.right));
    is_right_transposed_ = places.takes_transposed;
    const ir::ValueId bias = places.bias ? passes::value_argument(matmul, *places.bias) : ir::kNoValue;
    if (bias != ir::kNoValue) bias_ = place_of(bias);
    is_gradient_ = fusion::kind_of(block) == kGeluGradient;
    if (!is_gradient_) return;
    const ir::BoundSymbol& gradient = operations[operations.size() - region_.outputs().size()];
    input_of_gelu_ = place_of(passes::value_argument(gradient, 1));
  }

  void run(std::vector<c10::IValue>& stack) const {
    const std::size_t count = region_.inputs().size();
    const c10::IValue* inputs = stack.data() + (stack.size() - count);
    std::vector<at::Tensor> results;
    if (!region_.fits(inputs) || !compute(inputs, results)) return region_.run_operations(stack);
    stack.resize(stack.size() - count);
    for (at::Tensor& result : results) stack.emplace_back(std::move(result));
  }

 private:
  [[nodiscard]] std::size_t place_of(ir::ValueId id) const {
    const std::vector<ir::ValueId>& inputs = region_.region().inputs;
    return static_cast<std::size_t>(std::ranges::find(inputs, id) - inputs.begin());
  }

  [[nodiscard]] bool compute(const c10::IValue* inputs, std::vector<at::Tensor>& results) const {
    for (const FusedRegion::Tensor& output : region_.outputs()) {
      results.push_back(
          at::empty_strided(output.sizes, output.strides, at::TensorOptions(output.dtype).device(output.device)));
    }
    Tensors tensors{.left = inputs[left_].toTensor(), .right = inputs[right_].toTensor()};
    if (is_right_transposed_) tensors.right = tensors.right.t();
    if (tensors.left.dim() > 2) {
      if (!tensors.left.is_contiguous()) return false;
      tensors.left = tensors.left.view({-1, tensors.left.size(-1)});
    }
    const std::int64_t columns = tensors.right.size(1);
    tensors.result = results[0].view({-1, columns});
    const bool has_second = results.size() > 1;
    if (is_gradient_) {
      const at::Tensor& input = inputs[input_of_gelu_].toTensor();
      if (!input.is_contiguous()) return false;
      tensors.auxiliary = input.view({-1, columns});
      if (has_second) tensors.bias = results[1];
      return matmuls_.run(has_second ? Epilogue::kGeluGradientBias : Epilogue::kGeluGradient, tensors);
    }
    if (has_second) tensors.auxiliary = results[1].view({-1, columns});
    if (!bias_) return matmuls_.run(has_second ? Epilogue::kGeluAuxiliary : Epilogue::kGelu, tensors);
    tensors.bias = inputs[*bias_].toTensor();
    if (!tensors.bias.is_contiguous()) return false;
    return matmuls_.run(has_second ? Epilogue::kGeluAuxiliaryBias : Epilogue::kGeluBias, tensors);
  }

  FusedRegion region_;
  Matmuls& matmuls_;
  std::size_t left_ = 0;  // places among the inputs
  std::size_t right_ = 0;
  bool is_right_transposed_ = false;
  std::optional<std::size_t> bias_;
  std::size_t input_of_gelu_ = 0;
  bool is_gradient_ = false;
};

void run(const void* state, std::vector<c10::IValue>& stack) { static_cast<const Block*>(state)->run(stack); }

std::optional<ir::Trace> fuse(const Executor& self, const ir::Trace& trace) {
  const Backend& backend = backend_of(self);
  const auto lies_there = [&](const ir::BoundSymbol& symbol) {
    const ir::TensorType* result = passes::result_type(symbol, trace);
    return result != nullptr && result->device.type == backend.rule.device;
  };
  const bool is_there = std::ranges::any_of(trace.symbols, lies_there) && backend.matmuls->device().api() != nullptr;
  if (!is_there) return std::nullopt;
  ir::Trace taken = trace;
  return take_epilogues(taken, backend.rule, self.name) ? std::make_optional(std::move(taken)) : std::nullopt;
}

bool claim(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& /*trace*/) {
  return fusion::is_fused_by(symbol, self.name);
}

void lower(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace,
           runtime::ProgramBuilder& builder) {
  lower_block(symbol, &run, std::make_shared<const Block>(symbol, trace, *backend_of(self).matmuls), {}, {}, builder);
}

}  // namespace

const Executor& executor() {
  static const Backend kBackend{new Matmuls(gpu()), {}};
  static const Executor kExecutor = make_executor("cublaslt", kBackend);
  return kExecutor;
}

Executor make_executor(const char* name, const Backend& backend) {
  return {.name = name, .claim = &claim, .lower = &lower, .fuse = &fuse, .state = &backend};
}

}  // namespace thunder::executors::cublaslt
