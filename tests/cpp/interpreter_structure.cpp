#include "check.h"
#include "interpreter/structures/structure.h"
#include "traced_program.h"

using thunder::check::TracedProgram;
namespace py = thunder::py;

namespace {

/// Makes `result` of the program's module what a call gives.
void call(TracedProgram& program, const std::string& arguments, const std::string& outputs = "()") {
  const py::Ref result = program.call(arguments, outputs);
  const py::Ref globals = program.evaluate("globals()");
  PyDict_SetItemString(globals.get(), "result", result.get());
}

}  // namespace

TEST(containers_are_built_anew_around_the_outputs) {
  TracedProgram program("t = Tensor()\ndef f(a): return {'sum': a + a, 'rest': [(a + 1,), 3, None]}\n");
  CHECK(program.trace("(t,)"));
  program.finish();
  CHECK_EQ(program.outputs(), 2U);
  call(program, "(t,)", "('first', 'second')");
  CHECK(program.holds("result == {'sum': 'first', 'rest': [('second',), 3, None]}"));
  program.execute("kept = result");
  call(program, "(t,)", "(1, 2)");
  CHECK(program.holds("result is not kept and kept['sum'] == 'first' and result['sum'] == 1"));
}

TEST(one_object_at_two_places_stays_one_object) {
  TracedProgram program("t = Tensor()\ndef f(a):\n    l = [a + 1]\n    return (l, l)\n");
  CHECK(program.trace("(t,)"));
  program.finish();
  call(program, "(t,)", "(1,)");
  CHECK(program.holds("result == ([1], [1]) and result[0] is result[1]"));
}

TEST(an_input_returned_is_the_callers_own) {
  TracedProgram program("t, u, l = Tensor(), Tensor(), [1]\ndef f(a, l): return (a, l)\n");
  CHECK(program.trace("(t, l)"));
  program.finish();
  call(program, "(u, l)");
  CHECK(program.holds("result[0] is u and result[1] is l"));
}

TEST(instances_are_rebuilt_without_their_constructor) {
  TracedProgram program(
      "from typing import NamedTuple\n"
      "class C:\n"
      "    made = 0\n"
      "    __slots__ = ('a', '__dict__')\n"
      "    def __init__(self, a): C.made += 1; self.a = a; self.b = 2\n"
      "class P(NamedTuple):\n"
      "    x: object\n"
      "    y: int\n"
      "t = Tensor()\n"
      "def f(a): return (C(a + 1), P(a + 2, 5))\n");
  CHECK(program.trace("(t,)"));
  program.finish();
  CHECK(program.holds("C.made == 0"));
  call(program, "(t,)", "('sum', 'other')");
  CHECK(program.holds("type(result[0]) is C and result[0].a == 'sum' and result[0].b == 2"));
  CHECK(program.holds("type(result[1]) is P and result[1] == ('other', 5)"));
  CHECK(program.holds("C.made == 1"));  // as an effect of the program, not by a call
}

TEST(writes_happen_at_each_call_and_not_while_tracing) {
  TracedProgram program(
      "log, cache, t = [], {'old': 1}, Tensor()\n"
      "def f(a):\n"
      "    log.append(a + 1)\n"
      "    cache['new'] = len(cache)\n"
      "    del cache['old']\n");
  CHECK(program.trace("(t,)"));
  program.finish();
  CHECK(program.holds("log == [] and cache == {'old': 1}"));
  call(program, "(t,)", "(7,)");
  CHECK(program.holds("log == [7] and cache == {'new': 1} and result is None"));
}

TEST(a_write_to_what_is_returned_is_seen_in_it) {
  TracedProgram program("t, l = Tensor(), [1]\ndef f(a, l):\n    l[0] = a + 1\n    return l\n");
  CHECK(program.trace("(t, l)"));
  program.finish();
  CHECK(program.holds("l == [1]"));
  call(program, "(t, l)", "(5,)");
  CHECK(program.holds("result is l and l == [5]"));
}

TEST(an_object_that_cannot_be_rebuilt_is_refused_and_nothing_stays_written) {
  TracedProgram program("l, t = [], Tensor()\ndef f(a):\n    l.append(1)\n    return (a + n for n in range(2))\n");
  CHECK(!program.trace("(t,)"));
  CHECK(PyErr_ExceptionMatches(PyExc_NotImplementedError) != 0);
  PyErr_Clear();
  program.finish();
  CHECK(program.holds("l == []"));
}
