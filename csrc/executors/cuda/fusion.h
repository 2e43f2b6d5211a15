#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "executors/api/kernel_text.h"
#include "executors/cuda/engine.h"
#include "executors/cuda/launch_argument.h"
#include "executors/fused/fused_region.h"
#include "fusion/lowering.h"
#include "runtime/pending_kernels.h"

namespace thunder::executors::cuda {

/// A fused symbol, ready to run. Thread-safe.
class Fusion final : public runtime::PendingKernels {
 public:
  struct Options {
    /// Runs wait for kernels that are not compiled yet, and raise where one cannot be; else PyTorch runs the operations
    /// until a kernel is there.
    bool waits = false;
    bool is_batched = false;  ///< kernels run several fusions by one launch: see `Batch`
  };

  /// The fusion for a symbol of `fused_operator()`. Equal ones of all programs are one object.
  [[nodiscard]] static std::shared_ptr<const Fusion> of(const ir::BoundSymbol& fused, const ir::Trace& trace,
                                                        const fusion::Target& target, Engine& engine,
                                                        const Options& options);

  /// The fusion that programs have for the symbol; null: none has.
  [[nodiscard]] static std::shared_ptr<const Fusion> find(const ir::BoundSymbol& fused, const ir::Trace& trace,
                                                          Engine& engine, bool is_batched);

  /// Requests the kernel for inputs as they were traced, with symbols of these values.
  Fusion(ir::Trace region, const std::vector<std::int64_t>& traced_symbols, const fusion::Target& target,
         Engine& engine, const Options& options);

  /// Takes its inputs from the end of the stack and puts its results there. Behind the inputs stand the values of its
  /// symbols, if it has some. Inputs that were laid out otherwise when it was traced have a kernel of their own; where
  /// there is none, PyTorch runs the operations one by one.
  void run(std::vector<c10::IValue>& stack) const;

  /// The kernel that ran last, or the one that was requested first.
  [[nodiscard]] KernelText text() const;

  void wait() const override;
  [[nodiscard]] bool is_settled() const override;

  /// The symbols that sizes depend on, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& symbols() const { return symbols_; }

  /// The layout of inputs, which a kernel is for.
  struct Layout {
    std::vector<std::int64_t> symbols;  ///< their values, by index
    std::vector<std::int64_t> strides;  ///< input after input
    std::int64_t alignment = 1;         ///< in bytes, of all inputs
    friend bool operator==(const Layout&, const Layout&) = default;
  };
  struct Plan {
    Layout layout;
    std::shared_ptr<const FusedRegion> region;
    std::optional<KernelSource> source;  ///< none: PyTorch runs it
    std::shared_ptr<Compilation> compilation;

    [[nodiscard]] bool is_for(const std::vector<std::int64_t>& symbols, const c10::IValue* inputs) const;
  };
  using PlanPtr = std::shared_ptr<const Plan>;

  /// A run whose memory is there, before its kernels are launched.
  struct Run {
    Run(PlanPtr plan_of_run, const Module& module_of_plan)
        : plan(std::move(plan_of_run)), module(module_of_plan), parameters(source()) {}

    PlanPtr plan;
    const Module& module;
    Parameters parameters;
    std::vector<at::Tensor> results;
    std::vector<at::Tensor> copied;  ///< results that are written once all inputs are read; else undefined
    c10::DataPtr scratch;

    [[nodiscard]] const KernelSource& source() const { return *plan->source; }
    [[nodiscard]] at::Device device() const { return plan->region->device().value(); }
  };
  /// null: there is no kernel, so that `run_operations` does it.
  [[nodiscard]] std::unique_ptr<Run> prepare(const std::vector<std::int64_t>& symbols, const c10::IValue* inputs) const;
  /// Launches the kernels of runs of one module, no more than its capacity. False: a thread has stopped one.
  static bool launch(std::span<const Run* const> runs, Engine& engine);
  /// Keeps what kernels need that wait in a queue. Nothing may fail between `launch` and this.
  static void hold(Run& run, const c10::IValue* inputs, const Engine& engine);
  /// Ends a run whose kernels are launched.
  static void finish(const Run& run, const c10::IValue* inputs);
  /// Takes its inputs from the end of the stack and puts its results there, by PyTorch's operations.
  void run_operations(const std::vector<std::int64_t>& symbols, std::vector<c10::IValue>& stack) const;

 private:
  void request(const std::vector<std::int64_t>& traced_symbols);
  [[nodiscard]] std::shared_ptr<const FusedRegion> region_at(const std::vector<std::int64_t>& symbols) const;
  [[nodiscard]] PlanPtr plan_for(const std::vector<std::int64_t>& symbols, const c10::IValue* inputs) const;
  [[nodiscard]] PlanPtr make_plan(Layout layout, std::shared_ptr<const FusedRegion> region, bool keeps_order) const;
  /// nullopt: there is no kernel.
  [[nodiscard]] std::optional<KernelSource> source_for(const Plan& plan, const fusion::Strides& strides,
                                                       bool keeps_order, const LaunchFacts& facts) const;
  /// The kernel of a plan; null: it is not there.
  [[nodiscard]] const Module* module_of(const Plan& plan) const;
  /// Raises what a compilation has failed with, or warns of it.
  void report(const Compilation& compilation) const;

  ir::Trace region_;
  const fusion::Target& target_;
  Engine& engine_;
  const Options options_;
  std::vector<std::uint32_t> symbols_;
  std::optional<fusion::KernelGraph> kernel_;  ///< for inputs of the strides that were traced, and all sizes
  mutable std::mutex mutex_;
  mutable std::list<PlanPtr> plans_;  ///< the last used first
};

}  // namespace thunder::executors::cuda
