#include "transforms/symbolic_grad.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bridge/constant.h"
#include "ir/builder.h"
#include "ir/generalization.h"
#include "ir/location.h"
#include "ir/trace_sizes.h"
#include "tracer/gradients_at_sizes.h"
#include "tracer/symbols.h"
#include "transforms/many_sizes.h"

namespace thunder::transforms {
namespace {

bool is_number_of_tensor(const at::Tensor& tensor) { return tensor.dim() == 0 && tensor.device().is_cpu(); }

/// Constants that formulas make anew at each size.
ir::AreAlike are_alike_in(const ir::TraceContext& context) {
  return [&context](ir::ObjectConstant left, ir::ObjectConstant right) {
    const auto& [kind, owner, description] = context.objects[left.index];
    const auto& other = context.objects[right.index];
    if (kind != ir::ObjectKind::kTensor || other.kind != kind) return false;
    const at::Tensor& one = bridge::tensor_of(context, ir::Argument(left));
    const at::Tensor& another = bridge::tensor_of(context, ir::Argument(right));
    return is_number_of_tensor(one) && is_number_of_tensor(another) && one.scalar_type() == another.scalar_type() &&
           at::equal(one, another);
  };
}

/// A computation at each of the sizes, differentiated.
class SymbolicGrad {
 public:
  explicit SymbolicGrad(const ir::Trace& computation)
      : context_(computation.context()),
        conditions_(computation.conditions),
        sizes_type_(type_of_sizes(computation)),
        fit_(ir::sample_sizes(computation)) {
    if (fit_.samples().empty()) {
      throw UserError(ErrorKind::kNotImplemented,
                      "expected a program that is differentiated for many sizes, got conditions that few meet");
    }
    fit_.add_all(computation);
    const ManySizes are_many;
    std::map<std::size_t, ForwardBackward> made;
    for (const std::size_t i : from_small_to_large()) {
      const ir::Trace at_sample = tracer::at_sizes_with_gradients(computation, fit_.samples()[i]);
      const auto place = made.emplace(i, forward_and_backward(at_sample)).first;
      require_as_many_symbols(place->second, made.begin()->second);
    }
    for (auto& [i, gradient] : made) gradients_.push_back(std::move(gradient));
  }

  ForwardBackward run() {
    ForwardBackward result = gradients_[0];
    result.derive_backward = nullptr;
    result.forward = generalized([](const ForwardBackward& gradient) { return gradient.forward; });
    result.backward = with_sizes(generalized([](const ForwardBackward& gradient) { return gradient.backward; }));
    for (const ForwardBackward& gradient : gradients_) {
      const bool is_alike = gradient.saved == result.saved &&
                            gradient.differentiable_outputs == result.differentiable_outputs &&
                            gradient.differentiable_inputs == result.differentiable_inputs &&
                            gradient.requires_grad == result.requires_grad;
      THUNDER_CHECK(is_alike, "grad", "equal traces have other derivatives");
    }
    result.forward.conditions = conditions_;
    ir::require_sizes_of_two(result.forward, ir::Trace(result.forward));
    ir::require_sizes_of_two(result.forward, result.backward);
    save_sizes(result);
    return result;
  }

  /// A backward for some of the cotangents.
  ir::Trace derive(const std::vector<bool>& cotangents) {
    const ManySizes are_many;
    ir::Trace backward =
        with_sizes(generalized([&](const ForwardBackward& gradient) { return backward_for(gradient, cotangents); }));
    ir::require_sizes_of_two(backward, ir::Trace(backward));
    return backward;
  }

 private:
  /// The places of the samples: first the sizes that were traced.
  [[nodiscard]] std::vector<std::size_t> from_small_to_large() const {
    std::vector<std::size_t> places(fit_.samples().size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    const auto sum = [this](std::size_t place) {
      return std::reduce(fit_.samples()[place].begin(), fit_.samples()[place].end());
    };
    std::ranges::sort(places.begin() + 1, places.end(), {}, sum);
    return places;
  }

  /// A derivative that goes over the steps of a sequence, such as that of `gru`, is another one for each length: the
  /// smallest sizes tell.
  static void require_as_many_symbols(const ForwardBackward& gradient, const ForwardBackward& first) {
    const bool has_as_many = gradient.forward.symbols.size() == first.forward.symbols.size() &&
                             gradient.backward.symbols.size() == first.backward.symbols.size();
    if (has_as_many) return;
    throw UserError(ErrorKind::kNotImplemented,
                    "expected a derivative of as many operations at all sizes, got one that depends on them");
  }

  static ir::TypePtr type_of_sizes(const ir::Trace& computation) {
    const std::vector<std::int64_t> traced = ir::traced_symbols(computation);
    ir::TensorType type;
    type.dtype = ir::Dtype::kUint8;
    type.sizes.emplace_back(0);
    for (const ir::SymbolSource& source : ir::symbol_sources(computation)) {
      type.sizes.push_back(ir::Dim::symbol(source.symbol, traced[source.symbol]));
    }
    type.strides.assign(type.sizes.size(), ir::Dim(1));
    return ir::make_type(std::move(type));
  }

  template <typename Get>
  ir::Trace generalized(const Get& get) {
    std::vector<ir::Trace> traces;
    std::ranges::transform(gradients_, std::back_inserter(traces), get);
    return ir::generalize(traces, fit_, are_alike_in(*context_));
  }

  ir::Trace with_sizes(ir::Trace backward) const {
    backward.inputs.insert(backward.inputs.begin(), backward.add_value(sizes_type_, "sizes"));
    return backward;
  }

  void save_sizes(ForwardBackward& gradient) const {
    const ir::TensorType& type = std::get<ir::TensorType>(*sizes_type_);
    const ir::ValueId sizes = gradient.forward.add_value(sizes_type_, "sizes");
    gradient.requires_grad.resize(gradient.forward.value_count());
    ir::BoundSymbol made = tracer::empty_symbol(type, sizes);
    made.comment = "sizes for the backward";
    gradient.forward.add(std::move(made));
    gradient.saved.insert(gradient.saved.begin(), sizes);
    const auto place = gradient.forward.outputs.begin() + static_cast<std::ptrdiff_t>(gradient.output_count);
    gradient.forward.outputs.insert(place, ir::Argument(sizes));
  }

  std::shared_ptr<ir::TraceContext> context_;
  std::vector<ir::Condition> conditions_;
  ir::TypePtr sizes_type_;
  ir::SizeFit fit_;
  std::vector<ForwardBackward> gradients_;  ///< by sample
};

}  // namespace

ForwardBackward symbolic_forward_and_backward(const ir::Trace& computation) {
  const auto grad = std::make_shared<SymbolicGrad>(computation);
  ForwardBackward gradient = grad->run();
  if (gradient.differentiable_outputs.size() > 1) {
    gradient.derive_backward = [grad](const std::vector<bool>& cotangents) { return grad->derive(cotangents); };
  }
  return gradient;
}

}  // namespace thunder::transforms
