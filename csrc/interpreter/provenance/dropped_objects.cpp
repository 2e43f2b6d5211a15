#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/dropped_objects.h"

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "interpreter/loop/observe.h"
#include "interpreter/provenance/containers.h"
#include "interpreter/provenance/journal_restore.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

/// Calls `visit(object)` for what a container holds, or for the object itself where the store is no container.
template <typename Visit>
void for_each_held(Store store, py::Borrowed held, Visit&& visit) {
  if (held == nullptr) return;
  if (store == Store::kCell || store == Store::kSlot) return visit(held);
  for_each_item(held, visit);
  for_each_key(held, visit);
}

/// Returns what the container, cell or slot holds now.
py::Ref contents_now(const Record& record) {
  if (record.store == Store::kSlot) return get_slot(record.owner.get(), record.name.get());
  if (record.store != Store::kCell) return record.owner;
  return py::Ref::share(PyCell_GET(record.owner.get()));
}

class DeathSearch {
 public:
  explicit DeathSearch(const TrackerState& state) : state_(state) {}

  Death run() {
    for (const Record& record : state_.journal.records()) {
      const py::Ref now = contents_now(record);
      PyErr_Clear();
      std::unordered_set<const PyObject*> left;
      for_each_held(record.store, now.get(), [&](PyObject* object) { left.insert(object); });
      PyObject* seen = nullptr;
      for_each_held(record.store, record.before.get(), [&](PyObject* object) {
        if (seen == nullptr && !left.contains(object)) seen = look_at(object);
      });
      if (seen != nullptr) return {py::Ref::share(seen), record.location};
    }
    return {};
  }

 private:
  /// The object, or one that dies with it, if it dies and that is seen; null otherwise. By a list rather than by
  /// recursion: a linked list may be longer than the stack is deep.
  PyObject* look_at(PyObject* dropped) {
    std::vector<PyObject*> pending{dropped};
    for (std::size_t next = 0; next < pending.size(); ++next) {
      PyObject* object = pending[next];
      if (is_scalar(object) || !dies(object)) continue;
      if (is_death_seen(object)) return object;
      if (!PyObject_IS_GC(object) || !visited_.insert(object).second) continue;
      struct Parts {
        DeathSearch& search;
        std::vector<PyObject*>& pending;
      } parts{*this, pending};
      const auto visit = [](PyObject* part, void* argument) {
        auto& found = *static_cast<Parts*>(argument);
        ++found.search.dropped_[part];
        found.pending.push_back(part);
        return 0;
      };
      Py_TYPE(object)->tp_traverse(object, visit, &parts);
    }
    return nullptr;
  }

  /// Whether nobody but the trace, and what dies itself, refers to an object. Of tensors it is not known who does.
  bool dies(PyObject* object) {
    if (is_real_tensor(object, state_.hooks)) return true;
    if (kept_.empty()) count_kept();
    return Py_REFCNT(object) <= kept_[object] + dropped_[object];
  }

  /// Counts the references that the trace holds.
  void count_kept() {
    for (const Node& node : state_.provenance.nodes()) {
      ++kept_[node.object.get()];
      ++kept_[node.key.get()];
      count_kept(node.reads);
    }
    count_kept(state_.provenance.call().reads);
    for (const Record& record : state_.journal.records()) {
      for_each_held(record.store, record.before.get(), [&](PyObject* object) { ++kept_[object]; });
      for (const WrittenKey& written : record.keys) {
        ++kept_[written.key.get()];
        ++kept_[written.value.get()];
      }
      for (const py::Ref& item : record.added) ++kept_[item.get()];
      for_each_held(record.store, record.after.get(), [&](PyObject* object) { ++kept_[object]; });
    }
  }
  void count_kept(const std::deque<Read>& reads) {
    for (const Read& read : reads) {
      ++kept_[read.key.get()];
      ++kept_[read.value.get()];
    }
  }

  [[nodiscard]] bool is_death_seen(PyObject* object) const {
    static PyObject* const finalizer = PyUnicode_InternFromString("__del__");
    PyObject* method = is_python_class(Py_TYPE(object)) ? _PyType_Lookup(Py_TYPE(object), finalizer) : nullptr;
    if (method != nullptr && Py_TYPE(method) != &PyWrapperDescr_Type) return true;
    if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return false;
    const auto* reference =
        reinterpret_cast<PyWeakReference*>(*PyObject_GET_WEAKREFS_LISTPTR(static_cast<PyObject*>(object)));
    for (; reference != nullptr; reference = reference->wr_next) {
      auto* as_object = reinterpret_cast<PyObject*>(const_cast<PyWeakReference*>(reference));
      if (reference->wr_callback != nullptr || state_.provenance.find(as_object) != nullptr) return true;
    }
    return false;
  }

  const TrackerState& state_;
  std::unordered_map<const PyObject*, Py_ssize_t> kept_;
  std::unordered_map<const PyObject*, Py_ssize_t> dropped_;  ///< references by what dies
  std::unordered_set<const PyObject*> visited_;
};

}  // namespace

Death find_seen_death(const TrackerState& state) {
  const py::SavedError pending;
  return DeathSearch(state).run();
}

}  // namespace thunder::interpreter
