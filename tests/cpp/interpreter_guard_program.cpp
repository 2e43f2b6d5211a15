#include "check.h"
#include "interpreter/guards/guard_program.h"
#include "traced_program.h"

using thunder::check::TracedProgram;

TEST(arguments_equal_to_those_at_trace_time_are_accepted) {
  TracedProgram program("def f(a, b): return a + b\n");
  CHECK(program.trace("(2, 'x' * 0 and 1 or 3)"));
  program.finish();
  CHECK_EQ(program.failing_guard("(2, 3)"), "");
}

TEST(another_number_type_or_count_is_refused) {
  TracedProgram program("def f(a, b=0): return a + b\n");
  CHECK(program.trace("(2, 3)"));
  program.finish();
  CHECK_EQ(program.failing_guard("(2, 4)"), "x1");
  CHECK_EQ(program.failing_guard("(2.0, 3)"), "x0");
  CHECK_EQ(program.failing_guard("(2,)"), "the call");
}

TEST(signed_zeros_differ_and_nan_equals_itself) {
  TracedProgram program("nan = float('nan')\ndef f(a, b): return (a, b)\n");
  CHECK(program.trace("(0.0, nan)"));
  program.finish();
  CHECK_EQ(program.failing_guard("(0.0, float('nan'))"), "");
  CHECK_EQ(program.failing_guard("(-0.0, nan)"), "x0");
}

TEST(globals_are_guarded_where_they_were_read) {
  TracedProgram program("scale, unused = 2, 3\ndef f(a): return a * scale\n");
  CHECK(program.trace("(1,)"));
  program.finish();
  program.execute("unused = 4");
  CHECK_EQ(program.failing_guard("(1,)"), "");
  program.execute("scale = 5");
  CHECK_EQ(program.failing_guard("(1,)"), "scale");
  program.execute("scale = 2");
  CHECK_EQ(program.failing_guard("(1,)"), "");
  program.execute("del scale");
  CHECK_EQ(program.failing_guard("(1,)"), "scale");
}

TEST(closure_variables_are_guarded) {
  TracedProgram program(
      "def make():\n"
      "    n = 1\n"
      "    def set_n(value):\n"
      "        nonlocal n\n"
      "        n = value\n"
      "    return lambda: n, set_n\n"
      "f, set_n = make()\n");
  CHECK(program.trace("()"));
  program.finish();
  CHECK_EQ(program.failing_guard("()"), "");
  program.execute("set_n(2)");
  CHECK(!program.failing_guard("()").empty());
}

TEST(methods_replaced_on_the_class_or_the_instance_are_noticed) {
  TracedProgram program(
      "class C:\n"
      "    def m(self): return 1\n"
      "c = C()\n"
      "def f(x0): return x0.m()\n");
  CHECK(program.trace("(c,)"));
  program.finish();
  CHECK_EQ(program.failing_guard("(C(),)"), "");
  program.execute("c.m = lambda: 2");
  CHECK_EQ(program.failing_guard("(c,)"), "x0.m");
  program.execute("del c.m; C.m = lambda self: 3");
  CHECK_EQ(program.failing_guard("(c,)"), "C.m");
}

TEST(iteration_guards_length_and_elements) {
  TracedProgram program("def f(l): return sum([n for n in l])\n");
  CHECK(program.trace("([1, 2],)"));
  program.finish();
  CHECK_EQ(program.failing_guard("([1, 2],)"), "");
  CHECK_EQ(program.failing_guard("([1, 2, 3],)"), "len(x0)");
  CHECK_EQ(program.failing_guard("([1, 5],)"), "x0[1]");
  CHECK_EQ(program.failing_guard("((1, 2),)"), "x0");
}

TEST(a_missing_key_is_guarded) {
  TracedProgram program("def f(d): return d.get('a', 0)\n");
  CHECK(program.trace("({'b': 1},)"));
  program.finish();
  CHECK_EQ(program.failing_guard("({'b': 1},)"), "");
  CHECK(!program.failing_guard("({'b': 1, 'a': 2},)").empty());
}

TEST(a_changed_dict_is_looked_into_again) {
  TracedProgram program("d = {'a': 1, 'b': 2}\ndef f(x0): return x0['a']\n");
  CHECK(program.trace("(d,)"));
  program.finish();
  for (int i = 0; i < 3; ++i) CHECK_EQ(program.failing_guard("(d,)"), "");
  program.execute("d['b'] = 3");
  CHECK_EQ(program.failing_guard("(d,)"), "");
  program.execute("d['a'] = 4");
  CHECK_EQ(program.failing_guard("(d,)"), "x0['a']");
  CHECK_EQ(program.failing_guard("(d,)"), "x0['a']");
  program.execute("d['a'] = 1");
  CHECK_EQ(program.failing_guard("(d,)"), "");
}

TEST(tensors_are_delivered_in_the_order_of_their_inputs) {
  TracedProgram program(
      "class C: pass\n"
      "c, t, u = C(), Tensor(), Tensor()\n"
      "c.weight = u\n"
      "def f(a, c): return a + c.weight\n");
  CHECK(program.trace("(t, c)"));
  program.finish();
  CHECK_EQ(program.failing_guard("(t, c)"), "");
  CHECK_EQ(program.inputs.size(), 2U);
  CHECK(program.inputs[0] == program.evaluate("t").get());
  CHECK(program.inputs[1] == program.evaluate("u").get());
  program.execute("c.weight = Tensor()");
  CHECK_EQ(program.failing_guard("(t, c)"), "");
  CHECK(program.inputs[1] == program.evaluate("c.weight").get());
  program.execute("c.weight = 2");
  CHECK_EQ(program.failing_guard("(t, c)"), "x1.weight");
}

TEST(a_guard_says_what_it_expects_and_where_it_was_read) {
  TracedProgram program("def f(a): return a + 1\n");
  CHECK(program.trace("(2,)"));
  program.finish();
  bool found = false;
  for (std::size_t i = 0; i < program.guards().guard_count(); ++i) {
    const auto info = program.guards().info(i);
    found = found || (info.expression == "x0" && info.expected == "2");
  }
  CHECK(found);
}
