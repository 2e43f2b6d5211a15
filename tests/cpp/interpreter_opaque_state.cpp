#include "check.h"
#include "interpreter/provenance/opaque_state.h"
#include "traced_program.h"

using thunder::check::TracedProgram;
using thunder::interpreter::state_kind;
using thunder::interpreter::StateKind;

TEST(kinds_of_state_follow_from_what_c_code_can_see) {
  TracedProgram program(
      "import array, datetime, threading\n"
      "class Number(int): pass\n"
      "class Plain: pass\n");
  const auto kind_of = [&](const char* expression) { return state_kind(program.evaluate(expression).get()); };
  CHECK(kind_of("3") == StateKind::kNone);
  CHECK(kind_of("Plain()") == StateKind::kNone);
  CHECK(kind_of("len") == StateKind::kNone);
  CHECK(kind_of("Number(3)") == StateKind::kValue);
  CHECK(kind_of("slice(1, 2)") == StateKind::kValue);
  CHECK(kind_of("datetime.date(2020, 1, 2)") == StateKind::kValue);
  CHECK(kind_of("bytearray(b'a')") == StateKind::kBuffer);
  CHECK(kind_of("array.array('i', [1])") == StateKind::kBuffer);
  CHECK(kind_of("threading.Lock()") == StateKind::kIdentity);
}

TEST(memory_is_guarded_by_layout_and_bytes) {
  TracedProgram program("memory = bytearray(b'ab')\ndef f(): return memory[0]\n");
  CHECK(program.trace("()"));
  program.finish();
  CHECK_EQ(program.failing_guard("()"), "");
  program.execute("memory[0] = 3");
  CHECK_EQ(program.failing_guard("()"), "memory");
  program.execute("memory[:] = b'ab'");
  CHECK_EQ(program.failing_guard("()"), "");
  program.execute("memory.append(1)");
  CHECK_EQ(program.failing_guard("()"), "memory");
}

TEST(memory_is_put_back) {
  TracedProgram program("import array\nitems = array.array('i', [1, 2])\n");
  const thunder::py::Ref items = program.evaluate("items");
  const thunder::py::Ref before = thunder::interpreter::state_of(items.get(), StateKind::kBuffer);
  program.execute("items[0] = 5; items.append(7)");
  CHECK_EQ(thunder::interpreter::restore_buffer(items.get(), before.get()), 0);
  CHECK(program.holds("items == array.array('i', [1, 2])"));
}

TEST(subclasses_of_scalars_are_guarded_by_value) {
  TracedProgram program("class Number(int): pass\ndef f(n): return n + 1\n");
  CHECK(program.trace("(Number(2),)"));
  program.finish();
  CHECK_EQ(program.failing_guard("(Number(2),)"), "");
  CHECK_EQ(program.failing_guard("(Number(3),)"), "x0");
}

TEST(objects_used_as_keys_are_guarded_by_identity) {
  TracedProgram program(
      "class Plain: pass\n"
      "key, table = Plain(), {}\n"
      "table[key] = 1\n"
      "def f(k): return table[k]\n");
  CHECK(program.trace("(key,)"));
  program.finish();
  CHECK_EQ(program.failing_guard("(key,)"), "");
  CHECK_EQ(program.failing_guard("(Plain(),)"), "x0");
}

TEST(different_objects_that_become_one_are_noticed) {
  TracedProgram program("def f(a, b): return a is b\n");
  CHECK(program.trace("([], [])"));
  program.finish();
  CHECK_EQ(program.failing_guard("([], [])"), "");
  CHECK_EQ(program.failing_guard("([[]] * 2)[:0] or (lambda l: (l, l))([])"), "x0 is x1");
}
