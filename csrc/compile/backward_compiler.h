#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "compile/pass_runner.h"
#include "compile/pipeline.h"
#include "runtime/differentiable_program.h"

namespace thunder::compile {

/// Makes the backwards of a computation whose forward is compiled: one for each set of cotangents, when it first comes.
/// Steps of the backward for all cotangents that decide what is saved were run before, and are not repeated.
class BackwardCompiler {
 public:
  /// `usual`: all cotangents that can come. `backward` is as `run_pipeline` leaves it.
  BackwardCompiler(std::shared_ptr<const Compilation> compilation, TraceLine backward, PassRunner runner,
                   runtime::CotangentSet usual);

  /// Any thread may ask. To be called without the GIL where others might ask too: the executors and transforms of the
  /// user take it.
  [[nodiscard]] std::shared_ptr<const runtime::BackwardProgram> get(const runtime::CotangentSet& cotangents);
  /// Which gradients depend on something that requires grad: `differentiable` says which of the cotangents do.
  [[nodiscard]] std::vector<bool> find_differentiable(const runtime::CotangentSet& cotangents,
                                                      const runtime::CotangentSet& differentiable);
  void make_usual() { static_cast<void>(get(usual_)); }

  /// Returns when the kernels of the backwards that were made are there, or have failed.
  void wait();
  /// The traces of the backward that was made last; makes the usual one when there is none yet.
  [[nodiscard]] std::vector<ir::Trace> traces();
  /// The effects of passes on all backwards that were made until now.
  [[nodiscard]] std::vector<passes::PassStatistics> statistics() const;

 private:
  /// By saved value, as the forward was derived.
  [[nodiscard]] std::vector<bool> differentiable_saved_values() const;
  [[nodiscard]] TraceLine take_line(const runtime::CotangentSet& cotangents);

  const std::shared_ptr<const Compilation> compilation_;
  TraceLine backward_;  ///< for all cotangents, until it is taken
  bool is_taken_ = false;
  ir::TraceArchive derived_;  ///< the backward for all cotangents, as it was derived
  const PassRunner runner_;
  const runtime::CotangentSet usual_;
  std::mutex making_;
  std::map<runtime::CotangentSet, std::shared_ptr<const runtime::BackwardProgram>> made_;
  std::map<std::pair<runtime::CotangentSet, runtime::CotangentSet>, std::vector<bool>> differentiable_;

  mutable std::mutex reporting_;  ///< never held while something is made
  TraceHistory last_;
  std::vector<passes::PassStatistics> statistics_;
};

}  // namespace thunder::compile
