#include "passes/convolution_biases.h"

#include <cstddef>
#include <utility>

#include "ir/builder.h"
#include "operators/names.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// The arguments of `convolution`.
enum Place : std::size_t { kInput, kWeight, kBias, kArguments = 9 };

class Splitter {
 public:
  Splitter(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator)
      : trace_(trace), device_(device), find_operator_(find_operator), result_(trace.empty_copy(kConvolutionBiases)) {}

  ir::Trace run() {
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      if (has_bias(symbol)) {
        add_with_sum(symbol);
      } else {
        result_.add(symbol);
      }
    }
    return std::move(result_);
  }

 private:
  /// Images or volumes of floating-point numbers on the device, channels in the second dimension.
  [[nodiscard]] const ir::TensorType* images(ir::ValueId id) const {
    const ir::TensorType* type = trace_.tensor_type(id);
    const bool fits = is_float(type) && type->device.type == device_ && type->sizes.size() > 2 && is_dense(*type);
    return fits ? type : nullptr;
  }

  [[nodiscard]] bool has_bias(const ir::BoundSymbol& symbol) const {
    if (symbol.op->name != "aten::convolution" || symbol.arguments.size() != kArguments) return false;
    const ir::TensorType* result = images(single_result(symbol));
    const ir::TensorType* bias = argument_type(symbol, trace_, kBias);
    return result != nullptr && bias != nullptr && bias->dtype == result->dtype && is_contiguous(*bias) &&
           bias->sizes == ir::Dims{result->sizes[1]};
  }

  void add_with_sum(const ir::BoundSymbol& symbol) {
    const ir::TensorType& type = *images(single_result(symbol));
    ir::BoundSymbol convolution = symbol;
    convolution.arguments[kBias] = ir::Argument();
    const ir::ValueId plain = result_.add_value(ir::make_type(type));
    convolution.results = {ir::Argument(plain)};
    result_.add(std::move(convolution));
    ir::Dims sizes(type.sizes.size() - 1, ir::Dim(1));
    sizes[0] = type.sizes[1];
    ir::ArgumentList shape;
    for (const ir::Dim& size : sizes) shape.emplace_back(size);
    const ir::ValueId bias = ir::add_call(result_, *find_operator_(operators::kReshape, ""),
                                          {symbol.arguments[kBias], ir::Argument(std::move(shape))},
                                          ir::tensor_type(type.dtype, sizes, type.device), {}, symbol.location);
    ir::BoundSymbol sum = symbol;
    sum.op = find_operator_("aten::add", "Tensor");
    sum.arguments = {ir::Argument(plain), ir::Argument(bias), ir::Argument(1)};
    sum.nested.clear();
    result_.add(std::move(sum));
  }

  const ir::Trace& trace_;
  ir::DeviceType device_;
  FindOperator find_operator_;
  ir::Trace result_;
};

}  // namespace

ir::Trace split_convolution_biases(const ir::Trace& trace, ir::DeviceType device, ir::FindOperator find_operator) {
  return Splitter(trace, device, find_operator).run();
}

}  // namespace thunder::passes
