#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dispatch/call/specialization.h"
#include "dispatch/segments/segment_walk.h"

namespace thunder::dispatch {

/// How a set answered a call.
enum class Served : std::uint8_t {
  kNo,     ///< no specialization holds
  kYes,    ///< the result is a new reference, or null with an exception set
  kEager,  ///< it is to run in eager; an exception is set where a program raised it, which has written nothing
};

/// Specializations of one callable that share a guard tree. Used under the GIL; a call may release it while it runs, so
/// a set is held by a shared pointer for as long as a call uses it.
class GuardedSet {
 public:
  using Candidates = interpreter::Candidates;

  /// `number`: of the specialization among all that its callable had.
  void add(std::shared_ptr<const Specialization> specialization, std::size_t number);
  [[nodiscard]] std::size_t number_of(std::size_t index) const { return uses_[index].number; }
  /// A set of the others, without those `count` that were not used for longest.
  [[nodiscard]] std::shared_ptr<GuardedSet> without_least_used(std::size_t count) const;
  /// Whether a specialization holds for no call any more, as an object is dead that it had read by.
  [[nodiscard]] bool has_dead() const;
  [[nodiscard]] std::shared_ptr<GuardedSet> without_dead() const;
  [[nodiscard]] bool is_full() const { return tree_.is_full(); }
  [[nodiscard]] const std::vector<std::shared_ptr<const Specialization>>& specializations() const { return members_; }
  [[nodiscard]] const interpreter::GuardTree& tree() const { return tree_; }

  /// Those made under this state of the thread.
  [[nodiscard]] Candidates made_under(const ThreadState& state) const;
  /// Those of `candidates` whose guards hold; nothing runs.
  [[nodiscard]] Candidates check(const interpreter::CallArguments& arguments, Candidates candidates);

  /// Runs the first of the candidates that holds, last resorts last.
  Served call(const interpreter::CallArguments& arguments, Candidates candidates, PyObject** result);
  /// Where the last call that looked at data observed a value that no specialization goes on with.
  [[nodiscard]] const std::optional<Stop>& last_stop() const { return last_stop_; }
  /// The tensors that it had computed by then, by value of the recorded trace; empty where it does not run in segments.
  /// `keep_values` asks for it.
  [[nodiscard]] std::vector<at::Tensor> take_values() { return std::exchange(stopped_values_, {}); }
  void keep_values(bool keeps) { keeps_values_ = keeps; }
  /// The first specialization, for objects outside of the call that are what they were when it was made; its arguments
  /// are checked. `kNo` when they differ.
  Served call_first(const interpreter::CallArguments& arguments, PyObject** result);

  /// For messages: the guards of a specialization that the call does not meet.
  [[nodiscard]] std::vector<interpreter::GuardFailure> failures(std::size_t index,
                                                                const interpreter::CallArguments& arguments) const;
  int visit(visitproc visitor, void* argument) const;

 private:
  struct Use {
    std::size_t number = 0;
    std::uint64_t last = 0;  ///< on `clock_`
  };

  [[nodiscard]] std::shared_ptr<GuardedSet> of_members(const std::function<bool(std::size_t index)>& is_kept) const;
  void note_use(std::size_t index) {
    recent_ = index;
    uses_[index].last = ++clock_;
  }
  Served run(std::size_t index, const interpreter::GuardRun& found, PyObject** result);
  Served call_any(const interpreter::CallArguments& arguments, Candidates candidates, PyObject** result);
  std::uint32_t guard_number(const TensorGuard& guard);
  [[nodiscard]] interpreter::TensorCheck tensor_check(const std::vector<TensorGuard>& guards) const;
  [[nodiscard]] std::size_t choose(Candidates accepted) const;
  /// Members whose paths begin alike, kept alive: others may be added while one runs.
  struct Family {
    std::vector<std::size_t> indices;
    std::vector<std::shared_ptr<const Specialization>> members;
    std::vector<const SegmentPath*> paths;
    bridge::RandomSources random;
    bool releases_gil = false;
  };
  /// Takes `first`, and those that begin like it, out of `candidates`.
  [[nodiscard]] Family take_family(std::size_t first, Candidates& candidates) const;
  /// Walks the paths of the family of `first`, which is gone from `candidates` when none served the call.
  Served call_in_segments(const interpreter::CallArguments& arguments, const interpreter::GuardRun& found,
                          std::size_t first, Candidates& candidates, PyObject** result);

  interpreter::GuardTree tree_;
  std::vector<std::shared_ptr<const Specialization>> members_;
  std::vector<Use> uses_;                   ///< one for each member
  std::uint64_t clock_ = 0;                 ///< calls that were served
  std::vector<TensorGuard> tensor_guards_;  ///< distinct ones
  std::vector<std::pair<ThreadState, Candidates>> states_;
  std::size_t recent_ = 0;
  Candidates last_resorts_ = 0;
  std::optional<Stop> last_stop_;
  bool keeps_values_ = false;
  std::vector<at::Tensor> stopped_values_;
};

}  // namespace thunder::dispatch
