// Kernels that are compiled while a program runs without them.
#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "compile/compiler.h"
#include "compile/executor_list.h"
#include "executors/cuda/engine.h"
#include "executors/cuda/executor.h"
#include "executors/cuda_kernels/target.h"
#include "recorded_program.h"

namespace thunder::compile {
namespace {

using check::recorded;
using check::Tensors;
using executors::cuda::KernelSource;
using executors::cuda::Launch;
using executors::cuda::Module;

/// An engine whose kernels, of one input and one result of float32, fill the result with `kMark`. They are compiled
/// while `opens` is called.
class GatedEngine : public executors::cuda::Engine {
 public:
  static constexpr float kMark = 77;

  [[nodiscard]] at::DeviceType device_type() const override { return at::kCPU; }
  [[nodiscard]] int multiprocessors(at::Device /*device*/) override {
    ++sources_;
    return 2;
  }
  [[nodiscard]] c10::Allocator* allocator() override { return c10::GetCPUAllocator(); }
  bool launch(const Module& /*module*/, const Launch& launch, std::span<const std::byte> argument,
              at::Device /*device*/) override {
    CHECK(launch.name.starts_with("fused"));
    void* arrays[2];
    std::memcpy(arrays, argument.data(), sizeof arrays);
    *static_cast<float*>(arrays[1]) = kMark;
    return true;
  }

  void open() {
    is_open_ = true;
    is_open_.notify_all();
  }
  void close(bool fails = false) {
    fails_ = fails;
    is_open_ = false;
    compiled_ = 0;
  }
  [[nodiscard]] int compiled() const { return compiled_; }
  /// How many sources were made.
  [[nodiscard]] int sources() const { return sources_; }

 protected:
  [[nodiscard]] std::shared_ptr<const Module> compile(const KernelSource& /*source*/, at::Device /*device*/) override {
    is_open_.wait(false);
    ++compiled_;
    if (fails_) throw InternalError("test", "no kernel");
    return std::make_shared<Module>();
  }

 private:
  std::atomic<bool> is_open_ = true;
  std::atomic<bool> fails_ = false;
  std::atomic<int> compiled_ = 0;
  std::atomic<int> sources_ = 0;
};

const fusion::Target kTarget = [] {
  fusion::Target target = executors::cuda::kTarget;
  target.accepts = [](const ir::TensorType& type) { return type.dtype == ir::Dtype::kFloat32; };
  return target;
}();

/// An executor with an engine of its own, which has compiled nothing yet.
GatedEngine& new_engine(const char* name) {
  auto* const engine = new GatedEngine;
  const auto* const backend = new executors::cuda::Backend{&kTarget, engine};
  register_executor(*new executors::Executor(executors::cuda::make_executor(name, *backend)));
  return *engine;
}

at::Tensor chain(const at::Tensor& x) { return at::exp(at::sin(x) * 2); }

std::shared_ptr<Compiled> compiled_for(const char* executor, const Tensors& inputs, bool background = true) {
  Options options;
  options.executors = with_fallback({find_executor(executor)});
  options.background = background;
  return compile(recorded([](const Tensors& x) { return Tensors{chain(x[0])}; }, inputs), options);
}

bool is_marked(const at::Tensor& result) { return result.const_data_ptr<float>()[0] == GatedEngine::kMark; }

/// Takes warnings of this thread.
class Warnings : public c10::WarningHandler {
 public:
  Warnings() : guard_(this) {}
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace

TEST(operations_run_until_the_kernel_is_there) {
  GatedEngine& engine = new_engine("gated");
  engine.close();
  const Tensors inputs{at::randn({4, 64})};
  const auto program = compiled_for("gated", inputs);
  for (int i = 0; i < 2; ++i) CHECK(at::allclose(program->run(inputs)[0], chain(inputs[0])));
  CHECK_EQ(engine.compiled(), 0);
  engine.open();
  program->wait();
  CHECK(is_marked(program->run(inputs)[0]));
  CHECK_EQ(engine.compiled(), 1);
}

TEST(kernels_are_requested_before_the_first_run) {
  GatedEngine& engine = new_engine("requested");
  const Tensors inputs{at::randn({4, 64})};
  const auto program = compiled_for("requested", inputs);
  program->wait();
  CHECK_EQ(engine.compiled(), 1);
  CHECK(is_marked(program->run(inputs)[0]));
  CHECK_EQ(engine.compiled(), 1);
}

TEST(kernels_of_other_layouts_are_waited_for_by_nobody) {
  GatedEngine& engine = new_engine("layouts");
  const Tensors inputs{at::randn({4, 64})};
  const auto program = compiled_for("layouts", inputs);
  program->wait();
  engine.close();
  const Tensors others{at::randn({4, 128}).slice(1, 0, 64)};
  CHECK(at::allclose(program->run(others)[0], chain(others[0])));
  const Tensors unaligned{at::randn({4 * 64 + 1}).slice(0, 1).view({4, 64})};
  CHECK(at::allclose(program->run(unaligned)[0], chain(unaligned[0])));
  CHECK(is_marked(program->run(inputs)[0]));
  engine.open();
  program->wait();
  CHECK(is_marked(program->run(others)[0]));
  CHECK(is_marked(program->run(unaligned)[0]));
}

TEST(equal_kernels_are_compiled_once) {
  GatedEngine& engine = new_engine("equal");
  const Tensors inputs{at::randn({4, 64})};
  const auto program = compiled_for("equal", inputs);
  const auto other = compiled_for("equal", inputs);
  program->wait();
  other->wait();
  CHECK_EQ(engine.compiled(), 1);
}

TEST(equal_fusions_of_a_program_are_one) {
  const GatedEngine& engine = new_engine("layers");
  const auto layers = [](const Tensors& x) { return Tensors{chain(at::mm(chain(at::mm(chain(x[0]), x[1])), x[1]))}; };
  Options options;
  options.executors = with_fallback({find_executor("layers")});
  const auto program = compile(recorded(layers, {at::randn({64, 64}), at::randn({64, 64})}), options);
  CHECK_EQ(engine.sources(), 1);
}

TEST(a_kernel_that_cannot_be_compiled_is_a_warning) {
  GatedEngine& engine = new_engine("failing");
  engine.close(/*fails=*/true);
  const Tensors inputs{at::randn({4, 64})};
  const auto program = compiled_for("failing", inputs);
  Warnings warnings;
  CHECK(at::allclose(program->run(inputs)[0], chain(inputs[0])));
  CHECK(warnings.texts.empty());
  engine.open();
  program->wait();
  for (int i = 0; i < 2; ++i) CHECK(at::allclose(program->run(inputs)[0], chain(inputs[0])));
  CHECK_EQ(warnings.texts.size(), 1U);
  for (const char* part : {"sin", "no kernel"}) CHECK(warnings.texts.at(0).find(part) != std::string::npos);
  CHECK_EQ(engine.compiled(), 1);
}

TEST(calls_wait_where_that_is_asked_for) {
  new_engine("waiting");
  const Tensors inputs{at::randn({4, 64})};
  const auto program = compiled_for("waiting", inputs, /*background=*/false);
  CHECK(is_marked(program->run(inputs)[0]));
  CHECK(is_marked(program->run({at::randn({4, 128}).slice(1, 0, 64)})[0]));
}

TEST(calls_wait_where_runs_are_to_be_equal) {
  GatedEngine& engine = new_engine("deterministic");
  engine.close();
  const Tensors inputs{at::randn({4, 64})};
  const auto program = compiled_for("deterministic", inputs);
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    engine.open();
  });
  at::globalContext().setDeterministicAlgorithms(true, false);
  CHECK(is_marked(program->run(inputs)[0]));
  at::globalContext().setDeterministicAlgorithms(false, false);
  opens.join();
}

TEST(calls_that_wait_raise_for_a_kernel_that_cannot_be_compiled) {
  GatedEngine& engine = new_engine("raising");
  engine.close(/*fails=*/true);
  engine.open();
  CHECK_THROWS(static_cast<void>(compiled_for("raising", {at::randn({4, 64})}, /*background=*/false)), InternalError);
}

TEST(inputs_that_no_kernel_takes_run_operation_by_operation) {
  new_engine("others");
  const auto program = compiled_for("others", {at::randn({4, 64})}, /*background=*/false);
  const at::Tensor x = at::_neg_view(at::randn({4, 64}));
  CHECK(at::allclose(program->run({x})[0], chain(x)));
}

}  // namespace thunder::compile
