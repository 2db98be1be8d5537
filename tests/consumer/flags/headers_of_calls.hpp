// SPDX-License-Identifier: MIT
/// \file
/// The headers for sources whose calls are refused.
#pragma once

#include <fovea/attention.hpp>
#include <fovea/core/eigen.hpp>
#include <fovea/core/thread_pool.hpp>
