#include "dispatch/call/miss.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

namespace thunder::dispatch {
namespace {

void add_state_differences(const ThreadState& made, const ThreadState& now, std::vector<FailedGuard>& failures) {
  const std::vector<ThreadState::Entry> before = made.entries();
  const std::vector<ThreadState::Entry> after = now.entries();
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].value == after[i].value) continue;
    failures.push_back({before[i].expression, before[i].value, after[i].value, {}, 0});
  }
}

/// How a specialization differs from a call.
struct Difference {
  std::vector<FailedGuard> failures;
  std::size_t guards = 0;  ///< that the call does not meet, those included that nothing is left to be checked for
};

/// Why a specialization whose guards hold does not serve the call.
std::string unmet(const Specialization& specialization) {
  if (specialization.size_conditions.empty()) return "inputs share memory in another way";
  std::string reason = "sizes do not meet the conditions of its program:";
  for (const std::string& condition : specialization.size_conditions) reason += "\n  " + condition;
  return reason;
}

/// Whether a number is among those of a text: the 8 of `float32[8, 16]`.
bool has_number(const std::string& text, const std::string& number) {
  const auto is_digit = [&](std::size_t at) {
    return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  for (std::size_t at = text.find(number); at != std::string::npos; at = text.find(number, at + 1)) {
    const bool begins = at == 0 || (!is_digit(at - 1) && text[at - 1] != '-');
    if (begins && !is_digit(at + number.size())) return true;
  }
  return false;
}

/// Which of the numbers in guards that failed are there because the program needs them; empty: none is known to be.
std::string needed_numbers(const Specialization& specialization, const std::vector<FailedGuard>& failures) {
  std::string reason;
  for (const std::string& pinned : specialization.pinned_sizes) {
    const std::string number = pinned.substr(0, pinned.find(' '));
    const bool has_failed =
        std::ranges::any_of(failures, [&](const FailedGuard& failure) { return has_number(failure.expected, number); });
    if (has_failed) reason += (reason.empty() ? "it was needed as a number: " : "; ") + pinned;
  }
  return reason;
}

Difference compare(const GuardedSet& set, std::size_t index, const ThreadState& now,
                   const interpreter::CallArguments& arguments) {
  const Specialization& specialization = *set.specializations()[index];
  Difference difference;
  std::vector<FailedGuard>& failures = difference.failures;
  add_state_differences(specialization.state, now, failures);
  difference.guards = failures.size();
  for (const interpreter::GuardFailure& failure : set.failures(index, arguments)) {
    const interpreter::GuardInfo info = specialization.guards.info(failure.guard);
    const std::string file = info.location.file == nullptr ? std::string() : *info.location.file;
    failures.push_back({info.expression, info.expected, failure.found, file, info.location.line});
    difference.guards += 1 + failure.unchecked;
  }
  return difference;
}

py::Ref text(const std::string& value) {
  return py::Ref::steal(PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "backslashreplace"));
}

py::Ref to_python(const FailedGuard& failure) {
  const py::Ref expression = text(failure.expression), expected = text(failure.expected), found = text(failure.found);
  const py::Ref file = text(failure.file);
  if (!expression || !expected || !found || !file) return nullptr;
  return py::Ref::steal(
      Py_BuildValue("(OOOOi)", expression.get(), expected.get(), found.get(), file.get(), failure.line));
}

py::Ref to_python(const Miss& miss) {
  const py::Ref failures = py::Ref::steal(PyList_New(0));
  for (const FailedGuard& failure : miss.failures) {
    const py::Ref item = failures ? to_python(failure) : py::Ref();
    if (!item || PyList_Append(failures.get(), item.get()) < 0) return nullptr;
  }
  const py::Ref reason = text(miss.reason);
  if (!failures || !reason) return nullptr;
  return py::Ref::steal(Py_BuildValue("(KnnOO)", static_cast<unsigned long long>(miss.call),
                                      static_cast<Py_ssize_t>(miss.specialization),
                                      static_cast<Py_ssize_t>(miss.compared_with), reason.get(), failures.get()));
}

std::string describe(const Stop& stop) {
  std::string reason = stop.unmet.empty()
                           ? "a number or shape that was read from a tensor's data is another one, or the outcome of a "
                             "condition on a number that changes"
                           : "the program is for sizes for which " + stop.unmet;
  if (stop.location.file == nullptr) return reason;
  return reason + " (read at " + *stop.location.file + ":" + std::to_string(stop.location.line) + ")";
}

}  // namespace

std::optional<Stop> stop_of_last_call(const std::vector<std::shared_ptr<GuardedSet>>& sets) {
  for (const auto& set : sets) {
    if (set->last_stop()) return set->last_stop();
  }
  return std::nullopt;
}

Miss explain_miss(const std::vector<std::shared_ptr<GuardedSet>>& sets, const ThreadState& now,
                  const interpreter::CallArguments& arguments) {
  Miss miss;
  bool is_first = true;
  std::string reason;
  std::size_t fewest = 0;
  for (const auto& set : sets) {
    for (std::size_t i = 0; i < set->specializations().size(); ++i) {
      Difference difference = compare(*set, i, now, arguments);
      // The newest of those that come equally close.
      if (!is_first && difference.guards > fewest) continue;
      fewest = difference.guards;
      miss.failures = std::move(difference.failures);
      miss.compared_with = set->number_of(i);
      const Specialization& closest = *set->specializations()[i];
      reason = miss.failures.empty() ? unmet(closest) : needed_numbers(closest, miss.failures);
      is_first = false;
    }
  }
  if (is_first) {
    miss.reason = "the first call";
  } else if (miss.failures.empty()) {
    const std::optional<Stop> stop = stop_of_last_call(sets);
    miss.reason = stop ? describe(*stop) : reason;
  } else {
    miss.reason = std::move(reason);
  }
  return miss;
}

std::string summary(const Miss& miss) {
  if (miss.failures.empty()) return miss.reason;
  constexpr std::size_t kMostNamed = 3;
  std::string line;
  for (std::size_t i = 0; i < std::min(kMostNamed, miss.failures.size()); ++i) {
    const FailedGuard& guard = miss.failures[i];
    line += (i == 0 ? "" : "; ") + guard.expression + " was " + guard.expected + " and is " + guard.found;
    if (!guard.file.empty()) line += " (read at " + guard.file + ":" + std::to_string(guard.line) + ")";
  }
  if (miss.failures.size() > kMostNamed) line += "; and " + std::to_string(miss.failures.size() - kMostNamed) + " more";
  if (!miss.reason.empty()) line += "; " + miss.reason;
  return line;
}

std::string most_often(const std::vector<Miss>& misses) {
  std::map<std::string, std::size_t> counts;
  std::size_t traces = 0;
  for (const Miss& miss : misses) {
    std::set<std::string> expressions;
    for (const FailedGuard& failure : miss.failures) expressions.insert(failure.expression);
    for (const std::string& expression : expressions) ++counts[expression];
    traces += miss.failures.empty() ? 0 : 1;
  }
  const auto most = std::ranges::max_element(counts, {}, &std::pair<const std::string, std::size_t>::second);
  if (most == counts.end() || most->second < 2) return {};
  return "; most often: " + most->first + " (in " + std::to_string(most->second) + " of " + std::to_string(traces) +
         " traces)";
}

PyObject* to_python(const std::vector<Miss>& misses) {
  py::Ref list = py::Ref::steal(PyList_New(0));
  for (const Miss& miss : misses) {
    const py::Ref item = list ? to_python(miss) : py::Ref();
    if (!item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return list.release();
}

}  // namespace thunder::dispatch
