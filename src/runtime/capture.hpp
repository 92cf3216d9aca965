#pragma once

#include <cuda.h>

#include "gpu/driver.hpp"

namespace jitune::runtime {

/// Whether work on `stream` would go into a CUDA graph, or a synchronising call of this context would spoil a capture
/// that is under way: `stream` is being captured, or another stream that the legacy stream waits for is. A capture of
/// a non-blocking stream by another thread can't be seen; what is done in RelaxedCapture leaves it alone.
inline bool is_capturing(const gpu::Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult code = driver.cuStreamIsCapturing(stream, &status);
  if (code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  if (code == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE) return true;
  return driver.cuStreamIsCapturing(nullptr, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

/// Lets this thread load modules and allocate while some stream is being captured, by whichever thread and in
/// whichever mode, without ending that capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const gpu::Driver& driver) : driver_(driver) {
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const gpu::Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace jitune::runtime
