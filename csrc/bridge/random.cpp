#include "bridge/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "bridge/generator_states.h"

namespace thunder::bridge {

void RandomState::add(const at::Generator& generator) {
  if (is_captured(generator)) return;
  at::Generator shared = generator;
  const std::scoped_lock lock(shared.mutex());
  states_.emplace_back(shared, shared.get_state());
}

void RandomSources::add(const RandomSources& others) {
  any |= others.any;
  for (const at::Generator& generator : others.own) {
    if (std::ranges::find(own, generator) == own.end()) own.push_back(generator);
  }
}

RandomSources random_sources(const ir::Trace& trace, bool (*may_draw)(const ir::Operator& op)) {
  RandomSources sources;
  sources.any = std::ranges::any_of(trace.symbols, [&](const ir::BoundSymbol& symbol) { return may_draw(*symbol.op); });
  if (!sources.any) return sources;
  for (const ir::TraceContext::Object& object : trace.context()->objects) {
    if (object.kind != ir::ObjectKind::kGenerator) continue;
    sources.add({.any = true, .own = {static_cast<const c10::IValue*>(object.owner.get())->toGenerator()}});
  }
  return sources;
}

RandomState RandomState::now(const RandomSources& sources) {
  RandomState state;
  for (const at::Generator& generator : sources.own) state.add(generator);
  state.add(at::detail::getDefaultCPUGenerator());
  const std::optional<c10::DeviceType> type = at::getAccelerator();
  if (!type) return state;
  const at::AcceleratorHooksInterface& hooks = at::globalContext().getAcceleratorHooksInterface(type);
  for (c10::DeviceIndex i = 0; i < hooks.deviceCount(); ++i) {
    if (hooks.hasPrimaryContext(i)) state.add(hooks.getDefaultGenerator(i));
  }
  return state;
}

void RandomState::restore() const {
  for (auto [generator, state] : states_) {
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(state);
  }
}

at::Generator make_generator(c10::Device device) {
  if (device.is_cpu()) return at::detail::createCPUGenerator();
  return at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
}

}  // namespace thunder::bridge
