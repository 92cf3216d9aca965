#pragma once

/// jitune: tunes CUDA kernels just in time. This header is all that an application includes.
#include "jitune/classes.hpp"
#include "jitune/definition.hpp"
#include "jitune/error.hpp"
#include "jitune/kernel.hpp"
#include "jitune/options.hpp"
#include "jitune/reference_data.hpp"
#include "jitune/scoped_inputs.hpp"
#include "jitune/study.hpp"
#include "jitune/tuner.hpp"
#include "jitune/value.hpp"
