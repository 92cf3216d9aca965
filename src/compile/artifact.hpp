#pragma once

#include <cstdint>
#include <string>

#include "base/json.hpp"
#include "base/result.hpp"
#include "space/instance.hpp"

namespace jitune::compile {

/// One compilation asked of a worker.
struct Request {
  space::BuildSpec spec;
  std::string nvrtc_path;                         ///< absolute; the worker must use this one and no other
  std::vector<std::string> toolkit_include_dirs;  ///< added after the author's own
  std::string header_directory;  ///< where precompiled headers are shared; "" when few configs of this kernel come
};

enum class Status : uint8_t { ok, error, timeout, crash };
/// `ok`, `error`, `timeout`, `crash`: the words of the table `artifacts`.
const char* to_string(Status status) noexcept;
std::optional<Status> parse_status(std::string_view word) noexcept;

/// One compilation: the cubin and all that is known of it, or why there is none.
struct Artifact {
  Status status = Status::error;
  std::string cubin;         ///< CUDA ELF bytes; PTX where the device is newer than NVRTC
  std::string lowered_name;  ///< the symbol to ask of the module
  int regs = 0;
  int64_t static_smem_bytes = 0;
  int64_t local_bytes = 0;  ///< per thread; stack frame of the kernel
  int64_t spill_bytes = 0;  ///< spill stores + spill loads as ptxas counts them
  double compile_ms = 0;
  std::string headers;  ///< `plain`; `made` or `used` a precompiled header; why it could not be used. Never stored
  std::string log;      ///< NVRTC's log, or a crashed worker's last words; at most 16 KiB, the cut marked
};

Json to_json(const Request& request);
Result<Request> request_from_json(const Json& json);
Json to_json(const Artifact& artifact);
Result<Artifact> artifact_from_json(const Json& json);

/// Keeps head and tail of a log that is longer than 16 KiB and says between them how much was cut.
std::string shorten_log(std::string log);

/// Checks that `cubin` is a CUDA ELF (machine 190), or PTX, of a sane size and, when `symbol` is given, holds it.
Result<void> check_cubin(std::string_view cubin, std::string_view symbol = {});

}  // namespace jitune::compile
