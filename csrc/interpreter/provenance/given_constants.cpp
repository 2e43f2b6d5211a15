#include "interpreter/provenance/given_constants.h"

#include <algorithm>

namespace thunder::interpreter {
namespace {

/// Whether an object is among these items, or inside of a tuple among them.
bool holds(py::Borrowed items, py::Borrowed value) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items, i);
    if (item == value || (PyTuple_CheckExact(item) && holds(item, value))) return true;
  }
  return false;
}

bool is_interned(py::Borrowed value) {
  return PyUnicode_CheckExact(value) && PyUnicode_CHECK_INTERNED(static_cast<PyObject*>(value)) != 0;
}

/// Whether equal objects of its type, interned ones in the case of strings, are one object.
bool is_one_of_its_kind(py::Borrowed value) {
  constexpr long kLeast = -5;  // CPython has one object for each integer from here
  constexpr long kGreatest = 256;
  if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long number = PyLong_AsLongAndOverflow(value, &overflow);
    return overflow == 0 && number >= kLeast && number <= kGreatest;
  }
  if (PyUnicode_CheckExact(value)) return is_interned(value);
  return PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 0;
}

/// `read` shall give the object of `node`, which it gave while the function was traced.
void expect_same(Read& read, Node& node) {
  read.expectation = Expectation::kSame;
  read.part = &node;
}

}  // namespace

void GivenConstants::add_read(Node& owner, Read& read) {
  PyObject* value = read.value.get();
  if (is_one_of_its_kind(value) && !is_interned(value)) return;
  equal_reads_[value].push_back({&owner, &read});
  Node* node = provenance_.find(value);
  if (node != nullptr && !node->is_constant()) expect_same(read, *node);
}

bool GivenConstants::is_code_constant(py::Borrowed value) const {
  return std::ranges::any_of(codes_, [&](const py::Ref& code) {
    return holds(reinterpret_cast<PyCodeObject*>(code.get())->co_consts, value);
  });
}

bool GivenConstants::contains(py::Borrowed value) const {
  return is_code_constant(value) || std::ranges::any_of(given_, [&](const py::Ref& given) {
           return given.get() == value || (PyTuple_Check(given.get()) && holds(given.get(), value));
         });
}

Node* GivenConstants::node_of(py::Borrowed value) {
  if (Node* known = provenance_.find(value)) return known;
  if (is_one_of_its_kind(value) || is_code_constant(value)) return nullptr;
  read_in_tuples(value);
  const auto found = equal_reads_.find(value);
  if (found == equal_reads_.end()) return nullptr;
  const auto& [owner, read] = found->second.front();
  read->part = &provenance_.add(value, owner, read->accessor, read->key.get(), read->index);
  for (std::size_t i = 1; i < found->second.size(); ++i) expect_same(*found->second[i].read, *read->part);
  return read->part;
}

void GivenConstants::keep_interned(py::Borrowed value) {
  if (!is_interned(value)) return;
  read_in_tuples(value);
  for (const EqualRead& each : equal_reads_[value]) each.read->expectation = Expectation::kIdentity;
}

// By position: what is read of a tuple may be another one.
void GivenConstants::read_in_tuples(py::Borrowed value) {
  for (std::size_t i = 0; i < given_.size(); ++i) {
    const py::Ref tuple = given_[i];
    if (!PyTuple_Check(tuple.get())) continue;
    Node* holder = tuple.get() != value && holds(tuple.get(), value) ? node_of(tuple.get()) : nullptr;
    if (holder != nullptr) read_places(*holder, value);
  }
}

// Where in a tuple of constants, which is guarded with all its parts, a part lies.
void GivenConstants::read_places(Node& tuple, py::Borrowed value) {
  PyObject* items = tuple.object.get();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items, i);
    if (item == value || (PyTuple_CheckExact(item) && holds(item, value))) {
      read_item_(tuple, i, item);
    }
  }
}

}  // namespace thunder::interpreter
