#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interpreter/provenance/journal_record.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// Remembers how external objects were before the program wrote to them. Functions that return `bool` return false with
/// a Python exception set.
class Journal {
 public:
  /// `locate` tells the user's line that runs now.
  explicit Journal(std::function<ir::SourceLocation()> locate) : locate_(std::move(locate)) {}
  ~Journal();

  /// Before `owner[key]` of a dict is set, or deleted (`removes`).
  bool before_dict_item(py::Borrowed dict, py::Borrowed key, bool removes);
  /// Before a member of a set is added or discarded.
  bool before_set_member(py::Borrowed set, py::Borrowed member, bool removes);
  /// Before `owner[index]` of a list is set.
  bool before_list_item(py::Borrowed list, Py_ssize_t index);
  /// Before a list or deque grows at its end.
  bool before_append(py::Borrowed sequence);
  /// Before anything changes in a list, dict, set or deque; other objects are refused with false and no exception.
  bool before_contents(py::Borrowed container);
  /// A list that is about to be rewritten holds what the program sees of everything in it.
  void note_read(py::Borrowed list) { by_owner_.at(list)->is_read = true; }
  bool before_cell(py::Borrowed cell);
  bool before_slot(py::Borrowed owner, py::Borrowed name);

  /// After the write that was announced last: what it did is noted, before another thread can run.
  void after_write() {
    if (latest_ != nullptr) settle(*latest_);
  }
  /// After a write to this container, if there was one.
  void after_write(py::Borrowed container);
  /// Another write, or a call that may write, is about to be announced.
  void begin_write() { latest_ = nullptr; }
  /// A copy of a container as the program left it, or what it left in a cell or slot (null: nothing). Null with an
  /// exception set where another thread has written, so that nobody can tell.
  py::Ref left_in(Record& record);
  /// The program is about to see more of a container than its own writes.
  void note_question(const Record& record);
  /// The program reads an item of a dict that is not the one of before.
  void note_item(const Record& record, py::Borrowed key, py::Borrowed value);
  /// Whether the program may have seen, or cannot be told from, what another thread wrote to one of these containers.
  [[nodiscard]] bool is_disturbed() const { return is_disturbed_; }
  /// False with an exception set where it is disturbed.
  bool require_own_writes() const;

  /// Before code that may write to `container` unseen; false and no exception for what is no container.
  bool watch(py::Borrowed container);
  /// After that code: what it left as it was is as if nobody had watched.
  void end_watch();

  /// Notes the state of memory that views which the program makes may write to; see `state_of`.
  void note_memory(py::Borrowed object, py::Borrowed state);
  /// An object whose memory is not as it was noted; null: there is none.
  [[nodiscard]] PyObject* written_memory() const;

  [[nodiscard]] const Record* find(py::Borrowed container) const;
  /// As `find`, for a container of which the program is about to see more than its own writes.
  const Record* find_for_read(py::Borrowed container);
  [[nodiscard]] const Record* find_slot(py::Borrowed owner, py::Borrowed name) const;
  [[nodiscard]] bool empty() const { return records_.empty(); }
  [[nodiscard]] const std::deque<Record>& records() const { return records_; }
  [[nodiscard]] std::deque<Record>& records() { return records_; }
  /// Grows with each write that was announced here.
  [[nodiscard]] std::uint64_t write_count() const { return write_count_; }

  /// Puts everything back as it was, the newest record first. The journal is empty afterwards.
  void rollback();

 private:
  Record* open(py::Borrowed container, Store store);
  Record& add(Record record);
  void announce(Record& record);
  void settle(Record& record);
  /// Makes the writes of others, which a rewriting of the container is about to mix with those of the program, part of
  /// what was there before.
  void take_others(Record& record);
  /// Announces a write that keys and appended items do not tell.
  void rewrite(Record& record);

  std::function<ir::SourceLocation()> locate_;
  std::uint64_t write_count_ = 0;
  std::deque<Record> records_;
  std::unordered_map<const PyObject*, Record*> by_owner_;
  Record* latest_ = nullptr;  ///< the record whose write was announced last
  bool is_disturbed_ = false;
  unsigned long watched_at_ = 0;  ///< `interruption_count` when a container was watched
  /// Containers that are watched, each with a copy made when that began.
  std::vector<std::pair<py::Ref, py::Ref>> watched_;
  std::vector<std::pair<py::Ref, py::Ref>> memory_;  ///< objects with states
};

}  // namespace thunder::interpreter
