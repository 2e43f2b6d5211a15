#include <iterator>

#include "check.h"
#include "interpreter/provenance/journal.h"
#include "traced_program.h"

using thunder::check::TracedProgram;
using thunder::interpreter::Journal;
namespace py = thunder::py;

namespace {

Journal make_journal() {
  return Journal([] { return thunder::ir::SourceLocation(); });
}

}  // namespace

TEST(rollback_restores_a_dict_in_its_order) {
  TracedProgram program("d = {'a': 1, 'b': 2, 'c': 3}");
  const py::Ref dict = program.evaluate("d");
  Journal journal = make_journal();
  for (const char* key : {"'b'", "'z'"}) {
    CHECK(journal.before_dict_item(dict.get(), program.evaluate(key).get(), false));
  }
  program.execute("del d['b']; d['z'] = 26");
  journal.rollback();
  CHECK(program.holds("list(d.items()) == [('a', 1), ('b', 2), ('c', 3)]"));
  CHECK(journal.empty());
}

TEST(rollback_restores_an_ordered_dict) {
  TracedProgram program("from collections import OrderedDict\nd = OrderedDict(a=1, b=2)");
  Journal journal = make_journal();
  CHECK(journal.before_contents(program.evaluate("d").get()));
  program.execute("d.move_to_end('a'); d['c'] = 3");
  journal.rollback();
  CHECK(program.holds("list(d.items()) == [('a', 1), ('b', 2)] and list(reversed(d)) == ['b', 'a']"));
}

TEST(rollback_restores_lists_and_sets_in_place) {
  TracedProgram program("l, s = [1, 2], {3}\nsame_list, same_set = l, s");
  Journal journal = make_journal();
  CHECK(journal.before_list_item(program.evaluate("l").get(), 0));
  CHECK(journal.before_append(program.evaluate("l").get()));
  CHECK(journal.before_contents(program.evaluate("s").get()));
  program.execute("l[0] = 7; l.append(8); s.clear()");
  journal.rollback();
  CHECK(program.holds("l == [1, 2] and l is same_list and s == {3} and s is same_set"));
}

TEST(rollback_restores_cells_also_empty_ones) {
  TracedProgram program("import types\nfull, empty = types.CellType(1), types.CellType()");
  Journal journal = make_journal();
  CHECK(journal.before_cell(program.evaluate("full").get()));
  CHECK(journal.before_cell(program.evaluate("empty").get()));
  program.execute("full.cell_contents = 2; empty.cell_contents = 3");
  journal.rollback();
  CHECK(program.holds("full.cell_contents == 1 and empty == types.CellType()"));
}

TEST(rollback_restores_slots_and_class_attributes) {
  TracedProgram program("class C:\n    __slots__ = ('a', 'b')\n    n = 0\nc = C()\nc.a = 1");
  Journal journal = make_journal();
  const py::Ref object = program.evaluate("c");
  CHECK(journal.before_slot(object.get(), program.evaluate("'a'").get()));
  CHECK(journal.before_slot(object.get(), program.evaluate("'b'").get()));
  CHECK(journal.before_slot(program.evaluate("C").get(), program.evaluate("'n'").get()));
  program.execute("c.a = 2; c.b = 3; C.n = 4");
  journal.rollback();
  CHECK(program.holds("c.a == 1 and not hasattr(c, 'b') and C.n == 0"));
}

TEST(first_write_decides_what_was_there_before) {
  TracedProgram program("d = {'a': 1}");
  const py::Ref dict = program.evaluate("d");
  const py::Ref key = program.evaluate("'a'");
  Journal journal = make_journal();
  CHECK(journal.before_dict_item(dict.get(), key.get(), false));
  program.execute("d['a'] = 2");
  CHECK(journal.before_dict_item(dict.get(), key.get(), false));
  program.execute("d['a'] = 3");
  CHECK_EQ(journal.records().size(), 1U);
  CHECK_EQ(std::ranges::distance(journal.find(dict.get())->keys), 1);
  journal.rollback();
  CHECK(program.holds("d == {'a': 1}"));
}

TEST(containers_of_an_unknown_kind_are_refused) {
  TracedProgram program("");
  Journal journal = make_journal();
  CHECK(!journal.before_contents(program.evaluate("bytearray(3)").get()));
  CHECK(PyErr_Occurred() == nullptr);
}

TEST(journal_that_dies_rolls_back) {
  TracedProgram program("l = [1]");
  {
    Journal journal = make_journal();
    CHECK(journal.before_append(program.evaluate("l").get()));
    program.execute("l.append(2)");
  }
  CHECK(program.holds("l == [1]"));
}
