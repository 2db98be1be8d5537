// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention over lists of keys over a sequence that is spread over ranks. Rows
/// stay where they are; the keys that they list come to them.
#pragma once

#include "fovea/distributed/indexed/calls.hpp"
