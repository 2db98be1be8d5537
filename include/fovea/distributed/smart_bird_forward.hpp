// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Smart Bird attention over a sequence that is spread over ranks. The few
/// columns of the sketch go to all ranks that may choose from them; each rank chooses for its own
/// rows, and asks for the keys and values that were chosen.
#pragma once

#include "fovea/distributed/smart_bird/calls.hpp"
