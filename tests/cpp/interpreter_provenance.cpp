#include <algorithm>
#include <string>

#include "check.h"
#include "interpreter/provenance/provenance.h"
#include "traced_program.h"

using thunder::check::TracedProgram;
using thunder::interpreter::Accessor;
using thunder::interpreter::describe;
using thunder::interpreter::Expectation;
using thunder::interpreter::Node;
using thunder::interpreter::Provenance;
using thunder::interpreter::Read;
namespace py = thunder::py;

namespace {

/// The spelled-out reads of everything that came with the call's arguments.
std::vector<std::string> argument_reads(const Provenance& provenance, const Node& node) {
  std::vector<std::string> texts;
  for (const Read& read : node.reads) texts.push_back(thunder::interpreter::expression(node, read));
  for (const Node& part : provenance.nodes()) {
    if (part.parent != &node) continue;
    const std::vector<std::string> inner = argument_reads(provenance, part);
    texts.insert(texts.end(), inner.begin(), inner.end());
  }
  return texts;
}

bool contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

}  // namespace

TEST(an_object_has_one_node) {
  TracedProgram program("shared = [1]");
  const py::Ref object = program.evaluate("shared");
  Provenance provenance;
  Node& node = provenance.constant(object.get(), "shared");
  CHECK(&provenance.constant(object.get(), "another name") == &node);
  CHECK(provenance.find(object.get()) == &node);
  CHECK(provenance.find(program.evaluate("[1]").get()) == nullptr);
  CHECK_EQ(node.name, "shared");
}

TEST(a_node_keeps_its_object_alive) {
  TracedProgram program("import weakref\nclass C: pass\nc = C()\nw = weakref.ref(c)");
  {
    Provenance provenance;
    provenance.constant(program.evaluate("c").get());
    program.execute("del c");
    CHECK(program.holds("w() is not None"));
  }
  CHECK(program.holds("w() is None"));
}

TEST(a_read_is_found_by_what_was_read) {
  TracedProgram program("d = {'a': 1}");
  const py::Ref dict = program.evaluate("d");
  const py::Ref key = program.evaluate("'a'");
  const py::Ref other = program.evaluate("'b'");
  Provenance provenance;
  Node& node = provenance.constant(dict.get());
  Read& read = provenance.add_read(node, {Accessor::kDictItem, Expectation::kEquality, key, 0, program.evaluate("1")});
  CHECK(provenance.find_read(node, Accessor::kDictItem, key.get(), 0) == &read);
  CHECK(provenance.find_read(node, Accessor::kDictItem, other.get(), 0) == nullptr);
  CHECK(provenance.find_read(node, Accessor::kTypeAttribute, key.get(), 0) == nullptr);
  CHECK_EQ(provenance.read_count(), 1U);
}

TEST(reads_are_spelled_as_people_write_them) {
  TracedProgram program(
      "class C: pass\n"
      "c = C()\n"
      "c.layers, c.sizes = [C(), C()], {'width': 3}\n"
      "c.layers[1].scale = 2.0\n"
      "def f(x0): return x0.layers[1].scale * x0.sizes['width']\n");
  CHECK(program.trace("(c,)"));
  const Provenance& provenance = program.tracker().provenance();
  const std::vector<std::string> reads = argument_reads(provenance, provenance.call());
  for (const char* expected : {"x0.layers", "x0.layers[1]", "x0.layers[1].scale", "x0.sizes['width']"}) {
    CHECK(contains(reads, expected));
  }
  CHECK(!contains(reads, "x0.layers[0]"));
}

TEST(an_object_met_again_on_another_way_must_stay_the_same) {
  TracedProgram program("a = [1]\ndef f(x0): return x0[0][0] + x0[1][0]\n");
  CHECK(program.trace("([a, a],)"));
  program.finish();
  CHECK_EQ(program.failing_guard("((lambda b: [b, b])([1]),)"), "");
  CHECK_EQ(program.failing_guard("([[1], [1]],)"), "x0[1]");
}

TEST(objects_that_the_program_makes_have_no_node) {
  TracedProgram program(
      "made = []\n"
      "def f(x0):\n"
      "    inner = [x0, 2]\n"
      "    return inner\n");
  CHECK(program.trace("(1,)"));
  for (const Node& node : program.tracker().provenance().nodes()) CHECK(!PyList_Check(node.object.get()));
}

TEST(tensors_are_lifted_once_under_the_name_that_they_are_met_by) {
  TracedProgram program("t = Tensor()\ndef f(x0): return (x0['a'] + x0['b'], x0['a'])\n");
  CHECK(program.trace("({'a': t, 'b': t},)"));
  CHECK_EQ(program.hooks().paths, (std::vector<std::string>{"x0['a']"}));
}

TEST(describing_runs_no_code_of_the_user) {
  TracedProgram program("class C:\n    def __repr__(self): raise RuntimeError\n");
  CHECK_EQ(describe(program.evaluate("C()").get()), "an object of type C");
  CHECK_EQ(describe(program.evaluate("(1, 'a', None)").get()), "(1, 'a', None)");
  CHECK_EQ(describe(program.evaluate("C").get()), "C");
  CHECK(describe(program.evaluate("'a' * 1000").get()).size() < 300);
}
