#include "compile/pass_runner.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/timer.h"
#include "compile/foreign_error.h"
#include "compile/reproduction.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "tracer/operators.h"

namespace thunder::compile {
namespace {

#ifdef NDEBUG
constexpr bool kAlwaysVerify = false;
#else
constexpr bool kAlwaysVerify = true;
#endif

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string padded(std::size_t number) {
  std::string text = std::to_string(number);
  return std::string(text.size() < 2 ? 2 - text.size() : 0, '0') + text;
}

/// The dispatcher's messages list every kernel of an operator.
std::string shortened(std::string message) {
  constexpr std::size_t kEnough = 600;
  if (message.size() > kEnough) message.resize(kEnough);
  return message;
}

std::atomic<TraceCheck> installed_check = nullptr;

[[noreturn]] void throw_internal_error(const std::string& step, const ir::Trace& trace, const std::string& reason) {
  const std::string path = write_reproduction(trace, step + ": " + reason);
  throw InternalError(step, reason + "\nThis is a bug in thunder. The trace that it happened with" +
                                (path.empty() ? ":\n" + ir::print(trace) : ", as a script: " + path));
}

}  // namespace

const ir::Operator* find_operator(const std::string& name, const std::string& overload) {
  if (name == tracer::tensor_constant_operator()->name) return tracer::tensor_constant_operator();
  return tracer::find_operator(name, overload);
}

void set_trace_check(TraceCheck check) { installed_check = check; }
TraceCheck trace_check() { return installed_check; }

PassRunner::PassRunner(const Options& options, const std::vector<std::string>& valid)
    : disabled_(options.disabled_passes.begin(), options.disabled_passes.end()),
      verify_(options.verify || kAlwaysVerify),
      dump_folder_(environment("THUNDER_DUMP")) {
  std::istringstream names(environment("THUNDER_DISABLE_PASSES"));
  for (std::string name; std::getline(names, name, ',');) {
    if (!name.empty()) disabled_.insert(name);
  }
  for (const std::string& name : disabled_) {
    if (std::ranges::find(valid, name) != valid.end()) continue;
    std::string list;
    for (const std::string& candidate : valid) list += (list.empty() ? "" : ", ") + candidate;
    throw UserError(ErrorKind::kValue, "disabled passes: expected names among " + list + ", got " + name);
  }
  static std::atomic<std::size_t> compilations = 0;
  dump_prefix_ = padded(compilations++);
}

void PassRunner::run(const passes::Pass& pass, TraceHistory& history) const {
  if (!is_enabled(pass.name)) return;
  std::size_t symbols_before = history.last().symbols.size();
  run_step(pass.name, history, [&] { keep(pass.name, pass.run(history.last(), &find_operator), history); });
  history.statistics.back().symbols_before = symbols_before;
}

void PassRunner::run_step(const std::string& name, TraceHistory& about, const std::function<void()>& step) const {
  const Timer timer;
  try {
    step();
  } catch (const UserError&) {
    throw;
  } catch (const c10::Error& error) {
    throw_internal_error(name, about.last(), shortened(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    rethrow_foreign();
    throw_internal_error(name, about.last(), error.what());
  }
  const double seconds = timer.seconds();
  const std::size_t symbols = about.last().symbols.size();
  about.statistics.push_back({name, about.last().name(), seconds, symbols, symbols});
}

void PassRunner::keep(const std::string& step, ir::Trace trace, TraceHistory& history) const {
  if (verify_) ir::verify(trace, step);
  if (const TraceCheck check = trace_check()) check(trace);
  history.add(std::move(trace));
  dump(step, history);
}

void PassRunner::dump(const std::string& step, const TraceHistory& history) const {
  if (dump_folder_.empty()) return;
  std::filesystem::create_directories(dump_folder_);
  const std::string name =
      dump_prefix_ + "_" + history.last().name() + "_" + padded(history.size() - 1) + "_" + step + ".py";
  std::ofstream(std::filesystem::path(dump_folder_) / name) << ir::print(history.last());
}

}  // namespace thunder::compile
