#include "dispatch/capture/program_sizes.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "compile/execution.h"
#include "dispatch/call/number_input.h"
#include "dispatch/call/overrides.h"
#include "dispatch/python/python_tensor.h"
#include "ir/location.h"
#include "ir/trace_sizes.h"

namespace thunder::dispatch {
namespace {

/// Sizes that Python holds are objects whose class extends PyTorch's `SymInt`: not tried with Python 3.10.
constexpr bool kHasSymbolicSizes = PY_VERSION_HEX >= 0x030b0000;

/// Buffers of a module have the sizes that they have.
bool may_be_guessed(const std::string& path) { return !path.starts_with("self."); }

SizeHistory::Shape shape_of(const at::Tensor& tensor) { return {tensor.sizes().vec(), tensor.strides().vec()}; }

SizeHistory::Seen seen_input(const at::Tensor& tensor) {
  return {shape_of(tensor), c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)};
}

}  // namespace

ProgramSizes::ProgramSizes(tracer::Recorder& recorder, TorchHooks& hooks, std::shared_ptr<NumberTrace> numbers,
                           const interpreter::CallArguments& arguments, const TraceOptions& how, const Known& known)
    : recorder_(recorder),
      hooks_(hooks),
      pinned_(known.pinned),
      conditions_(known.conditions),
      changing_(known.changing),
      may_guess_(known.may_guess),
      is_for_few_sizes_(known.is_for_few_sizes),
      apart_(known.apart),
      how_(how.dynamic),
      history_(how.sizes),
      dynamic_(arguments, how.dynamic, pinned_, changing_),
      number_inputs_(recorder, std::move(numbers), dynamic_, known.constants, shapes_) {}

bool can_have_symbols(const compile::Options& options, PyObject* module) {
  return kHasSymbolicSizes && !compile::has_extensions(options) && !has_overrides(module);
}

void ProgramSizes::watch(const compile::Options& options, PyObject* module) {
  if (!can_have_symbols(options, module)) {
    history_ = nullptr;
    return;
  }
  hooks_.note_input = [this](PyObject* real, const at::Tensor& /*traced*/, const std::string& path) {
    paths_[real] = path;
    const bool has_symbols = how_ == DynamicSizes::kAll && dynamic_.is_argument(real);
    if (history_ == nullptr || has_symbols || is_parameter(real)) return;
    const at::Tensor& tensor = unpack_tensor(real);
    if (tensor.layout() != at::kStrided) return;
    const auto place = shapes_.emplace(path, shape_of(tensor)).first;
    if (tensor.sizes() != place->second.sizes) history_->ignore(path);
    if (may_be_guessed(path)) seen_[path] = seen_input(tensor);
  };
  hooks_.input_for_number = [this](PyObject* number, const std::string& path) {
    return number_inputs_.input_for(number, path, history_, shadows_.get());
  };
  hooks_.are_inputs = [this](PyObject* sequence, const std::string& path) {
    return number_inputs_.are_inputs(sequence, path, history_, shadows_.get());
  };
  hooks_.is_changing_function = [this](PyObject* function, const std::string& path) {
    return number_inputs_.has_other_function(function, path, history_);
  };
  hooks_.note_number = [this](PyObject* real, const at::Tensor& traced, const std::string& path) {
    paths_[real] = path;
    return number_inputs_.note(real, traced, path, shadows_.get());
  };
  if (dynamic_.symbols().empty()) return;
  std::vector<ir::Condition> conditions;
  for (const KnownCondition& known : conditions_) conditions.push_back(known.condition);
  std::vector<tracer::SizeSymbol> symbols = dynamic_.symbols();
  for (std::uint32_t i = 0; i < symbols.size(); ++i) symbols[i].is_apart = apart_.contains(dynamic_.values_of(i));
  shadows_ =
      std::make_unique<tracer::SizeShadows>(recorder_, std::move(symbols), std::move(conditions), dynamic_.layouts());
  shadows_->symbols_of_data = [this](std::size_t place) { return symbols_of_data(place); };
  hooks_.note_input = [this, note = hooks_.note_input](PyObject* real, const at::Tensor& traced,
                                                       const std::string& path) {
    note(real, traced, path);
    dynamic_.find(real, path);
    shadows_->add_input(traced, dynamic_.symbols_of(real), dynamic_.rule_of(real));
  };
}

void ProgramSizes::pin_all() const {
  if (shadows_ != nullptr) shadows_->pin_all();
}

void ProgramSizes::pin_most() const {
  if (shadows_ != nullptr) shadows_->pin_most();
}

bool ProgramSizes::settle(ir::Trace& trace) {
  note_data_sizes();
  if (changing() != changing_) {
    wants_symbols_ = true;
    ask_for_another_attempt();
    return false;
  }
  if (number_inputs_.needs_constants(trace)) {
    ask_for_another_attempt();
    return false;
  }
  return generalize(trace);
}

void ProgramSizes::ask_for_another_attempt() {
  PyErr_SetString(PyExc_NotImplementedError, "thunder.jit: a size that was a symbol is needed as a number");
}

ProgramSizes::Known ProgramSizes::known(const Known& before, bool failed) const {
  PinnedSizes pinned = before.pinned;
  bool is_for_few_sizes = before.is_for_few_sizes;
  bool blames_guesses = false;
  std::vector<KnownCondition> conditions = before.conditions;
  // With more symbols, what is pinned and decided is found again.
  tracer::SizeShadows* const shadows = wants_symbols_ ? nullptr : shadows_.get();
  // A trace that fails with symbols may not fail without.
  if (shadows != nullptr && failed && !shadows->is_traced_again()) shadows->pin_most();
  if (shadows != nullptr) shadows->settle();
  // Numbers that are inputs are not to blame for what another attempt does about sizes.
  const bool is_explained = wants_symbols_ || (shadows != nullptr && shadows->is_traced_again());
  std::set<SymbolSizes> apart = before.apart;
  if (shadows != nullptr) {
    for (const std::uint32_t symbol : shadows->to_tell_apart()) apart.insert(dynamic_.values_of(symbol));
  }
  for (std::size_t i = 0; shadows != nullptr && i < shadows->reasons().size(); ++i) {
    const auto& [symbol, location, is_by_conditions] = shadows->reasons()[i];
    const SymbolSizes values = dynamic_.values_of(symbol);
    const std::string line = is_by_conditions ? line_of_conditions(symbol) : ir::describe_line(location);
    // A size that is another one than before is no guess.
    const bool is_new = pinned.emplace(values, line).second;
    is_for_few_sizes = is_for_few_sizes || is_by_conditions;
    blames_guesses = blames_guesses || (is_new && (!is_by_conditions || values.now == values.before));
  }
  for (std::size_t i = 0; shadows != nullptr && i < shadows->assumed().size(); ++i) {
    const auto& [condition, location] = shadows->assumed()[i];
    KnownCondition known{condition, ir::describe_line(location)};
    if (std::ranges::find(conditions, known) == conditions.end()) conditions.push_back(std::move(known));
  }
  // Conditions name symbols, which are others when some of them are pinned.
  SizeHistory::Inputs inputs = failed && !wants_symbols_ ? before.changing : changing();
  // Who pins what is seen without the guesses.
  const bool keeps_guesses = !blames_guesses || how_ == DynamicSizes::kAll || !has_guesses(before.changing);
  if (!keeps_guesses) {
    pinned = before.pinned;
    remove_guesses(inputs);
  }
  const bool has_same_symbols = pinned == before.pinned && inputs == before.changing;
  if (!has_same_symbols) {
    conditions.clear();
  } else if (shadows == nullptr || !shadows->wants_samples()) {
    conditions = before.conditions;
  }
  return {std::move(pinned),
          std::move(conditions),
          std::move(inputs),
          before.may_guess && keeps_guesses,
          number_inputs_.constants(failed && !is_explained),
          is_for_few_sizes,
          std::move(apart)};
}

std::string ProgramSizes::line_of_conditions(std::uint32_t symbol) const {
  const auto names_it = [symbol](const KnownCondition& known) {
    std::vector<std::uint32_t> symbols;
    ir::add_symbols(known.condition, symbols);
    return std::ranges::find(symbols, symbol) != symbols.end();
  };
  const auto last = std::ranges::find_if(conditions_.rbegin(), conditions_.rend(), names_it);
  return last == conditions_.rend() ? std::string() : last->line;
}

SizeHistory::Inputs ProgramSizes::changing() const {
  SizeHistory::Inputs inputs = changing_;
  if (history_ != nullptr) history_->add_changes(inputs, shapes_);
  if (history_ != nullptr && may_guess_) history_->add_guesses(inputs, seen_);
  if (how_ == DynamicSizes::kAll) add_data_sizes(inputs);
  return inputs;
}

void ProgramSizes::add_data_sizes(SizeHistory::Inputs& inputs) const {
  const auto& observed = recorder_.data.data_sized();
  const std::vector<std::string>& paths = data_paths_.of(observed);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    SizeHistory::Changing sizes{observed[i].sizes, observed[i].sizes};
    const auto is_small = [](std::int64_t size) { return size < 2; };
    std::ranges::replace_if(sizes.before, is_small, -1);
    const bool has_symbols = std::ranges::any_of(sizes.before, [](std::int64_t size) { return size != -1; });
    if (has_symbols) inputs.emplace(paths[i], std::move(sizes));
  }
}

void ProgramSizes::note_data_sizes() {
  if (history_ == nullptr || how_ == DynamicSizes::kAll) return;
  const auto& observed = recorder_.data.data_sized();
  const std::vector<std::string>& paths = data_paths_.of(observed);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!paths[i].empty()) shapes_[paths[i]] = {observed[i].sizes};
  }
}

ProgramSizes::Symbols ProgramSizes::symbols_of_data(std::size_t place) const {
  const auto& observed = recorder_.data.data_sized();
  return dynamic_.symbols_of(data_paths_.of(observed).at(place), observed[place].sizes);
}

std::optional<SymbolSizes> ProgramSizes::changes(const std::string& path, std::size_t dim, std::int64_t size) const {
  const auto input = changing_.find(path);
  if (input == changing_.end()) return std::nullopt;
  const std::int64_t before = input->second.before[dim];
  return before == -1 || before == size ? std::nullopt : std::optional(SymbolSizes{size, before});
}

void ProgramSizes::remember() const {
  if (history_ == nullptr) return;
  number_inputs_.remember(*history_);
  if (!may_guess_) history_->refuse_guesses();
  for (const auto& [path, shape] : shapes_) {
    const SizeHistory::Sizes& sizes = shape.sizes;
    history_->note(path, shape);
    const auto input = changing_.find(path);
    for (std::size_t i = 0; input != changing_.end() && i < input->second.strides.size(); ++i) {
      const SymbolSizes strides{input->second.strides[i], input->second.strides_before[i], true};
      if (input->second.rule.steps[i].kind != ir::StrideRule::Kind::kFree) continue;
      if (!has_symbols_ || pinned_.contains(strides)) history_->pin_stride(path, i);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::optional<SymbolSizes> values = changes(path, i, sizes[i]);
      if (!values) continue;
      const auto pinned = pinned_.find(*values);
      const bool is_pinned = pinned != pinned_.end();
      if (is_pinned || !has_symbols_) {
        const auto kind = is_for_few_sizes_ ? SizeHistory::PinKind::kFewSizes : SizeHistory::PinKind::kNeeded;
        history_->pin(path, i, is_pinned ? pinned->second : std::string(), kind);
      } else {
        history_->unpin(path, i);
      }
    }
  }
}

bool ProgramSizes::generalize(ir::Trace& trace) {
  if (shadows_ == nullptr) return true;
  if (!recorder_.memory.shared_storages.empty()) shadows_->pin_all();
  std::optional<ir::Trace> general = shadows_->generalize(trace);
  if (!general) {
    ask_for_another_attempt();
    return false;
  }
  trace = *std::move(general);
  has_symbols_ = !ir::symbols_of(trace).empty();
  return true;
}

void ProgramSizes::free_sizes(PyObject* input, TensorGuard& guard) const {
  std::vector<bool> is_free;
  if (!has_symbols_) return;
  for (const std::optional<std::uint32_t>& symbol : dynamic_.symbols_of(input)) is_free.push_back(symbol.has_value());
  ir::StrideRule rule = dynamic_.rule_of(input);
  const bool is_any_free = std::ranges::find(is_free, true) != is_free.end() || rule.has_free();
  if (!is_free.empty() && is_any_free) guard.free_sizes(std::move(is_free), std::move(rule));
}

std::vector<Specialization::Stride> ProgramSizes::strides() const {
  std::vector<Specialization::Stride> strides;
  if (!has_symbols_) return strides;
  for (const auto& [input, dim, symbol] : shadows_->stride_inputs()) strides.push_back({input, dim});
  return strides;
}

std::vector<std::vector<std::string>> ProgramSizes::places_of_symbols() const {
  std::vector<std::vector<std::string>> places(dynamic_.symbols().size());
  for (const py::Ref& input : hooks_.inputs()) {
    const auto symbols = dynamic_.symbols_of(input.get());
    const ir::StrideRule rule = symbols.empty() ? ir::StrideRule() : dynamic_.rule_of(input.get());
    for (std::size_t i = 0; i < rule.steps.size(); ++i) {
      if (rule.steps[i].kind != ir::StrideRule::Kind::kFree) continue;
      const auto symbol = static_cast<std::size_t>(rule.steps[i].number);
      places[symbol].push_back(paths_.at(input.get()) + ".stride(" + std::to_string(i) + ")");
    }
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (!symbols[i]) continue;
      const bool is_number = number_inputs_.is_int(input.get());
      const std::string dim = is_number ? std::string() : ".shape[" + std::to_string(i) + "]";
      places[*symbols[i]].push_back(paths_.at(input.get()) + dim);
    }
  }
  const std::vector<std::string>& data_paths = data_paths_.of(recorder_.data.data_sized());
  for (std::size_t place = 0; place < data_paths.size(); ++place) {
    for (const std::optional<std::uint32_t>& symbol : symbols_of_data(place)) {
      if (symbol) places[*symbol].push_back("size of " + data_paths[place]);
    }
  }
  return places;
}

std::vector<std::string> ProgramSizes::names_of_symbols() const {
  std::vector<std::string> names;
  for (const auto& found : places_of_symbols()) names.push_back(found.empty() ? "?" : found.front());
  return names;
}

void ProgramSizes::describe(Specialization& specialization) const {
  specialization.has_symbols = has_symbols_;
  std::set<std::string> pins;
  const auto add_pin = [&](const std::string& what, const std::string& line) {
    pins.insert(what + (line.empty() ? line : " by " + line));
  };
  for (const auto& [size, line] : pinned_) {
    add_pin((size.is_stride ? "a stride of " : "") + std::to_string(size.now), line);
  }
  for (const auto& [path, shape] : shapes_) {
    for (std::size_t i = 0; history_ != nullptr && i < shape.sizes.size(); ++i) {
      const std::optional<SymbolSizes> values = changes(path, i, shape.sizes[i]);
      const bool is_symbol = has_symbols_ && values && !pinned_.contains(*values);
      const std::string* line = is_symbol ? nullptr : history_->pin_of(path, i);
      if (line != nullptr) add_pin(std::to_string(shape.sizes[i]), *line);
    }
  }
  specialization.pinned_sizes.assign(pins.begin(), pins.end());
  if (!has_symbols_) return;
  const std::vector<std::vector<std::string>> places = places_of_symbols();
  const std::vector<std::string> names = names_of_symbols();
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].empty()) continue;
    specialization.size_symbols.push_back("s" + std::to_string(i) + ": " + names[i]);
    if (!dynamic_.symbols()[i].is_stride) specialization.size_conditions.push_back("2 <= " + names[i]);
    for (std::size_t k = 1; k < places[i].size(); ++k) {
      specialization.size_conditions.push_back(names[i] + " == " + places[i][k]);
    }
  }
  for (const ir::Condition& layout : dynamic_.layouts()) {
    specialization.size_conditions.push_back(with_names(ir::to_string(layout), names));
  }
  for (const auto& [condition, location] : shadows_->assumed()) {
    specialization.size_conditions.push_back(with_names(ir::to_string(condition), names) +
                                             ir::describe_line(location, " (", ")"));
  }
}

SizeHistory::Inputs find_changing(const Specialization& like, const interpreter::CallArguments& arguments,
                                  SizeHistory& history) {
  SizeHistory::Inputs changing;
  SizeHistory::Shapes shapes;
  std::map<std::string, SizeHistory::Seen> seen;
  for (const auto& [path, value] : like.guards.values(arguments)) {
    if (PyLong_CheckExact(value.get())) {
      if (may_be_symbol(value.get()))
        shapes.emplace(number_path(path), SizeHistory::Shape{{PyLong_AsLongLong(value.get())}});
    } else if (is_tensor(value.get()) && !is_parameter(value.get())) {
      const at::Tensor& tensor = unpack_tensor(value.get());
      if (tensor.layout() != at::kStrided) continue;
      shapes.emplace(path, shape_of(tensor));
      if (may_be_guessed(path)) seen.emplace(path, seen_input(tensor));
    }
  }
  history.add_changes(changing, shapes);
  history.add_guesses(changing, seen);
  return changing;
}

void give_symbols_up(const SizeHistory::Inputs& changing, SizeHistory& history) {
  for (const auto& [path, input] : changing) {
    for (std::size_t i = 0; i < input.sizes.size(); ++i) {
      if (input.before[i] != -1) history.pin(path, i, {});
      if (!input.strides.empty()) history.pin_stride(path, i);
    }
  }
}

std::string with_names(const std::string& text, const std::vector<std::string>& names) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    const bool is_symbol = text[i] == 's' && end > i + 1;
    const std::size_t symbol = is_symbol ? std::stoul(text.substr(i + 1, end - i - 1)) : names.size();
    result += symbol < names.size() ? names[symbol] : text.substr(i, is_symbol ? end - i : 1);
    i = is_symbol ? end : i + 1;
  }
  return result;
}

}  // namespace thunder::dispatch
