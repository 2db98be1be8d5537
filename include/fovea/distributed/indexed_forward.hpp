// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention to gathered keys over a sharded sequence. Rows stay in place; the
/// keys that they list are fetched.
#pragma once

#include "fovea/distributed/indexed/calls.hpp"
