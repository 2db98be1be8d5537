// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Nystroem attention over a sharded sequence.
#pragma once

#include "fovea/distributed/nystroem_forward.hpp"
