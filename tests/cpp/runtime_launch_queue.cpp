// Kernels that wait to be launched together: who launches them when.
#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "program_operands.h"
#include "runtime/launch_queue.h"
#include "runtime/program.h"
#include "runtime/program_builder.h"

using c10::IValue;
using thunder::check::find;
using thunder::check::slot;
using thunder::runtime::LaunchQueue;
using thunder::runtime::Program;
using thunder::runtime::ProgramBuilder;
using thunder::runtime::Slot;

namespace {

/// Writes down what happens: a letter for a kernel that waits, `|` for a launch of all that wait, `.` for a kernel that
/// is launched at once.
struct Log : LaunchQueue {
  void begin() override { text += '('; }
  void flush() override {
    if (waiting > 0) text += '|';
    waiting = 0;
  }
  std::string text;
  int waiting = 0;
};

void kernel(const void* state, std::vector<IValue>& /*stack*/) {
  auto* const log = static_cast<Log*>(LaunchQueue::current());
  auto& text = static_cast<Log*>(const_cast<void*>(state))->text;
  text += log == nullptr ? '.' : 'k';
  if (log != nullptr) ++log->waiting;
}

void failing(const void* /*state*/, std::vector<IValue>& /*stack*/) { throw std::runtime_error("failed"); }

struct Made {
  std::shared_ptr<Log> log = std::make_shared<Log>();
  ProgramBuilder builder;
  std::uint32_t last = 0;

  Made() { builder.add_input(Slot{0}); }
  Made& add(const char* name) {
    builder.call(find(name), {slot(last)}, {Slot{last + 1}});
    ++last;
    return *this;
  }
  Made& kernels(int count) {
    for (int i = 0; i < count; ++i) {
      builder.call("kernel", &kernel, log, {slot(last)}, {Slot{last + 1}});
      ++last;
      builder.launches_by([this] { return log; });
    }
    return *this;
  }
  Made& view() {
    add("aten::alias");
    builder.launches_nothing();
    return *this;
  }
  Program build() {
    builder.set_outputs({slot(last)});
    return builder.build();
  }
};

std::string run(const Program& program, const Log& log) {
  std::vector<at::Tensor> inputs{at::ones({2})};
  std::vector<at::Tensor> outputs(1);
  const std::size_t before = log.text.size();
  program.run(std::span(inputs), std::span(outputs));
  return log.text.substr(before);
}

}  // namespace

TEST(kernels_wait_until_an_operation_launches_its_own) {
  Made made;
  const Program program = made.kernels(6).view().kernels(1).add("aten::sin").kernels(2).build();
  CHECK_EQ(run(program, *made.log), std::string("(kkkkkkk|kk|"));
  CHECK_EQ(run(program, *made.log), std::string("(kkkkkkk|kk|"));
}

TEST(few_kernels_in_a_row_are_launched_one_by_one) {
  Made made;
  const Program program = made.kernels(5).add("aten::sin").kernels(5).build();
  CHECK_EQ(run(program, *made.log), std::string(".........."));
}

TEST(kernels_before_an_error_are_launched) {
  Made made;
  made.kernels(6);
  made.builder.call("failing", &failing, nullptr, {slot(made.last)}, {Slot{made.last + 1}});
  made.builder.launches_nothing();
  ++made.last;
  const Program program = made.build();
  CHECK_THROWS(static_cast<void>(run(program, *made.log)), std::runtime_error);
  CHECK_EQ(made.log->text, std::string("(kkkkkk|"));
  CHECK(LaunchQueue::current() == nullptr);
}

TEST(a_program_inside_of_another_one_has_its_own_queue) {
  Log outer;
  LaunchQueue::Scope scope(&outer);
  Made made;
  const Program program = made.kernels(6).build();
  CHECK_EQ(run(program, *made.log), std::string("(kkkkkk|"));
  CHECK(LaunchQueue::current() == &outer);
  CHECK_EQ(outer.text, std::string("("));
}

TEST(a_second_thread_launches_one_by_one) {
  Made made;
  const Program program = made.kernels(6).build();
  const LaunchQueue::Scope taken(made.log.get());
  std::string text;
  std::thread([&] { text = run(program, *made.log); }).join();
  CHECK_EQ(text, std::string("......"));
}
