#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "interpreter/python/python_ref.h"
#include "ir/trace.h"

namespace thunder::interpreter {

/// The step from an object to a part of it.
enum class Accessor : std::uint8_t {
  kConstant,       ///< no step: the object itself, held by the compiled function
  kArgument,       ///< positional argument `index` of the call, which the callable knows as `key`
  kKeyword,        ///< keyword argument `key` of the call
  kInstanceDict,   ///< the `__dict__` of an instance or a module
  kDictItem,       ///< `owner[key]` of a dict; attributes and globals are items of their dict
  kTypeAttribute,  ///< `key` in the MRO of the type `owner`, as it lies there (unbound)
  kDescriptor,     ///< `owner.key` through a C descriptor: slots, getters
  kItem,           ///< `owner[index]` of a list or tuple
  kCell,           ///< contents of a closure cell
  kFunctionPart,   ///< part `index` of a Python function
  kReferent,       ///< target of a weak reference, value of a context variable, or dict behind a view of it
  kCall,           ///< result of the function, called without arguments
  kConversion,     ///< result of the function `key` in C, called with the owner
  kPresence,       ///< whether a dict has `key`
  kLength,         ///< `len(owner)`
  kTruth,          ///< `bool(owner)` of a container
  kKeys,           ///< ordered keys of a dict
  kMembers,        ///< members of a set
  kContains,       ///< whether a set has the member `key`
  kState,          ///< the state that C code sees in the object: the StateKind is `index`
  kOther,          ///< that it is not the object of `part`
};

/// The condition that the result of a step has to meet.
enum class Expectation : std::uint8_t {
  kIdentity,  ///< the very object `value`
  kEquality,  ///< same type and equal to `value`
  kAbsent,    ///< nothing there
  kPresent,   ///< anything
  kObject,    ///< any object of the same type; its parts have expectations of their own (`part`)
  kSame,      ///< the object of `part`, which another path leads to
  kNumber,    ///< a number of the same type, for which `input` of the computation stands
};

struct Node;

/// One thing that the program read, once.
struct Read {
  Accessor accessor;
  Expectation expectation;
  py::Ref key;
  Py_ssize_t index = 0;
  py::Ref value;  ///< at trace time; null when absent
  Node* part = nullptr;
  ir::SourceLocation location{};  ///< where the program read it first
  py::Ref seen{};                 ///< an object that the program sees in the place of a number
  std::size_t input = 0;
};

/// An object from outside of the trace: a node of the guard tree, whose edges are reads.
struct Node {
  py::Ref object;
  Node* parent = nullptr;  ///< null: constant, or an argument
  Accessor accessor = Accessor::kConstant;
  py::Ref key;
  Py_ssize_t index = 0;
  std::uint32_t id = 0;
  bool deeply_read = false;
  bool needed = false;         ///< by a structure that is built at each call
  bool class_is_read = false;  ///< the program depends on the class of a constant
  bool is_written = false;
  bool keys_are_seen = false;         ///< other code than PyTorch's own may have seen those of a table of hooks
  std::vector<py::Ref> written_keys;  ///< keys of a dict that are written; none: it may be any
  py::Ref trace_tensor;               ///< for a tensor that the program uses
  py::Ref seen;      ///< for a tuple with numbers that change: the tuple that the program sees in its place
  std::string name;  ///< for a constant: how the program spelled it first
  std::deque<Read> reads;
  Node* instance_dict = nullptr;

  [[nodiscard]] bool is_constant() const { return accessor == Accessor::kConstant; }
};

/// Where the objects that came from outside came from, by identity, and everything that was read of them. Holds every
/// object strongly, so that identities stay unique during the trace.
class Provenance {
 public:
  [[nodiscard]] Node* find(py::Borrowed object) const {
    const auto found = nodes_by_object_.find(object);
    return found == nodes_by_object_.end() ? nullptr : found->second;
  }
  /// The program sees `seen` in the place of a tuple with numbers that change.
  void show_as(Node& tuple, py::Ref seen);
  /// The node of the tuple in whose place the program sees this one.
  [[nodiscard]] Node* find_shown(py::Borrowed seen) const {
    const auto found = tuples_by_seen_.find(seen);
    return found == tuples_by_seen_.end() ? nullptr : found->second;
  }
  /// The node of an object that stays what it is as long as the compiled function lives.
  Node& constant(py::Borrowed object, const std::string& name = {});
  /// The node of a new external object reached by a step from `parent`.
  Node& add(py::Borrowed object, Node* parent, Accessor accessor, py::Borrowed key, Py_ssize_t index);
  /// The read of this part, if it happened before; `key` is compared by identity.
  [[nodiscard]] Read* find_read(const Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index) const;
  Read& add_read(Node& owner, Read read);

  /// The call's own arguments hang here.
  [[nodiscard]] Node& call() { return call_; }
  [[nodiscard]] const Node& call() const { return call_; }
  [[nodiscard]] const std::deque<Node>& nodes() const { return nodes_; }
  [[nodiscard]] std::size_t read_count() const { return reads_by_key_.size(); }

 private:
  struct ReadKey {
    const Node* owner;
    Accessor accessor;
    const void* key;
    Py_ssize_t index;
    friend bool operator==(const ReadKey&, const ReadKey&) = default;
  };
  struct ReadKeyHash {
    std::size_t operator()(const ReadKey& key) const;
  };

  Node call_;
  std::deque<Node> nodes_;
  std::unordered_map<const PyObject*, Node*> nodes_by_object_;
  std::unordered_map<const PyObject*, Node*> tuples_by_seen_;
  std::unordered_map<ReadKey, Read*, ReadKeyHash> reads_by_key_;
};

/// Whether an object is one of the tables of hooks of a module or an optimizer, or belongs to one, by its name: their
/// keys are numbers of handles, which each registration counts on.
[[nodiscard]] bool is_table_of_hooks(const Node& node);

/// How a person would write the way to the node, or to a part of it: `self.layers[3].attn.scale`.
[[nodiscard]] std::string expression(const Node& node);
[[nodiscard]] std::string expression(const Node& owner, const Read& read);
/// `repr` without user code for the common types, shortened.
[[nodiscard]] std::string describe(py::Borrowed object);

}  // namespace thunder::interpreter
