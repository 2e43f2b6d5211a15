#pragma once

#include <Python.h>

#include <optional>
#include <string>
#include <vector>

#include "dispatch/call/guarded_set.h"

namespace thunder::dispatch {

/// A guard that did not hold, for people.
struct FailedGuard {
  std::string expression;
  std::string expected;
  std::string found;
  std::string file;  ///< where the line stands that read it; empty when no line did
  int line = 0;
};

/// Why a call was traced.
struct Miss {
  std::uint64_t call = 0;             ///< the number of the call, from 1
  std::size_t specialization = 0;     ///< the number of the specialization that it made, from 0
  std::size_t compared_with = 0;      ///< the number of the one that came closest
  std::string reason;                 ///< when no guard failed: "the first call", …; else which numbers are needed
  std::vector<FailedGuard> failures;  ///< guards of the closest specialization
};

/// Where the call that just failed observed data that no specialization goes on with; nullopt: it failed at guards.
[[nodiscard]] std::optional<Stop> stop_of_last_call(const std::vector<std::shared_ptr<GuardedSet>>& sets);
/// Compares the call with all specializations of `sets` and tells why the closest one does not serve it.
[[nodiscard]] Miss explain_miss(const std::vector<std::shared_ptr<GuardedSet>>& sets, const ThreadState& now,
                                const interpreter::CallArguments& arguments);
/// The first causes as one line.
[[nodiscard]] std::string summary(const Miss& miss);
/// `; most often: x.step (in 60 of 63 traces)`: what the traces after the first one were most often made for. Empty
/// when no guard stands out.
[[nodiscard]] std::string most_often(const std::vector<Miss>& misses);
/// A list of tuples `(call, specialization, compared_with, reason, [(expression, expected, found, file, line)])`.
[[nodiscard]] PyObject* to_python(const std::vector<Miss>& misses);

}  // namespace thunder::dispatch
