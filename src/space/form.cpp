#include "space/form.hpp"

#include <array>

#include "space/form_builder.hpp"

namespace jitune::space {

const std::vector<std::string>& device_names() {
  static const std::vector<std::string> names{"device.cc",
                                              "device.cc_major",
                                              "device.cc_minor",
                                              "device.sm_count",
                                              "device.l2_bytes",
                                              "device.memory_bytes",
                                              "device.smem_optin_bytes",
                                              "device.smem_per_sm_bytes",
                                              "device.regs_per_sm",
                                              "device.max_threads_per_block",
                                              "device.max_threads_per_sm",
                                              "device.max_blocks_per_sm",
                                              "device.warp_size"};
  return names;
}

const std::vector<std::string>& kernel_names() {
  static const std::vector<std::string> names{"kernel.regs", "kernel.static_smem_bytes", "kernel.local_bytes",
                                              "kernel.max_blocks_per_sm"};
  return names;
}

void set_device_cells(const DeviceInfo& device, const Symbols& symbols, std::vector<Cell>& cells) {
  const std::array<int64_t, 13> values{device.cc(),
                                       device.cc_major,
                                       device.cc_minor,
                                       device.sm_count,
                                       device.l2_bytes,
                                       device.memory_bytes,
                                       device.smem_optin_bytes,
                                       device.smem_per_sm_bytes,
                                       device.regs_per_sm,
                                       device.max_threads_per_block,
                                       device.max_threads_per_sm,
                                       device.max_blocks_per_sm,
                                       device.warp_size};
  for (size_t i = 0; i < values.size(); ++i)
    cells[static_cast<size_t>(symbols.find(device_names()[i]))] = {Cell::Kind::number, values[i]};
}

std::string cpp_text(const Value& value) {
  const TypeInfo* type = value.is_word() ? find_type(value.as_word()) : nullptr;
  return type != nullptr ? type->cpp : value.text();
}

Cell to_cell(const Value& value, Symbols& symbols) {
  if (value.is_word()) return {Cell::Kind::word, symbols.word(value.as_word())};
  return {Cell::Kind::number, value.as_int()};
}

int find_value(const ParamForm& param, const Evaluation& value) {
  if (value.status != EvalStatus::ok) return -1;
  for (size_t i = 0; i < param.cells.size(); ++i)
    if (param.cells[i].value == value.value && (param.cells[i].kind == Cell::Kind::word) == value.is_word)
      return static_cast<int>(i);
  return -1;
}

std::string list_values(const ParamForm& param) {
  std::string text;
  for (const Value& value : param.values) text += (text.empty() ? "" : ", ") + value.text();
  return text;
}

}  // namespace jitune::space
