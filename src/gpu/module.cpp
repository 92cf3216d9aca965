#include "gpu/module.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "gpu/lean_cubin.hpp"

namespace jitune::gpu {
namespace {

// The most blocks in a cluster that every device with clusters supports; more needs leave (CUDA programming guide).
constexpr uint32_t kPortableClusterSize = 8;

Trouble trouble(const Driver& driver, const std::string& what, CUresult result) {
  if (result == CUDA_SUCCESS) return {};
  return {result, driver.describe(what, result)};
}

uint32_t cluster_blocks(const space::Geometry& geometry) {
  return std::max(1u, geometry.cluster[0]) * std::max(1u, geometry.cluster[1]) * std::max(1u, geometry.cluster[2]);
}

bool has_cluster(const space::Geometry& geometry) {
  return geometry.cluster[0] != 0;
}

std::string size_text(const std::array<uint32_t, 3>& size) {
  return std::to_string(size[0]) + "x" + std::to_string(size[1]) + "x" + std::to_string(size[2]);
}

std::string launch_text(const space::Geometry& geometry) {
  std::string text = "launch of grid " + size_text(geometry.grid) + ", block " + size_text(geometry.block);
  if (geometry.shared_bytes > 0) text += ", " + std::to_string(geometry.shared_bytes) + " bytes of shared memory";
  if (has_cluster(geometry)) text += ", cluster " + size_text(geometry.cluster);
  if (geometry.cooperative) text += ", cooperative";
  return text;
}

}  // namespace

Module::Module(Module&& other) noexcept {
  *this = std::move(other);
}

Module& Module::operator=(Module&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(module_, other.module_);
  std::swap(kept_, other.kept_);
  std::swap(function_, other.function_);
  return *this;
}

Module::~Module() {
  if (module_ != nullptr && !kept_) driver_->cuModuleUnload(module_);
}

Trouble Module::load(const Driver& driver, std::string_view cubin, const std::string& lowered_name) {
  *this = Module();
  driver_ = &driver;
  // The driver reads as far as the headers say: they must at least be there and whole.
  const bool is_ptx = cubin.substr(0, 4096).find("\n.version ") != std::string_view::npos;
  if (cubin.size() < 64 || (!is_ptx && cubin.substr(0, 4) != std::string_view("\x7f"
                                                                              "ELF")))
    return {CUDA_ERROR_INVALID_IMAGE, "the cubin is no ELF file (" + std::to_string(cubin.size()) + " bytes)"};
  const std::string text = is_ptx ? std::string(cubin) : std::string();  // the driver wants PTX to end in a NUL
  CUmodule module = nullptr;
  if (const std::string lean = is_ptx ? "" : without_unread_variables(cubin); !lean.empty())
    if (driver.cuModuleLoadData(&module, lean.data()) != CUDA_SUCCESS) module = nullptr;
  if (module == nullptr)
    if (Trouble bad = trouble(driver, "loading the module",
                              driver.cuModuleLoadData(&module, is_ptx ? text.c_str() : cubin.data()));
        bad)
      return bad;
  module_ = module;
  CUfunction function = nullptr;
  const CUresult result = driver.cuModuleGetFunction(&function, module, lowered_name.c_str());
  if (Trouble bad = trouble(driver, "finding `" + lowered_name + "` in the module", result); bad) return bad;
  function_ = function;
  return {};
}

Trouble Module::prepare(const space::Geometry& geometry) {
  int dynamic_limit_bytes = 0;
  CUresult result =
      driver_->cuFuncGetAttribute(&dynamic_limit_bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function_);
  if (Trouble bad = trouble(*driver_, "cuFuncGetAttribute", result); bad) return bad;
  if (geometry.shared_bytes > static_cast<uint32_t>(std::max(0, dynamic_limit_bytes))) {
    result = driver_->cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         static_cast<int>(geometry.shared_bytes));
    if (Trouble bad = trouble(*driver_,
                              "raising the dynamic shared memory to " + std::to_string(geometry.shared_bytes) +
                                  " bytes, more than this GPU gives a block",
                              result);
        bad)
      return bad;
  }
  if (cluster_blocks(geometry) > kPortableClusterSize) {
    result = driver_->cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    if (Trouble bad = trouble(*driver_, "allowing clusters of " + std::to_string(cluster_blocks(geometry)), result);
        bad)
      return bad;
  }
  return {};
}

Trouble Module::facts(const space::Geometry& geometry, space::KernelFacts& facts) const {
  int regs = 0;
  int shared_bytes = 0;
  int local_bytes = 0;
  int blocks = 0;
  CUresult result = driver_->cuFuncGetAttribute(&regs, CU_FUNC_ATTRIBUTE_NUM_REGS, function_);
  if (result == CUDA_SUCCESS)
    result = driver_->cuFuncGetAttribute(&shared_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function_);
  if (result == CUDA_SUCCESS)
    result = driver_->cuFuncGetAttribute(&local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function_);
  if (Trouble bad = trouble(*driver_, "cuFuncGetAttribute", result); bad) return bad;
  const int threads = static_cast<int>(std::min<uint64_t>(geometry.threads(), INT32_MAX));
  result = driver_->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function_, threads, geometry.shared_bytes);
  if (Trouble bad = trouble(*driver_, "asking for the occupancy of " + std::to_string(threads) + " threads", result);
      bad)
    return bad;
  facts.regs = regs;
  facts.static_smem_bytes = shared_bytes;
  facts.local_bytes = local_bytes;
  facts.max_blocks_per_sm = blocks;
  return {};
}

Trouble Module::launch(const space::Geometry& geometry, CUstream stream, void** params) const {
  const CUresult result = gpu::launch(*driver_, function_, geometry, stream, params);
  if (result == CUDA_SUCCESS) return {};
  return {result, driver_->describe(launch_text(geometry), result)};
}

Trouble Module::symbol(const std::string& name, CUdeviceptr& address, size_t& bytes) const {
  return trouble(*driver_, "finding the variable `" + name + "` in the module",
                 driver_->cuModuleGetGlobal(&address, &bytes, module_, name.c_str()));
}

CUresult launch(const Driver& driver, CUfunction function, const space::Geometry& geometry, CUstream stream,
                void** params) {
  const auto& grid = geometry.grid;
  const auto& block = geometry.block;
  if (!has_cluster(geometry) && !geometry.cooperative && !geometry.programmatic_dependent)
    return driver.cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                 geometry.shared_bytes, stream, params, nullptr);
  if (driver.cuLaunchKernelEx == nullptr) return CUDA_ERROR_NOT_SUPPORTED;

  std::array<CUlaunchAttribute, 3> attributes{};
  unsigned count = 0;
  if (has_cluster(geometry)) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count].value.clusterDim.x = geometry.cluster[0];
    attributes[count].value.clusterDim.y = std::max(1u, geometry.cluster[1]);
    attributes[count].value.clusterDim.z = std::max(1u, geometry.cluster[2]);
    ++count;
  }
  if (geometry.cooperative) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[count].value.cooperative = 1;
    ++count;
  }
  if (geometry.programmatic_dependent) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count].value.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  CUlaunchConfig config{};
  config.gridDimX = grid[0];
  config.gridDimY = grid[1];
  config.gridDimZ = grid[2];
  config.blockDimX = block[0];
  config.blockDimY = block[1];
  config.blockDimZ = block[2];
  config.sharedMemBytes = geometry.shared_bytes;
  config.hStream = stream;
  config.attrs = attributes.data();
  config.numAttrs = count;
  return driver.cuLaunchKernelEx(&config, function, params, nullptr);
}

}  // namespace jitune::gpu
