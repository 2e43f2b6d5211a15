#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "tracer/evaluate.h"
#include "tracer/recording_host.h"

namespace thunder::tracer {

class DataAccess;

/// The metadata that results of calls have, remembered by operator and the arguments' metadata for the length of a
/// trace.
class ResultInference {
 public:
  /// `level` is where the trace is recorded.
  ResultInference(Level level, DataAccess& data) : trace_level_(level), data_(data) {}

  using Types = std::shared_ptr<const ResultTypes>;
  /// Null: a composite that gives a view, whose primitive views are recorded, or that reads data on its way.
  [[nodiscard]] Types infer(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments, Level level);
  /// Whether autocast casts inside of a composite, whose parts are recorded then.
  [[nodiscard]] bool is_taken_apart(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  /// Types to take for the results of `op` where they follow from data; set by replays, which have none.
  void expect(const c10::OperatorHandle& op, Types types);

 private:
  Types infer_whole(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments, Level level);
  Types infer_without_data(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments, Level level);
  Types infer_by_probe_cached(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

  Level trace_level_;
  DataAccess& data_;
  std::unordered_map<std::string, Types> inferred_;
  std::unordered_map<std::string, bool> taken_apart_;
  std::optional<c10::OperatorHandle> expected_operator_;
  Types expected_types_;
};

}  // namespace thunder::tracer
