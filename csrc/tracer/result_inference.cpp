#include "tracer/result_inference.h"

#include <utility>

#include "base/error.h"
#include "tracer/autocast.h"
#include "tracer/data_access.h"
#include "tracer/data_dependence.h"
#include "tracer/operators.h"
#include "tracer/probe.h"
#include "tracer/recording_scopes.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

bool is_of_pytorch(const c10::OperatorHandle& op) { return op.operator_name().name.starts_with("aten::"); }

}  // namespace

ResultInference::Types ResultInference::infer(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                                              Level level) {
  if (!is_composite(op)) return infer_whole(op, arguments, level);
  try {
    auto types = infer_whole(op, arguments, level);
    return types->has_aliases() ? nullptr : types;
  } catch (const DataNeeded&) {
    if (level == Level::kBottom) throw;
    return nullptr;
  }
}

void ResultInference::expect(const c10::OperatorHandle& op, Types types) {
  expected_operator_ = op;
  expected_types_ = std::move(types);
}

ResultInference::Types ResultInference::infer_whole(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                                                    Level level) {
  if (!shape_follows_data(op, arguments)) {
    try {
      return infer_without_data(op, arguments, level);
    } catch (const DataNeeded&) {
      if (is_composite(op) || op.schema().returns().empty()) throw;
      if (level == Level::kBottom && expected_operator_ != op) {
        if (trace_level_ == Level::kTop || !is_of_pytorch(op)) throw;
        return infer_by_probe_cached(op, arguments);
      }
    }
  }
  if (level == Level::kBottom && expected_operator_ == op) return expected_types_;
  if (trace_level_ == Level::kBottom) {
    throw UserError(ErrorKind::kNotImplemented,
                    op.schema().name() +
                        ": the derivative of an operation follows from data in a way that a trace cannot "
                        "hold; register a rule for it, or take the gradient of it in eager");
  }
  auto types = std::make_shared<ResultTypes>(data_.infer_by_running(op, arguments));
  types->from_data = true;
  return types;
}

ResultInference::Types ResultInference::infer_by_probe_cached(const c10::OperatorHandle& op,
                                                              std::span<const IValue> arguments) {
  auto types = std::make_shared<const ResultTypes>(infer_by_probe(op, arguments));
  if (const std::string key = metadata_key(op, arguments); !key.empty()) inferred_.emplace(key, types);
  return types;
}

ResultInference::Types ResultInference::infer_without_data(const c10::OperatorHandle& op,
                                                           std::span<const IValue> arguments, Level level) {
  const std::string key = metadata_key(op, arguments);
  if (!key.empty()) {
    const auto found = inferred_.find(key);
    if (found != inferred_.end()) return found->second;
  }
  const EvaluateOnly nothing_recorded;
  auto types =
      std::make_shared<const ResultTypes>(level == Level::kTop ? infer_top(op, arguments) : infer_leaf(op, arguments));
  if (!key.empty() && types->has_tensors()) inferred_.emplace(key, types);
  return types;
}

bool ResultInference::is_taken_apart(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  if (!is_autocast_on() || !is_composite(op)) return false;
  const std::string key = metadata_key(op, arguments);
  if (key.empty()) return parts_meet_autocast(op, arguments);
  const auto [known, is_new] = taken_apart_.try_emplace(key);
  if (is_new) known->second = parts_meet_autocast(op, arguments);
  return known->second;
}

}  // namespace thunder::tracer
