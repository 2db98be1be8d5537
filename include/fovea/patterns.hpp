// SPDX-License-Identifier: MIT
/// \file
/// Patterns: which key each query sees.
#pragma once

#include "fovea/patterns/pattern.hpp"
#include "fovea/patterns/window.hpp"
