#include "dispatch/call/guarded_set.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "bridge/random.h"
#include "dispatch/call/number_input.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/kept_warnings.h"
#include "dispatch/python/local_part.h"
#include "dispatch/python/python_tensor.h"
#include "runtime/value_changed.h"

namespace thunder::dispatch {
namespace {

bool matches(const void* guards, std::size_t guard, PyObject* found) {
  const TensorGuard& own = static_cast<const TensorGuard*>(guards)[guard];
  if (PyLong_CheckExact(found)) return own.holds_int() ? may_be_held(found) : may_be_symbol(found);
  if (PyFloat_CheckExact(found)) return may_be_number(PyFloat_AS_DOUBLE(found));
  if (!own.matches(unpack_tensor(found))) return false;
  return own.local_part() == nullptr || (is_distributed(found) && own.local_part()->matches(stored_part(found)));
}

std::string describe(PyObject* found) {
  const bool is_number = PyLong_CheckExact(found) || PyFloat_CheckExact(found);
  return is_number ? interpreter::describe(found) : describe_tensor(unpack_tensor(found));
}

interpreter::TensorMemory memory_of(PyObject* found) {
  if (!is_tensor(found)) return {found};
  const c10::TensorImpl* impl = unpack_tensor(found).unsafeGetTensorImpl();
  const auto* autograd = static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
  const auto* begin = reinterpret_cast<const std::byte*>(impl);
  return {found, begin, begin + sizeof(c10::TensorImpl) / 2, begin + sizeof(c10::TensorImpl) - 1,
          autograd == nullptr ? nullptr : &autograd->requires_grad_};
}

constexpr GuardedSet::Candidates kFirst = 1;

}  // namespace

interpreter::TensorCheck GuardedSet::tensor_check(const std::vector<TensorGuard>& guards) const {
  return {matches, describe, memory_of, guards.data()};
}

std::uint32_t GuardedSet::guard_number(const TensorGuard& guard) {
  const auto found = std::ranges::find(tensor_guards_, guard);
  const auto number = static_cast<std::uint32_t>(found - tensor_guards_.begin());
  if (found == tensor_guards_.end()) tensor_guards_.push_back(guard);
  return number;
}

void GuardedSet::add(std::shared_ptr<const Specialization> specialization, std::size_t number) {
  std::vector<std::uint32_t> numbers;
  for (const TensorGuard& guard : specialization->tensors) numbers.push_back(guard_number(guard));
  recent_ = tree_.add(specialization->guards, numbers);
  const Candidates bit = Candidates{1} << recent_;
  const auto same = std::ranges::find(states_, specialization->state, &std::pair<ThreadState, Candidates>::first);
  if (same == states_.end()) {
    states_.emplace_back(specialization->state, bit);
  } else {
    same->second |= bit;
  }
  if (specialization->is_last_resort) last_resorts_ |= bit;
  members_.push_back(std::move(specialization));
  uses_.push_back({number, ++clock_});
}

std::shared_ptr<GuardedSet> GuardedSet::without_least_used(std::size_t count) const {
  std::vector<std::uint64_t> order;
  for (const Use& use : uses_) order.push_back(use.last);
  std::ranges::sort(order);
  const std::uint64_t first_kept = count < order.size() ? order[count] : clock_ + 1;
  return of_members([&](std::size_t index) { return uses_[index].last >= first_kept; });
}

bool GuardedSet::has_dead() const {
  return std::ranges::any_of(members_, [](const auto& member) { return member->guards.is_dead(); });
}

std::shared_ptr<GuardedSet> GuardedSet::without_dead() const {
  return of_members([&](std::size_t index) { return !members_[index]->guards.is_dead(); });
}

std::shared_ptr<GuardedSet> GuardedSet::of_members(const std::function<bool(std::size_t index)>& is_kept) const {
  auto kept = std::make_shared<GuardedSet>();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!is_kept(i)) continue;
    kept->add(members_[i], uses_[i].number);
    kept->uses_.back().last = uses_[i].last;
  }
  kept->clock_ = clock_;
  return kept;
}

GuardedSet::Candidates GuardedSet::made_under(const ThreadState& state) const {
  for (const auto& [known, candidates] : states_) {
    if (known == state) return candidates;
  }
  return 0;
}

GuardedSet::Candidates GuardedSet::check(const interpreter::CallArguments& arguments, Candidates candidates) {
  interpreter::GuardRun found;
  return tree_.run(arguments, tensor_check(tensor_guards_), candidates, found);
}

std::size_t GuardedSet::choose(Candidates accepted) const {
  if ((accepted >> recent_ & 1) != 0) return recent_;
  return static_cast<std::size_t>(std::countr_zero(accepted));
}

GuardedSet::Family GuardedSet::take_family(std::size_t first, Candidates& candidates) const {
  Family family;
  const auto take = [&](std::size_t i) {
    const std::shared_ptr<const Specialization>& member = members_[i];
    candidates &= ~(Candidates{1} << i);
    family.indices.push_back(i);
    family.members.push_back(member);
    family.paths.push_back(&member->path);
    family.random.add(member->path.random);
    family.releases_gil |= member->releases_gil;
  };
  take(first);
  for (Candidates left = candidates; left != 0; left &= left - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(left));
    if (members_[i]->path.begins_like(members_[first]->path)) take(i);
  }
  return family;
}

Served GuardedSet::call_in_segments(const interpreter::CallArguments& arguments, const interpreter::GuardRun& found,
                                    std::size_t first, Candidates& candidates, PyObject** result) {
  const Family family = take_family(first, candidates);
  std::optional<SpecializationCall> call;
  const auto load = [&](std::size_t path, std::vector<at::Tensor>& inputs) {
    const std::size_t index = family.indices[path];
    interpreter::GuardRun again;
    const bool is_first = !call.has_value();
    // Others may have run since the guards were checked: what was found for this one may be gone.
    if (!is_first && tree_.run(arguments, tensor_check(tensor_guards_), Candidates{1} << index, again) == 0)
      return false;
    if (!is_first) call->take_back();
    call.emplace(*family.members[path], tree_, is_first ? found : again, index);
    if (!call->memory_matches()) return false;
    inputs = call->take_inputs();
    return true;
  };
  // When a walk stops, the generators are put back: the next run draws the same numbers.
  const auto random = family.random.any ? std::make_optional(bridge::RandomState::now(family.random)) : std::nullopt;
  try {
    Walk done;
    KeptWarnings warnings;
    {
      const c10::AutoGradMode history(members_[first]->makes_history());
      done = walk(family.paths, load, family.releases_gil);
    }
    if (done.path >= 0) {
      warnings.tell();
      note_use(family.indices[static_cast<std::size_t>(done.path)]);
      call->add_symbols(done.symbols);
      *result = call->finish(std::move(done.outputs));
      return Served::kYes;
    }
    for (const std::size_t path : done.untried) candidates |= Candidates{1} << family.indices[path];
    last_stop_ = done.stop;
    if (keeps_values_) stopped_values_ = std::move(done.values);
  } catch (const runtime::ValueChanged&) {
    last_stop_ = Stop();
  } catch (...) {
    set_python_error();
    *result = nullptr;
    if (!call || call->may_have_written()) return Served::kYes;
    call->take_back();
    if (random) random->restore();
    return Served::kEager;
  }
  if (call) call->take_back();
  if (random) random->restore();
  return Served::kNo;
}

Served GuardedSet::run(std::size_t index, const interpreter::GuardRun& found, PyObject** result) {
  const std::shared_ptr<const Specialization> chosen = members_[index];
  if (chosen->runs_eager) {
    note_use(index);
    return Served::kEager;
  }
  const Specialization::Outcome outcome = chosen->run(tree_, found, index);
  switch (outcome.status) {
    case Specialization::Status::kDone:
      note_use(index);
      *result = outcome.result;
      return Served::kYes;
    case Specialization::Status::kRaised:
      return Served::kEager;
    case Specialization::Status::kValueChanged:
      last_stop_ = Stop();
      return Served::kNo;
    case Specialization::Status::kMemoryDiffers:
    case Specialization::Status::kSizesDiffer:
      return Served::kNo;
  }
  return Served::kNo;
}

Served GuardedSet::call(const interpreter::CallArguments& arguments, Candidates candidates, PyObject** result) {
  last_stop_.reset();
  const Served served = call_any(arguments, candidates & ~last_resorts_, result);
  return served != Served::kNo ? served : call_any(arguments, candidates & last_resorts_, result);
}

Served GuardedSet::call_any(const interpreter::CallArguments& arguments, Candidates candidates, PyObject** result) {
  while (candidates != 0) {
    interpreter::GuardRun found;
    candidates = tree_.run(arguments, tensor_check(tensor_guards_), candidates, found);
    if (candidates == 0) return Served::kNo;
    const std::size_t index = choose(candidates);
    Served served = Served::kNo;
    if (!members_[index]->path.empty()) {
      served = call_in_segments(arguments, found, index, candidates, result);
    } else {
      // `found` is not to be used after the run: other calls may run meanwhile and overwrite the registers behind it.
      candidates &= ~(Candidates{1} << index);
      served = run(index, found, result);
    }
    if (served != Served::kNo) return served;
  }
  return Served::kNo;
}

Served GuardedSet::call_first(const interpreter::CallArguments& arguments, PyObject** result) {
  interpreter::GuardRun found;
  if (tree_.run_arguments_only(arguments, tensor_check(tensor_guards_), kFirst, found) == 0) return Served::kNo;
  if (members_.front()->path.empty()) return run(0, found, result);
  Candidates only = kFirst;
  return call_in_segments(arguments, found, 0, only, result);
}

std::vector<interpreter::GuardFailure> GuardedSet::failures(std::size_t index,
                                                            const interpreter::CallArguments& arguments) const {
  const Specialization& specialization = *members_[index];
  return specialization.guards.failures(arguments, tensor_check(specialization.tensors));
}

int GuardedSet::visit(visitproc visitor, void* argument) const {
  for (const auto& specialization : members_) {
    if (const int status = specialization->guards.visit(visitor, argument); status != 0) return status;
    if (const int status = specialization->structure.visit(visitor, argument); status != 0) return status;
  }
  return tree_.visit(visitor, argument);
}

}  // namespace thunder::dispatch
