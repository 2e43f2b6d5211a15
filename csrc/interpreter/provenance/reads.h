#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "interpreter/provenance/given_constants.h"
#include "interpreter/provenance/opaque_state.h"
#include "interpreter/provenance/part_reads.h"
#include "interpreter/python/object_parts.h"

namespace thunder::interpreter {

/// Who gets the value of a read. A program may see another object in its place, code in C may not.
enum class Audience : std::uint8_t { kCode, kProgram };

/// Enters what the program reads into the provenance.
class Reads {
 public:
  Reads(TrackerState& state, PartReads& parts) : state_(state), parts_(parts) {}

  [[nodiscard]] GivenConstants& given() { return given_; }

  /// Enters an object that stays what it is as long as the compiled function lives, such as the traced callable.
  Node& admit_constant(py::Borrowed object, const std::string& name);
  /// Enters a function, or a member of an enumeration, that the program uses though it saw no read of it: one that lies
  /// in a constant, such as a tuple, in a set, or in a property.
  void enter_unread(py::Borrowed object);
  /// The object is from outside, though no read has shown it.
  void admit_unread(py::Borrowed object);
  /// As `Provenance::constant`. An object that was found by a way which may lead to another one is guarded to be this
  /// one.
  Node& constant(py::Borrowed object, const std::string& name = {});
  /// Notes a function that the program makes.
  void note_made_function(py::Borrowed function) { made_functions_.insert(function); }
  /// Notes a class, a module, a dict of globals or a function under functools.lru_cache that the program makes. What
  /// lies in one is not from outside.
  void note_made(py::Borrowed object);
  /// Notes a dict in which code is going to run: one that no read has shown is the program's own, unless it is that of
  /// a module.
  void note_globals(py::Borrowed dict);
  [[nodiscard]] bool is_made(py::Borrowed object) const { return made_.contains(object); }
  /// Whether the program may have made a class: code that nobody observes (`enum.Enum("E", "A B")`) makes some, too.
  [[nodiscard]] bool may_be_made(PyTypeObject* type) const;
  /// The node of a class, a module or a dict of globals, which is from outside though no read has shown it; null for
  /// one that the program makes.
  Node* shared_node(py::Borrowed object, const std::string& name = {});
  /// The node of the `__dict__` of an external object, or null when it has none.
  Node* instance_dict_node(Node& owner);

  /// Records that `owner` gave `value` (borrowed; null: nothing), unless that is known. Returns the read, or null where
  /// nothing came from outside.
  const Read* record(Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index, py::Borrowed value,
                     Audience audience = Audience::kCode);
  /// Records a read that is not known yet, with the line that makes it.
  Read& add(Node& owner, Read read);
  void record_fact(Node& owner, Accessor accessor, py::Ref value);
  void record_length(Node& owner, Py_ssize_t length);
  const Read* record_dict_item(Node& dict, py::Borrowed key, py::Borrowed value, Audience audience = Audience::kCode);
  const Read* record_cell(Node& cell, py::Borrowed value, Audience audience = Audience::kCode);
  void record_descriptor(py::Borrowed owner, py::Borrowed name, py::Borrowed value);
  void record_absent_from_instance(py::Borrowed owner, py::Borrowed name);
  void record_state_as(Node& node, StateKind kind);
  /// The program gets something that reads and writes the memory of an array: `array.flat`.
  void record_memory(py::Borrowed array);
  /// A key that is looked up by its identity.
  void record_key(py::Borrowed key);
  /// Guards an entry of the cache of a function under functools.lru_cache.
  void record_memo(Node& function, py::Ref entry);
  void record_loaded_module(py::Borrowed name);
  /// Guards the object that a weak reference or context variable from outside gives now.
  void record_referent(py::Borrowed reference);

  // --- class_reads.cpp: attributes along the MRO, and the special methods that C code finds there by itself
  /// The read of what lies in the class; null where nothing is guarded, or the program has written it.
  const Read* record_type_attribute(PyTypeObject* type, py::Borrowed name, Audience audience = Audience::kCode);
  /// The program depends on the class of an object: one that can get another class is guarded by it.
  void note_class(py::Borrowed object);
  /// Attributes of a class that are no methods.
  void record_class_attributes(PyTypeObject* type);
  void record_super_attribute(py::Borrowed super, py::Borrowed name);
  void record_methods(PyTypeObject* type);
  /// As `Observer` has them.
  void enter_method(PyCodeObject* code, PyObject* const* arguments, std::size_t count);
  bool look_up(PyObject* object, const char* names);
  /// Whether the special methods of an object are those that a class in Python has; tensors are followed otherwise.
  [[nodiscard]] bool may_define_methods(PyObject* object) const;
  /// False with an exception set where the class of an object has one of these methods from C by another name.
  bool refuse_aliases(PyObject* object, const char* names);
  /// Guards these special methods. False: they were guarded before, or there is nothing to guard.
  bool record_look_up(PyObject* object, const char* names);
  void construct(PyTypeObject* type);

  // --- content_reads.cpp: what is inside of containers and of other objects, as far as code in C looks
  /// As `Observer` has them.
  bool examine(PyObject* owner, Aspect aspect);
  bool examine_presence(PyObject* owner, PyObject* key);
  bool examine_identity(PyObject* left, PyObject* right);
  int is_same(PyObject* left, PyObject* right);
  /// Sets `read` to what was recorded for the program, if anything was.
  bool read_item(PyObject* owner, PyObject* key, PyObject* value, const Read** read = nullptr);
  /// Guards the contents of a container as they were before the program wrote to it. `kProgram`: nobody gets them.
  bool read_original_contents(Node& container, Audience audience = Audience::kCode);
  /// The list that the program sees in the place of one from outside (new reference), if some of its ints are numbers
  /// that other calls have others for; null, with or without an exception: the list itself.
  py::Ref read_changing_list(py::Borrowed list);
  /// Whether it is a tensor of a class that is not PyTorch's: a program may change what that defines.
  [[nodiscard]] bool is_of_own_class(PyObject* tensor) const;
  /// The program is about to move items of a list, which the journal has a copy of. Each number that other calls have
  /// another one for is replaced by what the program sees of it, which goes where it goes.
  bool show_items(Node& list);
  /// How much code in C may tell of what it is given: what containers hold, which objects those of classes in Python
  /// are, what their special methods give, and what their attributes are.
  enum class Told : std::uint8_t { kContents, kIdentities, kMethods, kAttributes };
  /// Reads everything inside; true when real tensors are among it. May set an exception.
  bool read_deeply(py::Borrowed value, Told told = Told::kIdentities, int depth = 0);
  /// As `read_deeply`, of the object whose method in C is called: whether that may be is asked of the call.
  void read_receiver(py::Borrowed self, Told told);
  /// Guards what an attribute of an object, or of those in a container, is, for code in C that asks for nothing else.
  void record_asked_attribute(py::Borrowed value, py::Borrowed name);
  /// Guards which objects these are, inside of containers, too: they are hashed or compared, all but those that do it
  /// by what they hold.
  void record_identities(py::Borrowed value);
  /// Guards which objects these are that are in both, or are both: a comparison in C takes an object to be equal to
  /// itself, and does not ask it.
  void record_shared(py::Borrowed left, py::Borrowed right);
  /// Guards which object this is; a tensor of the trace is left out.
  void record_identity(py::Borrowed object);
  /// Guards the result of `dir`: the names in an object, in its class and in the bases of that.
  bool read_names(py::Borrowed object);
  /// Guards everything that an object consists of.
  bool read_state(py::Borrowed owner);

 private:
  /// Notes who looks at the keys of a table of hooks.
  void note_keys_seen(Node& dict) const;
  [[nodiscard]] Read classify_read(Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index,
                                   py::Borrowed value, Audience audience);
  /// Whether those of these special methods that an object's class has from elsewhere than `object` are functions in
  /// Python that are observed when code in C calls them.
  [[nodiscard]] bool has_observed(PyObject* object, const char* names) const;
  /// How a value that lies in a class is guarded.
  [[nodiscard]] ConstantKind classify_in_class(py::Borrowed value, Audience audience) const;
  /// Has an input stand for a number, where other calls have another one. May set an exception.
  void lift_number(const Node& owner, Read& read);
  /// Enters a tuple of constants as an object whose items are read one by one, if some are numbers that other calls
  /// have others for. May set an exception.
  const Read* record_changing_tuple(Node& owner, Read& read);
  /// Reads the item of a list that the program gets from it.
  const Read* record_list_item(Node& list, Py_ssize_t index, py::Borrowed value, Audience audience);
  /// Reads an item of a list, and puts what the program sees of it at a place of `copy`.
  bool show_item(Node& list, Py_ssize_t index, py::Borrowed copy, Py_ssize_t place);
  /// Reads what a slice of a list, `taken`, holds, and puts what the program sees of it there.
  bool read_slice(Node& list, py::Borrowed slice, py::Borrowed taken);
  /// Puts what the program sees of the numbers in `container` into its copy `seen`. False with an exception set.
  bool read_numbers(Node& container, PyObject* seen);
  /// Enters the parts of a new node that the program can reach without a read that we see.
  void enter_hidden_parts(Node& node);
  void enter_function(Node& function);
  /// As `enter_function`, of a function in whose place other calls have another one of the same code.
  void enter_changing_function(Node& function);
  /// Whether a function that is read here is guarded by its parts, and not by its identity.
  [[nodiscard]] bool is_changing_function(const Node& owner, const Read& read) const;
  void record_function_part(Node& function, FunctionPart part);
  void record_entries(PyTypeObject* type, bool (*is_recorded)(PyObject* name, PyObject* value));
  /// Guards the special methods of a type that this code is the body of.
  void record_special_methods(PyTypeObject* type, const PyCodeObject* code);
  [[nodiscard]] bool is_written_in_class(PyTypeObject* type, py::Borrowed name) const;
  void record_own_type_attribute(PyTypeObject* type, py::Borrowed name);
  /// The value that a class gave for `name` before the program wrote to the class or to its bases.
  [[nodiscard]] PyObject* original_type_attribute(PyTypeObject* type, py::Borrowed name) const;
  /// Enters functions, objects of classes in Python, and weak references, that are a key or a member of a set, alone or
  /// in a tuple: guards want the same objects there.
  void enter_key(const Node& container, py::Borrowed key);
  /// Guards the keys of a dict, a tuple, and enters them.
  void record_keys(Node& dict, py::Ref keys);
  void read_contents(Node& container, py::Borrowed contents, Audience audience);
  /// Guards what an exception holds, such as `args`, but for its traceback and its causes.
  void record_exception(Node& node);
  /// Guards everything that the program, or code in C that the object `is_given` to, can see in one that is no
  /// container. Sets an exception where that cannot be told.
  void record_opaque(Node& node, bool is_given);
  /// Guards the attributes of an instance of a class in Python, and of the objects in them.
  void record_attributes(Node& node, Told told, int depth);
  /// Reads the `__dict__` of an object, once.
  void read_instance_dict(Node& node, Told told, int depth);

  TrackerState& state_;
  PartReads& parts_;
  std::set<std::pair<const PyTypeObject*, const PyCodeObject*>> entered_;  ///< methods that ran
  std::set<std::pair<const PyTypeObject*, const char*>> looked_up_;        ///< names of special methods
  PyObject* receiver_ = nullptr;                                           ///< see `read_receiver`
  std::unordered_set<const PyObject*> made_functions_;                     ///< addresses, never looked into
  std::unordered_map<const PyObject*, py::Ref> made_;                      ///< see `note_made`
  GivenConstants given_{state_.provenance, [this](Node& tuple, Py_ssize_t index, PyObject* item) {
                          record(tuple, Accessor::kItem, nullptr, index, item);
                        }};
};

}  // namespace thunder::interpreter
