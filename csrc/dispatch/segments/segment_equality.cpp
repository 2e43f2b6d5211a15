#include <ATen/core/ivalue.h>

#include <algorithm>

#include "bridge/number.h"
#include "dispatch/segments/segments.h"
#include "tracer/custom_gradient.h"
#include "tracer/python_function.h"

namespace thunder::dispatch {
namespace {

/// Compares symbols of two traces that number their values alike.
class Comparison {
 public:
  Comparison(const ir::Trace& left, const ir::Trace& right) : left_(left), right_(right) {}

  [[nodiscard]] bool same(const ir::BoundSymbol& left, const ir::BoundSymbol& right) const {
    return left.op == right.op && same(left.arguments, right.arguments) && same(left.results, right.results);
  }
  [[nodiscard]] bool same(const std::vector<ir::BoundSymbol>& left, const std::vector<ir::BoundSymbol>& right) const {
    return std::ranges::equal(left, right, [this](const auto& a, const auto& b) { return same(a, b); });
  }

 private:
  [[nodiscard]] bool same(const ir::ArgumentList& left, const ir::ArgumentList& right) const {
    return std::ranges::equal(left, right, [this](const auto& a, const auto& b) { return same(a, b); });
  }

  [[nodiscard]] bool same(const ir::Argument& left, const ir::Argument& right) const {
    if (left.content.index() != right.content.index()) return false;
    if (const auto* list = left.get<ir::ArgumentList>()) return same(*list, *right.get<ir::ArgumentList>());
    if (const auto* object = left.get<ir::ObjectConstant>()) return same(*object, *right.get<ir::ObjectConstant>());
    return ir::identical(left, right);
  }

  [[nodiscard]] bool same(ir::ObjectConstant left, ir::ObjectConstant right) const {
    const auto& a = left_.context()->objects.at(left.index);
    const auto& b = right_.context()->objects.at(right.index);
    if (a.owner == b.owner) return true;
    if (a.kind != b.kind || a.owner == nullptr || b.owner == nullptr) return false;
    switch (a.kind) {
      case ir::ObjectKind::kTensor:
        return same(as<at::Tensor>(a), as<at::Tensor>(b));
      case ir::ObjectKind::kCustomGradient:
        return same(as<tracer::CustomGradient>(a), as<tracer::CustomGradient>(b));
      case ir::ObjectKind::kPythonFunction:
        return as<tracer::PythonFunction>(a).does_the_same(as<tracer::PythonFunction>(b));
      case ir::ObjectKind::kGenerator:
        return as<c10::IValue>(a).toGenerator() == as<c10::IValue>(b).toGenerator();
      case ir::ObjectKind::kDispatcherValue:
      case ir::ObjectKind::kPythonObject:
        return false;
    }
    return false;
  }

  template <typename T>
  static const T& as(const ir::TraceContext::Object& object) {
    return *static_cast<const T*>(object.owner.get());
  }
  [[nodiscard]] static bool same(const at::Tensor& left, const at::Tensor& right) {
    return left.device() == right.device() && bridge::same_contents(left, right);
  }
  [[nodiscard]] bool same(const tracer::CustomGradient& left, const tracer::CustomGradient& right) const {
    return left.cotangents == right.cotangents && left.reads == right.reads && left.inputs == right.inputs &&
           left.gradients == right.gradients && same(left.symbols, right.symbols);
  }

  const ir::Trace& left_;
  const ir::Trace& right_;
};

bool requires_grad(const ir::Trace& trace, ir::ValueId id) {
  const ir::TensorType* type = trace.tensor_type(id);
  return type != nullptr && type->requires_grad;
}

}  // namespace

bool same_segment(const Segment& left, const Segment& right) {
  if (left.recorded != right.recorded || left.inputs != right.inputs || left.is_bare != right.is_bare) return false;
  if (left.reads_overwritten != right.reads_overwritten) return false;
  if (left.trace.conditions != right.trace.conditions) return false;
  if (left.observation.values != right.observation.values || left.observation.check != right.observation.check)
    return false;
  for (std::size_t i = 0; i < left.recorded.size(); ++i) {
    const ir::ValueId id{static_cast<std::uint32_t>(i)};
    // The shapes of a bare segment's results follow from data, so that they may differ.
    const bool has_any_shape = left.is_bare && i >= left.inputs.size();
    if (has_any_shape ? requires_grad(left.trace, id) != requires_grad(right.trace, id)
                      : !(*left.trace.value(id).type == *right.trace.value(id).type)) {
      return false;
    }
  }
  return Comparison(left.trace, right.trace).same(left.trace.symbols, right.trace.symbols);
}

Segment with_outputs(Segment segment, std::span<const ir::ValueId> outputs) {
  for (const ir::ValueId id : outputs) {
    if (std::ranges::find(segment.outputs, id) != segment.outputs.end()) continue;
    const auto here = std::ranges::find(segment.recorded, id) - segment.recorded.begin();
    segment.outputs.push_back(id);
    segment.trace.outputs.emplace_back(ir::ValueId{static_cast<std::uint32_t>(here)});
  }
  return segment;
}

}  // namespace thunder::dispatch
