#include "measure/arguments.hpp"

#include <string>

namespace jitune::measure {

gpu::Trouble Arguments::bind(const gpu::Driver& driver, const Candidate& candidate, const Buffers& buffers, int copy) {
  const std::vector<space::ArgSpec>& args = candidate.args;
  pointers_.assign(args.size(), 0);
  maps_.assign(args.size(), CUtensorMap{});
  params_.clear();
  for (size_t i = 0; i < args.size(); ++i) {
    const space::ArgSpec& arg = args[i];
    if (arg.kind == ArgKind::tensor_map) {
      const auto over = static_cast<size_t>(arg.over);
      // A buffer of bytes is described by bytes.
      if (auto bad = gpu::encode_tensor_map(driver, arg, args[over].type.value_or(Type::uint8),
                                            buffers.address(over, copy), maps_[i]))
        return bad;
    }
    if (arg.is_buffer()) pointers_[i] = buffers.address(i, copy);
    if (candidate.order.empty() && arg.pass && arg.kind != ArgKind::symbol) pass(arg, i);
  }
  for (const int index : candidate.order) pass(args[static_cast<size_t>(index)], static_cast<size_t>(index));
  return {};
}

void Arguments::pass(const space::ArgSpec& arg, size_t index) {
  if (arg.kind == ArgKind::scalar)
    params_.push_back(const_cast<uint8_t*>(arg.scalar.data()));  // the driver only reads through this pointer
  else if (arg.kind == ArgKind::tensor_map)
    params_.push_back(&maps_[index]);
  else
    params_.push_back(&pointers_[index]);
}

gpu::Trouble Arguments::fill_symbols(const gpu::Driver& driver, const gpu::Module& module, const Buffers& buffers,
                                     CUstream stream, bool optional) {
  for (size_t i = 0; i < buffers.args().size(); ++i) {
    const space::ArgSpec& arg = buffers.args()[i];
    if (arg.kind != ArgKind::symbol) continue;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (auto bad = module.symbol(arg.name, address, bytes)) {
      if (optional && bad.code == CUDA_ERROR_NOT_FOUND) continue;
      return bad;
    }
    const auto wanted = static_cast<size_t>(arg.bytes());
    if (bytes < wanted)
      return {CUDA_ERROR_INVALID_VALUE, "the variable `" + arg.name + "` of the module has " + std::to_string(bytes) +
                                            " bytes, the definition gives it " + std::to_string(wanted)};
    if (wanted == 0) continue;
    if (auto bad = trouble(driver, "filling a variable of the module",
                           driver.cuMemcpyDtoDAsync(address, buffers[i].data, wanted, stream)))
      return bad;
  }
  return {};
}

}  // namespace jitune::measure
