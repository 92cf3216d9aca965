#pragma once

#include <cstdint>

// Switches of the stand-in that tests reach by dlsym. They do not exist in a real driver.
extern "C" {
/// Takes a new spec (JSON text), forgets sticky errors and counters. Memory, contexts and modules stay.
/// Returns 0, or 1 when the text is no JSON.
int fake_cuda_configure(const char* spec);
int64_t fake_cuda_allocated_bytes();  ///< device memory that was allocated and not freed
int64_t fake_cuda_modules();          ///< modules loaded and not unloaded
int64_t fake_cuda_launches();         ///< launches of other kernels than the worker's own, since configure
int64_t fake_cuda_waits();            ///< calls that wait for the GPU, since configure
double fake_cuda_last_start_us();     ///< of the latest launch, utility kernels included
double fake_cuda_last_us();           ///< its duration
void fake_cuda_set_capturing(int capturing);
}
