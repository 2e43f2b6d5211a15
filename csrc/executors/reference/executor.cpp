#include "executors/reference/executor.h"

#include <ATen/ATen.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bridge/convert.h"
#include "executors/api/lowering.h"
#include "executors/api/operands.h"
#include "fusion/assembly.h"
#include "fusion/batch_members.h"
#include "fusion/block_results.h"
#include "fusion/interpreter.h"
#include "fusion/lowering.h"
#include "fusion/operations.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::reference {
namespace {

using fusion::KernelArray;

/// Whatever can be one is.
constexpr passes::MergeRule kMerges{.most_multiplications = std::numeric_limits<double>::infinity(),
                                    .copies_weights = true};

constexpr fusion::Target kTarget{
    .accepts = [](const ir::TensorType& type) { return type.device.type == ir::DeviceType::kCpu; },
    .has = [](operators::ElementOp, fusion::ComputeType) { return true; },
    .draws_by_counter = true,
    .multiplies_rows = true,
    .largest_in_batch = INT64_C(1) << 20U,
    .most_held = INT64_C(1) << 20U,
    .merges = &kMerges,
};

/// The memory of a tensor, from its first element to its last one, as a tensor of one dimension.
at::Tensor memory_of(const at::Tensor& tensor) {
  std::int64_t size = tensor.numel() == 0 ? 0 : 1;
  for (std::int64_t i = 0; i < tensor.dim() && size != 0; ++i) size += (tensor.size(i) - 1) * tensor.stride(i);
  return tensor.as_strided({size}, {1}, tensor.storage_offset());
}

KernelArray array_of(const at::Tensor& tensor) {
  KernelArray array;
  array.dtype = bridge::from_torch(tensor.scalar_type());
  const at::Tensor memory = memory_of(tensor);
  const auto count = static_cast<std::size_t>(memory.numel());
  if (at::isFloatingType(tensor.scalar_type())) {
    const at::Tensor reals = memory.to(at::kDouble).contiguous();
    array.reals.assign(reals.const_data_ptr<double>(), reals.const_data_ptr<double>() + count);
  } else {
    const at::Tensor integers = memory.to(at::kLong).contiguous();
    array.integers.assign(integers.const_data_ptr<std::int64_t>(), integers.const_data_ptr<std::int64_t>() + count);
  }
  return array;
}

void write_back(const KernelArray& array, const at::Tensor& tensor) {
  const at::Tensor memory = memory_of(tensor);
  const auto count = memory.numel();
  if (at::isFloatingType(tensor.scalar_type())) {
    memory.copy_(at::from_blob(const_cast<double*>(array.reals.data()), {count}, at::kDouble));
  } else {
    memory.copy_(at::from_blob(const_cast<std::int64_t*>(array.integers.data()), {count}, at::kLong));
  }
}

/// A fused symbol of a trace, run by the interpreter. Behind its inputs it takes the values of its symbols, if it has
/// some.
class Kernel {
 public:
  Kernel(const ir::BoundSymbol& fused, const ir::Trace& trace)
      : region_(fusion::region_of(fused, trace)), symbols_(ir::symbols_of(region_)) {
    kernel_ = lower(region_, fusion::traced_strides(region_));
  }

  [[nodiscard]] const std::vector<std::uint32_t>& symbols() const { return symbols_; }

  void run(std::vector<c10::IValue>& stack) const {
    const std::vector<std::int64_t> values = take_symbols(stack, symbols_);
    const ir::Trace region = symbols_.empty() ? region_ : ir::at_sizes(region_, values);
    const std::size_t input_count = region.inputs.size();
    std::vector<c10::IValue> inputs(stack.end() - static_cast<std::ptrdiff_t>(input_count), stack.end());
    stack.resize(stack.size() - input_count);
    std::vector<c10::IValue> results = interpreted(region, values, inputs).value_or(std::vector<c10::IValue>());
    if (results.empty()) {
      ir::Trace operations = region;
      operations.symbols = region.symbols[0].nested;
      results.resize(region.outputs.size());
      lower_operators(operations).run(std::span(inputs), std::span(results));
    }
    for (c10::IValue& result : results) stack.push_back(std::move(result));
  }

 private:
  static std::optional<fusion::KernelGraph> lower(const ir::Trace& region, const fusion::Strides& strides) {
    return fusion::Lowering::lower(region.symbols[0], region, strides, kTarget);
  }

  /// nullopt: it is no kernel for inputs of these strides, or an index is out of bounds, which PyTorch tells.
  [[nodiscard]] std::optional<std::vector<c10::IValue>> interpreted(const ir::Trace& region, ir::SymbolValues values,
                                                                    const std::vector<c10::IValue>& inputs) const {
    fusion::Strides strides;
    std::vector<KernelArray> arrays;
    for (const c10::IValue& input : inputs) {
      strides.push_back(bridge::to_dims(input.toTensor().strides()));
      arrays.push_back(array_of(input.toTensor()));
    }
    const bool is_as_traced = strides == fusion::traced_strides(region);
    const auto kernel = is_as_traced ? kernel_ : lower(region, strides);
    if (!kernel) return std::nullopt;
    std::vector<at::Tensor> tensors;
    for (const ir::ValueId id : ir::flat_results(region.symbols[0])) {
      const ir::TensorType& type = *region.tensor_type(id);
      tensors.push_back(at::empty_strided(bridge::hints(type.sizes), bridge::hints(type.strides),
                                          at::TensorOptions(bridge::to_torch(type.dtype))));
      arrays.push_back(array_of(tensors.back().zero_()));
    }
    const std::vector<fusion::CopyTarget> copies = fusion::copy_targets(region.symbols[0]);
    for (const fusion::CopyTarget& copy : copies) arrays.push_back(arrays[copy.input]);
    if (!fusion::interpret(kernel->at(values), arrays)) return std::nullopt;
    for (std::size_t k = 0; k < copies.size(); ++k) {
      write_back(arrays[inputs.size() + tensors.size() + k], inputs[copies[k].input].toTensor());
    }
    std::vector<c10::IValue> results;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      write_back(arrays[inputs.size() + i], tensors[i]);
      results.emplace_back(std::move(tensors[i]));
    }
    return results;
  }

  ir::Trace region_;
  std::vector<std::uint32_t> symbols_;
  std::optional<fusion::KernelGraph> kernel_;  ///< for inputs of the strides that were traced
};

/// Kernels that need nothing of one another, run one by one.
class Batch {
 public:
  Batch(const ir::BoundSymbol& batch, const ir::Trace& trace)
      : symbols_(ir::symbols_of(fusion::region_of(batch, trace))),
        input_count_(ir::distinct_values(batch.arguments).size()) {
    for (fusion::BatchMember& member : fusion::members_of(batch)) {
      kernels_.push_back(std::make_unique<const Kernel>(*member.kernel, trace));
      inputs_of_.push_back(std::move(member.inputs));
    }
  }

  [[nodiscard]] const std::vector<std::uint32_t>& symbols() const { return symbols_; }

  void run(std::vector<c10::IValue>& stack) const {
    const std::vector<std::int64_t> values = take_symbols(stack, symbols_);
    const std::vector<c10::IValue> inputs(stack.end() - static_cast<std::ptrdiff_t>(input_count_), stack.end());
    stack.resize(stack.size() - input_count_);
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      for (const std::size_t input : inputs_of_[i]) stack.push_back(inputs[input]);
      std::vector<std::int64_t> own;
      for (const std::uint32_t symbol : kernels_[i]->symbols()) own.push_back(values[symbol]);
      if (!own.empty()) stack.emplace_back(std::move(own));
      kernels_[i]->run(stack);
    }
  }

 private:
  std::vector<std::unique_ptr<const Kernel>> kernels_;
  std::vector<std::vector<std::size_t>> inputs_of_;  ///< by kernel: places among the batch's
  std::vector<std::uint32_t> symbols_;
  std::size_t input_count_;
};

std::string describe(const ir::BoundSymbol& fused, const ir::Trace& /*trace*/) {
  return std::to_string(fused.nested.size()) + " operations";
}

std::optional<ir::Trace> fuse(const Executor& self, const ir::Trace& trace) {
  const auto role = [](const ir::BoundSymbol& symbol, const ir::Trace& of) {
    return fusion::role_of(symbol, of, kTarget);
  };
  return fusion::fuse(trace, {.role = role, .least_work = 0, .least_alone = 1}, self.name, &describe);
}

bool claim(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& /*trace*/) {
  return fusion::is_fused_by(symbol, self.name);
}

void run(const void* state, std::vector<c10::IValue>& stack) { static_cast<const Kernel*>(state)->run(stack); }

void run_batch(const void* state, std::vector<c10::IValue>& stack) { static_cast<const Batch*>(state)->run(stack); }

void lower(const Executor& /*self*/, const ir::BoundSymbol& symbol, const ir::Trace& trace,
           runtime::ProgramBuilder& builder) {
  if (fusion::is_batch(symbol)) {
    const auto batch = std::make_shared<const Batch>(symbol, trace);
    return lower_block(symbol, &run_batch, batch, batch->symbols(), fusion::written_inputs(symbol), builder);
  }
  const auto kernel = std::make_shared<const Kernel>(symbol, trace);
  lower_block(symbol, &run, kernel, kernel->symbols(), fusion::written_inputs(symbol), builder);
}

}  // namespace

const Executor kExecutor{.name = "reference", .claim = &claim, .lower = &lower, .fuse = &fuse, .target = &kTarget};

}  // namespace thunder::executors::reference
