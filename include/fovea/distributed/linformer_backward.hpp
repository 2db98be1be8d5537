// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Linformer attention over a sharded sequence. Ranks exchange the gradients
/// of the projected keys and values, and rows where ranges end within a block of queries; gradients
/// of tokens and of columns of E and F are computed on the rank that has them.
#pragma once

#include "fovea/distributed/linformer_forward.hpp"
