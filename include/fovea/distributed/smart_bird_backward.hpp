// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Smart Bird attention over a sequence that is spread over ranks: that over
/// the lists of chosen keys.
#pragma once

#include "fovea/distributed/smart_bird/calls.hpp"
