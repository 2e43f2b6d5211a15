#include "transforms/symbolic_grad.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bridge/constant.h"
#include "ir/builder.h"
#include "ir/generalization.h"
#include "ir/location.h"
#include "ir/trace_sizes.h"
#include "tracer/evaluate.h"
#include "tracer/gradients_at_sizes.h"
#include "tracer/size_notes.h"
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
        fit_(differentiate(computation)) {
    for (const auto& [left, right] : fit_.add_all(computation)) {
      std::ranges::copy(ir::equality_of(left, right), std::back_inserter(conditions_));
    }
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
  /// Takes the derivative at each of some sizes, and gives these. Where a formula is another one below some size, the
  /// derivative is for sizes from there on.
  ir::SizeSamples differentiate(const ir::Trace& computation) {
    constexpr int kMostAttempts = 3;
    const ManySizes are_many;
    ir::Trace bounded = computation;
    for (int attempt = 0;; ++attempt) {
      ir::SizeSamples samples = ir::sample_sizes(bounded);
      if (samples.empty()) {
        throw UserError(ErrorKind::kNotImplemented,
                        "expected a program that is differentiated for many sizes, got conditions that few meet");
      }
      const Attempt made = differentiate_at(computation, samples);
      if (made.failing.empty()) return samples;
      const auto bounds = tracer::bounds_between(made.fitting, made.failing);
      if (!bounds || attempt == kMostAttempts) {
        if (made.error) std::rethrow_exception(made.error);
        for (const ForwardBackward& gradient : gradients_) {
          if (!has_as_many_symbols(gradient, gradients_[0])) refuse_for_sizes();
        }
        return samples;  // the error names the operation that is another one
      }
      std::ranges::copy(*bounds, std::back_inserter(bounded.conditions));
      conditions_ = bounded.conditions;
    }
  }

  /// Samples at which the derivative is the one at the sizes that were traced, and others.
  struct Attempt {
    std::vector<ir::SymbolValues> fitting, failing;
    std::exception_ptr error;
  };

  Attempt differentiate_at(const ir::Trace& computation, const ir::SizeSamples& samples) {
    Attempt attempt;
    std::map<std::size_t, ForwardBackward> made;
    const ForwardBackward* other = nullptr;
    for (const std::size_t i : ir::from_small_to_large(samples)) {
      try {
        made.emplace(i, forward_and_backward(tracer::at_sizes_with_gradients(computation, samples[i])));
      } catch (const std::exception&) {
        if (i == 0) throw;
        if (tracer::forget_python_error != nullptr) tracer::forget_python_error();
        if (!attempt.error) attempt.error = std::current_exception();
        attempt.failing.emplace_back(samples[i]);
        continue;
      }
      const ForwardBackward& gradient = made.at(i);
      const bool fits = has_same_operations(gradient, made.at(0));
      (fits ? attempt.fitting : attempt.failing).emplace_back(samples[i]);
      if (fits) continue;
      if (other != nullptr && !has_as_many_symbols(*other, gradient)) refuse_for_sizes();
      other = &gradient;
    }
    gradients_.clear();
    for (auto& [i, gradient] : made) gradients_.push_back(std::move(gradient));
    return attempt;
  }

  static bool has_as_many_symbols(const ForwardBackward& left, const ForwardBackward& right) {
    return left.forward.symbols.size() == right.forward.symbols.size() &&
           left.backward.symbols.size() == right.backward.symbols.size();
  }

  /// A derivative that goes over the steps of a sequence, such as that of `gru`, is another one for each length: the
  /// smallest sizes tell.
  [[noreturn]] static void refuse_for_sizes() {
    throw UserError(ErrorKind::kNotImplemented,
                    "expected a derivative of as many operations at all sizes, got one that depends on them");
  }

  static bool has_same_operations(const ForwardBackward& left, const ForwardBackward& right) {
    const auto are_alike = [](const ir::Trace& one, const ir::Trace& other) {
      return std::ranges::equal(one.symbols, other.symbols, {}, &ir::BoundSymbol::op, &ir::BoundSymbol::op);
    };
    return are_alike(left.forward, right.forward) && are_alike(left.backward, right.backward);
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
  std::vector<ForwardBackward> gradients_;  ///< by sample
  ir::SizeFit fit_;
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
