// SPDX-License-Identifier: MIT
/// \file
/// Includes every attention operator.
#pragma once

#include "fovea/attention/attention.hpp"
#include "fovea/attention/big_bird.hpp"
#include "fovea/attention/block_sparse.hpp"
#include "fovea/attention/delta_rule.hpp"
#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/fat.hpp"
#include "fovea/attention/fixed.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/fsat.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/longformer.hpp"
#include "fovea/attention/modified.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/attention/softmax/decoder.hpp"
#include "fovea/attention/sparse.hpp"
#include "fovea/attention/strided.hpp"
