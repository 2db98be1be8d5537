// SPDX-License-Identifier: MIT
/// \file
/// The compiled form in one source: all kernels and passes of attention, for float, double and
/// numbers of 16 bits. A program of many sources defines FOVEA_COMPILED for all of them and adds
/// one that includes this header. Or two that share the work, where FOVEA_COMPILED_BITS is 32
/// (float and 16 bits) and 64 (double). CMake's target fovea::compiled does the same in more
/// sources.
#pragma once

#if !defined(FOVEA_COMPILED)
#error "fovea: define FOVEA_COMPILED for this source, and for all sources that use fovea"
#endif
#define FOVEA_KERNELS_UNIT FOVEA_COMPILED_BITS
#define FOVEA_PASSES_UNIT FOVEA_COMPILED_BITS

#include <Eigen/Core>

#include "fovea/attention/call/checked_calls.inl.hpp"
#include "fovea/attention/dense_synthesizer.inl.hpp"
#include "fovea/attention/factorised_synthesizer.inl.hpp"
#include "fovea/attention/fmm/passes.inl.hpp"
#include "fovea/attention/fsat.inl.hpp"
#include "fovea/attention/indexed.inl.hpp"
#include "fovea/attention/linear/decoder_core.inl.hpp"
#include "fovea/attention/linear/passes.inl.hpp"
#include "fovea/attention/linear/performer_decoder_core.inl.hpp"
#include "fovea/attention/linear/performer_passes.inl.hpp"
#include "fovea/attention/linformer.inl.hpp"
#include "fovea/attention/longformer.inl.hpp"
#include "fovea/attention/nystroem.inl.hpp"
#include "fovea/attention/random_synthesizer.inl.hpp"
#include "fovea/attention/reformer.inl.hpp"
#include "fovea/attention/scores.inl.hpp"
#include "fovea/attention/sinkhorn.inl.hpp"
#include "fovea/attention/smart_bird.inl.hpp"
#include "fovea/attention/smart_bird/decoder.inl.hpp"
#include "fovea/attention/softmax/decoder_core.inl.hpp"
#include "fovea/attention/softmax/passes.inl.hpp"
#include "fovea/attention/synthesizer/hidden_layer.inl.hpp"
#include "fovea/attention/synthesizer/key_columns.inl.hpp"
#include "fovea/kernels/indexed/table.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/kernels/linear/table.hpp"
#include "fovea/kernels/sketch/table.hpp"
#include "fovea/kernels/softmax/table.hpp"
#include "fovea/kernels/sorting/table.hpp"
#include "fovea/kernels/spectral/table.hpp"
