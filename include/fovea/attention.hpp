// SPDX-License-Identifier: MIT
/// \file
/// The operators.
#pragma once

#include "fovea/attention/attention.hpp"
#include "fovea/attention/decoder.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/local.hpp"
