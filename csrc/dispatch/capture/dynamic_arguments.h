#pragma once

#include <Python.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dispatch/call/trace_options.h"
#include "interpreter/loop/interpret.h"
#include "tracer/size_shadows.h"

namespace thunder::dispatch {

/// Which sizes of the tensors among a call's arguments are symbols. Sizes that are equal are one: programs compute with
/// tensors whose sizes fit, and a call where they are no longer equal is another specialization's. Sizes of zero and
/// one are numbers, as are those of tensors with gaps.
class DynamicArguments {
 public:
  /// `pinned`: sizes, of the arguments, that earlier attempts found to be needed as numbers.
  DynamicArguments(const interpreter::CallArguments& arguments, DynamicSizes which,
                   const std::map<std::int64_t, std::string>& pinned);

  [[nodiscard]] const std::vector<tracer::SizeSymbol>& symbols() const { return symbols_; }
  /// By dimension; empty: all are numbers.
  [[nodiscard]] std::vector<std::optional<std::uint32_t>> symbols_of(PyObject* tensor) const;

 private:
  struct Bounds {
    std::int64_t least = 2;
    std::int64_t most = 0;
  };
  void add(PyObject* object, int depth);
  void add_tensor(PyObject* object);
  /// nullopt: the size is a number.
  [[nodiscard]] std::optional<Bounds> bounds_of(PyObject* marks, std::int64_t dim) const;
  std::uint32_t symbol_for(std::int64_t size, const Bounds& bounds);

  DynamicSizes which_;
  const std::map<std::int64_t, std::string>& pinned_;
  std::vector<tracer::SizeSymbol> symbols_;
  std::unordered_map<PyObject*, std::vector<std::optional<std::uint32_t>>> by_tensor_;
};

}  // namespace thunder::dispatch
