// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Smart Bird attention over a sharded sequence. The few columns of the sketch
/// are sent to all ranks that may choose from them; each rank chooses for its own rows, and
/// requests the chosen keys and values.
#pragma once

#include "fovea/distributed/smart_bird/calls.hpp"
