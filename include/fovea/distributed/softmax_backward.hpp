// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of softmax attention over a sharded sequence.
#pragma once

#include "fovea/distributed/softmax_forward.hpp"
