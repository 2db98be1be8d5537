// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of the Synthesizer's forms over a sharded sequence: softmax attention, and the
/// gradients of weights.
#pragma once

#include "fovea/distributed/synthesizer_forward.hpp"
