// SPDX-License-Identifier: MIT
/// \file
/// Includes weights around the operators: layers with forward and backward passes, a loss and an
/// optimiser. Layers that need FFTW are apart, in fovea/layers/fsat_layer.hpp and
/// fovea/layers/fat_layer.hpp.
#pragma once

#include "fovea/layers/activation.hpp"
#include "fovea/layers/adam.hpp"
#include "fovea/layers/cross_entropy.hpp"
#include "fovea/layers/depthwise_conv.hpp"
#include "fovea/layers/elementwise.hpp"
#include "fovea/layers/embedding.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/encoder_block_decoder.hpp"
#include "fovea/layers/encoder_stack.hpp"
#include "fovea/layers/feed_forward.hpp"
#include "fovea/layers/gated_feed_forward.hpp"
#include "fovea/layers/gelu.hpp"
#include "fovea/layers/head_attention.hpp"
#include "fovea/layers/hidden_map.hpp"
#include "fovea/layers/layer_calls.hpp"
#include "fovea/layers/layer_check.hpp"
#include "fovea/layers/layer_norm.hpp"
#include "fovea/layers/layer_parts.hpp"
#include "fovea/layers/learned_inputs.hpp"
#include "fovea/layers/linear.hpp"
#include "fovea/layers/mean_pool.hpp"
#include "fovea/layers/multi_head.hpp"
#include "fovea/layers/multi_head_decoder.hpp"
#include "fovea/layers/parameter.hpp"
#include "fovea/layers/post_norm_block.hpp"
#include "fovea/layers/predicted_dominant.hpp"
#include "fovea/layers/rms_norm.hpp"
#include "fovea/layers/rotary.hpp"
#include "fovea/layers/row_norm.hpp"
#include "fovea/layers/schedule.hpp"
