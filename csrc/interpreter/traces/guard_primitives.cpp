#include "interpreter/traces/guard_primitives.h"

#include <array>

#include "interpreter/provenance/provenance.h"
#include "interpreter/python/shared_object.h"
#include "ir/builder.h"

namespace thunder::interpreter {
namespace {

constexpr std::array kSchemas{
    // prologue: loads
    "prims::get_argument(Any args, int index) -> Any",
    "prims::get_keyword(Any kwargs, str name) -> Any",
    "prims::get_instance_dict(Any owner) -> Any",
    "prims::get_item(Any owner, Any key) -> Any",
    "prims::get_cell(Any cell) -> Any",
    "prims::get_descriptor(Any owner, str name) -> Any",
    "prims::get_type_attribute(Any owner, str name) -> Any",
    "prims::get_referent(Any reference) -> Any",
    "prims::get_result(Any function) -> Any",
    "prims::convert(Any value, Any function) -> Any",
    "prims::get_local_part(Any tensor) -> Any",
    "prims::get_function_part(Any function, int part) -> Any",
    // prologue: checks
    "prims::check_call(Any args, Any kwargs, int positional, Any names) -> ()",
    "prims::check_type(Any value, Any expected) -> ()",
    "prims::check_identity(Any value, Any expected) -> ()",
    "prims::check_value(Any value, Any expected) -> ()",
    "prims::check_same(Any left, Any right) -> ()",
    "prims::check_not_same(Any left, Any right) -> ()",
    "prims::check_distinct(Any written, Any read) -> ()",
    "prims::check_state(Any value, int kind, Any expected) -> ()",
    "prims::check_absent(Any owner, Any key) -> ()",
    "prims::check_present(Any owner, Any key) -> ()",
    "prims::check_empty_cell(Any cell) -> ()",
    "prims::check_no_descriptor(Any owner, str name) -> ()",
    "prims::check_type_attribute(Any owner, str name, Any expected) -> ()",
    "prims::check_no_type_attribute(Any owner, str name) -> ()",
    "prims::check_length(Any owner, int expected) -> ()",
    "prims::check_truth(Any owner, bool expected) -> ()",
    "prims::check_keys(Any owner, Any expected) -> ()",
    "prims::check_members(Any owner, Any expected) -> ()",
    "prims::check_contains(Any owner, Any member, bool expected) -> ()",
    "prims::check_tensor(Any value, int[] sizes, int[] strides, ScalarType dtype, Device device, bool requires_grad) "
    "-> ()",
    "prims::tensor_for_int(Any number) -> Any",
    "prims::tensor_for_stride(Any tensor, int dim) -> Any",
    "prims::tensor_for_float(Any number) -> Any",
    "prims::tensor_holding_int(Any number) -> Any",
    // epilogue
    "prims::make_tuple(Any items) -> Any",
    "prims::make_list(Any items) -> Any",
    "prims::make_dict(Any keys_and_values) -> Any",
    "prims::make_ordered_dict(Any keys_and_values) -> Any",
    "prims::make_set(Any items) -> Any",
    "prims::make_frozenset(Any items) -> Any",
    "prims::make_slice(Any items) -> Any",
    "prims::make_method(Any items) -> Any",
    "prims::make_cell(Any contents) -> Any",
    "prims::make_function(Any like, Any parts) -> Any",
    "prims::make_call(Any parts) -> Any",
    "prims::make_copy(Any like) -> Any",
    "prims::make_instance(Any cls, Any items, Any attributes, Any values) -> Any",
    "prims::set_item(Any owner, Any key, Any value) -> ()",
    "prims::delete_item(Any owner, Any key) -> ()",
    "prims::replace_contents(Any owner, Any contents) -> ()",
    "prims::extend(Any owner, Any items) -> ()",
    "prims::add_member(Any owner, Any key) -> ()",
    "prims::discard_member(Any owner, Any key) -> ()",
    "prims::set_cell(Any cell, Any value) -> ()",
    "prims::clear_cell(Any cell) -> ()",
    "prims::set_slot(Any owner, str name, Any value) -> ()",
    "prims::delete_slot(Any owner, str name) -> ()",
    "prims::call(Any callable, Any args, Any kwargs) -> ()",
};

const std::array<ir::Operator, kSchemas.size()>& rows() {
  static const auto all = [] {
    std::array<ir::Operator, kSchemas.size()> result;
    for (std::size_t i = 0; i < kSchemas.size(); ++i) {
      result[i] = ir::parse_operator(kSchemas[i], ir::CallStyle::kPrimitive);
      result[i].effect = true;  // a check is there for what it may raise
    }
    return result;
  }();
  return all;
}

}  // namespace

const ir::Operator* primitive(std::string_view name) {
  for (const ir::Operator& row : rows()) {
    if (std::string_view(row.name).substr(7) == name) return &row;
  }
  return nullptr;
}

std::vector<const ir::Operator*> primitives() {
  std::vector<const ir::Operator*> result;
  for (const ir::Operator& row : rows()) result.push_back(&row);
  return result;
}

ir::Argument to_argument(py::Borrowed constant, ir::TraceContext& context) {
  if (constant == nullptr || constant == Py_None) return ir::None{};
  if (PyBool_Check(constant)) return constant == Py_True;
  if (PyLong_CheckExact(constant)) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(constant, &overflow);
    if (overflow == 0) return static_cast<std::int64_t>(value);
  }
  if (PyFloat_CheckExact(constant)) return PyFloat_AS_DOUBLE(constant);
  if (PyUnicode_CheckExact(constant)) {
    Py_ssize_t size = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(constant, &size))
      return std::string(text, static_cast<std::size_t>(size));
    PyErr_Clear();
  }
  return context.add_object({ir::ObjectKind::kPythonObject, share_object(constant), describe(constant)});
}

}  // namespace thunder::interpreter
