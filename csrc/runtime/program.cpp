#include "runtime/program.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/program_code.h"
#include "runtime/thread_width.h"

namespace thunder::runtime {
namespace {

/// Autograd, the version counting of in-place operations and autocast: what a trace has done already.
constexpr c10::DispatchKeySet kAlreadyTraced =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

/// Registers and stack of one run. Every register is None between runs.
struct FrameMemory {
  std::vector<c10::IValue> registers;
  std::vector<c10::IValue> stack;
};

/// Lends a frame from the thread's pool: a run may start another one on the same thread.
class FrameLease {
 public:
  explicit FrameLease(std::size_t register_count) : pool_(pool()), register_count_(register_count) {
    if (pool_.empty()) {
      memory_ = std::make_unique<FrameMemory>();
    } else {
      memory_ = std::move(pool_.back());
      pool_.pop_back();
    }
    if (memory_->registers.size() < register_count) memory_->registers.resize(register_count);
  }
  ~FrameLease() {
    if (!finished_) {
      memory_->stack.clear();
      for (std::size_t i = 0; i < register_count_; ++i) memory_->registers[i] = c10::IValue();
    }
    pool_.push_back(std::move(memory_));
  }
  FrameLease(const FrameLease&) = delete;
  FrameLease& operator=(const FrameLease&) = delete;

  [[nodiscard]] Frame frame() { return {memory_->registers.data(), &memory_->stack}; }
  void finish() { finished_ = true; }

 private:
  using Pool = std::vector<std::unique_ptr<FrameMemory>>;
  static Pool& pool() {
    static thread_local Pool frames;
    return frames;
  }

  Pool& pool_;
  std::size_t register_count_;
  std::unique_ptr<FrameMemory> memory_;
  bool finished_ = false;
};

void bump_version(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) value.toTensor().unsafeGetTensorImpl()->bump_version();
}

void store_output(c10::IValue& output, c10::IValue&& value) { output = std::move(value); }
void store_output(at::Tensor& output, c10::IValue&& value) {
  output = value.isNone() ? at::Tensor() : std::move(value).toTensor();
}

/// The name and the user's line of an instruction, as errors and profilers show them.
std::string describe(const Origin& origin) {
  if (origin.location.file.empty()) return origin.name;
  return origin.name + " of " + origin.location.file + ":" + std::to_string(origin.location.line);
}

/// A range of PyTorch's profilers around an instruction.
class ProfilerRange {
 public:
  explicit ProfilerRange(const Origin& origin) : range_(at::RecordScope::USER_SCOPE) {
    if (range_.isActive()) range_.before(describe(origin));
  }

 private:
  at::RecordFunction range_;
};

bool is_profiled() { return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value(); }

}  // namespace

void ProgramCode::execute(Frame& frame) const {
  std::size_t current = 0;
  ThreadWidth threads;
  const bool profiled = is_profiled();  // by instruction, so that each launches its own kernels
  LaunchQueue::Scope waiting(profiled ? nullptr : queue.get());
  try {
    std::uint32_t release = 0;
    std::uint32_t write = 0;
    for (const std::size_t count = instructions.size(); current < count; ++current) {
      const Instruction& instruction = instructions[current];
      threads.narrow(instruction.is_small);
      if (waiting.is_open() && launches_itself[current]) waiting.flush();
      if (profiled) [[unlikely]] {
        const ProfilerRange range(origins[current]);
        instruction.function(instruction.state, frame);
      } else {
        instruction.function(instruction.state, frame);
      }
      for (; write < instruction.writes_end; ++write) bump_version(frame.registers[writes[write]]);
      for (; release < instruction.releases_end; ++release) frame.registers[releases[release]] = c10::IValue();
    }
    waiting.flush();
  } catch (...) {
    rethrow_with_origin(current);
  }
}

template <typename SizeOf>
std::optional<std::string> ProgramCode::read_sizes(const SizeOf& size_of, std::vector<std::int64_t>& values) const {
  values.assign(symbol_count, 0);
  for (const SymbolRegister& symbol : symbols) {
    const std::int64_t size = size_of(symbol.index, symbol.dim);
    if (size < 2 * symbol.factor || size % symbol.factor != 0) {
      return c10::str("size ", size, " of dimension ", symbol.dim, " of input ", symbol.index,
                      " of a program for multiples of ", symbol.factor, " from twice that on");
    }
    values[symbol.symbol] = size / symbol.factor;
  }
  for (const auto& [index, dim, expected] : input_sizes) {
    const std::int64_t size = size_of(index, dim);
    const std::int64_t number = expected.compute(expected.state.get(), values);
    if (size != number) {
      return c10::str("size ", size, " of dimension ", dim, " of input ", index, " of a program for size ", number);
    }
  }
  for (const auto& [holds, text] : conditions) {
    if (holds.compute(holds.state.get(), values) == 0) return c10::str("sizes of a program for which ", text);
  }
  return std::nullopt;
}

std::vector<std::int64_t> ProgramCode::read_symbols(const Frame& frame) const {
  std::vector<std::int64_t> values;
  const auto size_of = [&](std::uint32_t index, std::uint32_t dim) {
    return frame.registers[index].toTensor().size(dim);
  };
  const std::optional<std::string> mismatch = read_sizes(size_of, values);
  TORCH_CHECK(!mismatch, *mismatch);
  return values;
}

bool ProgramCode::is_for(std::span<const at::Tensor> inputs) const {
  std::vector<std::int64_t> values;
  const auto size_of = [&](std::uint32_t index, std::uint32_t dim) { return inputs[index].size(dim); };
  return !read_sizes(size_of, values);
}

void ProgramCode::rethrow_with_origin(std::size_t instruction) const {
  // Kernels that wait at the end are launched behind the last one.
  const Origin& origin = origins[std::min(instruction, origins.size() - 1)];
  try {
    throw;
  } catch (c10::Error& error) {
    error.add_context("while running " + describe(origin));
    throw;
  }
}

template <typename Value>
void ProgramCode::run(std::span<Value> inputs, std::span<Value> results) const {
  THUNDER_CHECK(inputs.size() == input_count && results.size() == outputs.size(), "runtime",
                "a program was run with " + std::to_string(inputs.size()) + " inputs and " +
                    std::to_string(results.size()) + " outputs, but has " + std::to_string(input_count) + " and " +
                    std::to_string(outputs.size()));
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(kAlreadyTraced);
  const PoolScope pool;
  FrameLease lease(register_count);
  Frame frame = lease.frame();
  for (std::size_t i = 0; i < inputs.size(); ++i) frame.registers[i] = std::move(inputs[i]);
  const std::vector<std::int64_t> symbol_values = read_symbols(frame);
  frame.symbols = symbol_values;
  for (const std::uint32_t index : unused_inputs) frame.registers[index] = c10::IValue();
  execute(frame);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const OutputSource& source = outputs[i];
    if (source.size.compute != nullptr) {
      store_output(results[i], c10::IValue(source.size.compute(source.size.state.get(), symbol_values)));
    } else if (source.index == kNoRegister) {
      store_output(results[i], c10::IValue(source.constant));
    } else if (source.last) {
      store_output(results[i], std::move(frame.registers[source.index]));
    } else {
      store_output(results[i], c10::IValue(frame.registers[source.index]));
    }
  }
  lease.finish();
}

Program::Program() : code_(std::make_unique<ProgramCode>()) {}
Program::~Program() = default;
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;

void Program::run(std::span<c10::IValue> inputs, std::span<c10::IValue> outputs) const { code_->run(inputs, outputs); }
void Program::run(std::span<at::Tensor> inputs, std::span<at::Tensor> outputs) const { code_->run(inputs, outputs); }

void Program::wait() const {
  for (const auto& kernels : code_->pending) kernels->wait();
}
bool Program::is_settled() const {
  return std::ranges::all_of(code_->pending, [](const auto& kernels) { return kernels->is_settled(); });
}
bool Program::is_for(std::span<const at::Tensor> inputs) const { return code_->is_for(inputs); }

std::size_t Program::input_count() const { return code_->input_count; }
std::size_t Program::output_count() const { return code_->outputs.size(); }
std::size_t Program::instruction_count() const { return code_->instructions.size(); }
std::size_t Program::unboxed_count() const { return code_->unboxed_count; }
std::size_t Program::register_count() const { return code_->register_count; }

}  // namespace thunder::runtime
