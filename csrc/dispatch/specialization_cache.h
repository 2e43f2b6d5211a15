#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dispatch/specialization.h"
#include "interpreter/python_ref.h"

namespace thunder::dispatch {

enum class CacheMode : std::uint8_t {
  kConstantValues,  ///< one specialization for each set of values that was guarded
  kNoCaching,       ///< a new trace for each call
};

/// The specializations of one callable. Calls look at a snapshot of the list; traces are made one at a time.
class SpecializationCache {
 public:
  SpecializationCache(PyObject* callable, compile::Options options, CacheMode mode, bool full_graph)
      : callable_(callable), options_(std::move(options)), mode_(mode), full_graph_(full_graph) {}

  /// A new reference, or null with an exception set.
  PyObject* call(const interpreter::CallArguments& arguments);

  [[nodiscard]] std::uint64_t hits() const { return hits_; }
  [[nodiscard]] std::uint64_t misses() const { return misses_; }
  /// The specialization that was compiled last; null before.
  [[nodiscard]] std::shared_ptr<const Specialization> last() const { return last_compiled_; }
  /// The specialization that ran last comes first.
  [[nodiscard]] std::vector<std::shared_ptr<const Specialization>> all() const;
  void clear();
  int visit(visitproc visitor, void* argument) const;

 private:
  using List = std::vector<std::shared_ptr<const Specialization>>;

  /// The outcome of the first specialization whose guards hold; null and no exception when none do.
  PyObject* try_all(const ThreadState& now, const interpreter::CallArguments& arguments);
  /// What keeps the newest specialization from serving the call.
  std::string why_not_last(const interpreter::CallArguments& arguments) const;
  /// Past the limit of specializations: warns once, naming the cause, and calls the function in eager.
  PyObject* call_eagerly(const interpreter::CallArguments& arguments);
  PyObject* trace_and_run(const interpreter::CallArguments& arguments);

  PyObject* callable_;  ///< the owner of the cache keeps it
  compile::Options options_;
  CacheMode mode_;
  bool full_graph_;
  bool warned_ = false;
  std::shared_ptr<const List> list_ = std::make_shared<List>();  ///< replaced under the GIL
  std::shared_ptr<const Specialization> last_compiled_;
  std::size_t recent_ = 0;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::recursive_mutex tracing_;
};

}  // namespace thunder::dispatch
