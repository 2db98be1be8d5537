// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Smart Bird attention over a sharded sequence: that of the lists of chosen
/// keys.
#pragma once

#include "fovea/distributed/smart_bird_forward.hpp"
