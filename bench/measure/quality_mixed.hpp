// SPDX-License-Identifier: MIT
/// \file
/// The operators of fovea_quality that have no causal form. Their learned inputs are computed from
/// q, k and v instead. Test: tests/bench/measure/quality_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure/quality.hpp"
#include "fovea/attention/fsat.hpp"
#include "fovea/attention/linformer.hpp"
#include "fovea/attention/nystroem.hpp"
#include "fovea/attention/sinkhorn.hpp"

namespace bench {

/// Why a length cannot be divided into parts of that many rows; empty if it can.
inline std::string why_not_cut(Index rows, Index parts) {
  if (rows % parts == 0) return {};
  return "N = " + std::to_string(rows) + " is not a multiple of " + std::to_string(parts);
}

/// Linformer attention whose projections are the means of P segments of tokens: the mean pooling
/// that its paper mentions as an alternative (section 4).
inline Choice linformer_choice(Index projected) {
  const fovea::LinformerAttention op;
  const auto means = std::make_shared<std::vector<float>>();
  Choice choice = named_choice("linformer", "Linformer, means", "P", projected, false);
  choice.prepare = [=](const AllInputs<float>& in, const Result&, ThreadPool&) {
    const Index rows = in.k.rows();
    means->assign(static_cast<std::size_t>(projected * rows), 0);
    for (Index p = 0; p < projected; ++p) {
      // Of P segments as equal as may be; a segment of none is the token where it begins.
      const Index first = p * rows / projected;
      const Index end = std::max(first + 1, (p + 1) * rows / projected);
      for (Index j = first; j < end; ++j) {
        (*means)[static_cast<std::size_t>(p * rows + j)] = 1 / static_cast<float>(end - first);
      }
    }
  };
  choice.run = [=](AllInputs<float> in, const Result& to, ThreadPool& pool) {
    in.key_projection = {means->data(), {1, 1, projected, in.k.rows()}};
    in.value_projection = in.key_projection;
    op.forward(in, to.out_view, pool);
  };
  choice.workspace_bytes = [=](const AttentionShape& shape) {
    return op.workspace_bytes<float>(shape_for<fovea::LinformerAttention>(shape, projected), 1);
  };
  return choice;
}

/// Nystroem attention, which learns nothing.
inline Choice nystroem_choice(Index landmarks, Index rows) {
  fovea::NystroemOptions options;
  options.landmarks = landmarks;
  const fovea::NystroemAttention op(options);
  Choice choice = named_choice("nystroem", "Nystroem", "m", landmarks, false);
  choice.obstacle = why_not_cut(rows, landmarks);
  choice.run = [op](const AllInputs<float>& in, const Result& to, ThreadPool& pool) {
    op.forward(in, to.out_view, pool);
  };
  choice.workspace_bytes = [=](const AttentionShape& shape) {
    return op.workspace_bytes<float>(shape_for<fovea::NystroemAttention>(shape, landmarks), 1);
  };
  return choice;
}

namespace detail {

/// For each key head, <mean query of block u, mean key of block w> / sqrt(D).
inline std::vector<float> sorting_logits(const AllInputs<float>& in, Index block) {
  const Index blocks = in.k.rows() / block;
  const Index width = in.q.width();
  const Index group = in.q.heads() / in.k.heads();
  std::vector<float> logits;
  for (Index h = 0; h < in.k.heads(); ++h) {
    Eigen::MatrixXd q = Eigen::MatrixXd::Zero(blocks, width);
    Eigen::MatrixXd k = q;
    for (Index n = 0; n < in.k.rows(); ++n) {
      for (Index c = 0; c < width; ++c) {
        k(n / block, c) += in.k(0, h, n, c);
        for (Index g = 0; g < group; ++g) q(n / block, c) += in.q(0, h * group + g, n, c);
      }
    }
    const auto count = static_cast<double>(block);
    const Eigen::MatrixXd products =
        q * k.transpose() /
        (count * count * static_cast<double>(group) * std::sqrt(static_cast<double>(width)));
    for (Index u = 0; u < blocks; ++u) {
      for (Index w = 0; w < blocks; ++w) logits.push_back(static_cast<float>(products(u, w)));
    }
  }
  return logits;
}

}  // namespace detail

/// Sinkhorn attention whose sorting logits are the products of the blocks' mean queries and keys.
inline Choice sinkhorn_choice(Index block, Index rows) {
  const fovea::SinkhornAttention op({.block = block});
  const auto logits = std::make_shared<std::vector<float>>();
  Choice choice = named_choice("sinkhorn", "Sinkhorn", "b", block, false);
  choice.obstacle = why_not_cut(rows, block);
  choice.prepare = [=](const AllInputs<float>& in, const Result&, ThreadPool&) {
    *logits = detail::sorting_logits(in, block);
  };
  choice.run = [=](const AllInputs<float>& in, const Result& to, ThreadPool& pool) {
    const Index blocks = in.k.rows() / block;
    const View<const float> sorting(logits->data(), {1, in.k.heads(), blocks, blocks});
    op.forward({in.q, in.k, in.v, {}, sorting}, to.out_view, pool);
  };
  choice.workspace_bytes = [op](const AttentionShape& shape) {
    return op.workspace_bytes<float>(shape, 1);
  };
  return choice;
}

namespace detail {

/// The queries that give each key the largest weights of full attention, [1, Hq, N, M], as numbers:
/// those that a sketch of the keys would choose whose products are the logarithms of the weights.
inline std::vector<float> best_queries(const AllInputs<float>& in, const Result& full, Index count,
                                       ThreadPool& pool) {
  const fovea::SmartBirdAttention op(
      {.keys_per_row = count, .policy = fovea::SamplingPolicy::top_k});
  const Index rows = in.q.rows();
  const Index width = in.q.width() + 1;
  const double root = std::sqrt(static_cast<double>(width));
  const double scale = root / std::sqrt(static_cast<double>(std::max<Index>(1, in.q.width())));
  std::vector<float> chosen;
  for (Index h = 0; h < in.q.heads(); ++h) {
    const Index key_head = h / (in.q.heads() / in.k.heads());
    Sketch<float> of{{1, 1, rows, width}, {1, 1, rows, width}, {}, {}};
    for (Index n = 0; n < rows; ++n) {
      for (Index c = 0; c + 1 < width; ++c) {
        of.q.push_back(static_cast<float>(scale * double{in.k(0, key_head, n, c)}));
        of.k.push_back(in.q(0, h, n, c));
      }
      of.q.push_back(static_cast<float>(root));
      of.k.push_back(-full.lse_view(0, h, n, 0));
    }
    AllInputs<float> sketch;
    sketch.sketch_q = View<const float>(of.q.data(), of.q_shape);
    sketch.sketch_k = View<const float>(of.k.data(), of.k_shape);
    const fovea::IndexTensor lists = op.select(sketch.sketch(), 1, pool);
    for (Index n = 0; n < rows; ++n) {
      for (Index m = 0; m < count; ++m) {
        const Index query = lists.view()(0, 0, n, m);
        // There are fewer queries than slots: the first one again, which is the same edge.
        chosen.push_back(static_cast<float>(query < 0 ? lists.view()(0, 0, n, 0) : query));
      }
    }
  }
  return chosen;
}

}  // namespace detail

/// FSAT attention on the model's own keys and values, without a cross: a key is seen by the M
/// queries that give it the most weight, with confidence 1. So near its graph can come.
inline Choice fsat_choice(Index dominants, Index rows) {
  const fovea::FsatAttention op({.max_length = rows, .confidence = fovea::Confidence::relative});
  const auto best = std::make_shared<std::vector<float>>();
  Choice choice = named_choice("fsat", "FSAT, best graph", "M", dominants, true);
  choice.prepare = [=](const AllInputs<float>& in, const Result& full, ThreadPool& pool) {
    *best = detail::best_queries(in, full, dominants, pool);
  };
  choice.run = [=](AllInputs<float> in, const Result& to, ThreadPool& pool) {
    in.dominant = {best->data(), {1, in.q.heads(), in.q.rows(), dominants}};
    op.forward(in, to.out_view, {to.lse_view}, pool);
  };
  choice.workspace_bytes = [=](const AttentionShape& shape) {
    return op.workspace_bytes<float>(shape_for<fovea::FsatAttention>(shape, dominants), 1);
  };
  return choice;
}

/// All of them, for that many rows.
inline std::vector<Choice> mixed_choices(Index rows) {
  std::vector<Choice> all;
  for (const Index p : {64, 128, 256}) all.push_back(linformer_choice(p));
  for (const Index m : {32, 64, 128, 256}) all.push_back(nystroem_choice(m, rows));
  for (const Index b : {32, 64, 128}) all.push_back(sinkhorn_choice(b, rows));
  for (const Index m : {4, 16, 64}) all.push_back(fsat_choice(m, rows));
  return all;
}

}  // namespace bench
