// SPDX-License-Identifier: MIT
/// \file
/// The operators of fovea_quality that have no causal form. Their learned inputs are computed from
/// q, k and v instead. Test: tests/bench/measure/quality_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
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
  const auto means = [=](const AllInputs<float>& in, const Result&, ThreadPool&) {
    const Index rows = in.k.rows();
    Learned made{{1, 1, projected, rows},
                 std::vector<float>(static_cast<std::size_t>(projected * rows))};
    for (Index p = 0; p < projected; ++p) {
      // Of P segments as equal as may be; a segment of none is the token where it begins.
      const Index first = p * rows / projected;
      const Index end = std::max(first + 1, (p + 1) * rows / projected);
      std::fill_n(made.numbers.begin() + p * rows + first, end - first,
                  1 / static_cast<float>(end - first));
    }
    return made;
  };
  return learning(choice_of("linformer", "Linformer, means", set_to("P", projected),
                            fovea::LinformerAttention{}, projected),
                  means, [](const Learned& made, AllInputs<float>& in) {
                    in.key_projection = in.value_projection = made.view();
                  });
}

/// Nystroem attention, which learns nothing.
inline Choice nystroem_choice(Index landmarks, Index rows) {
  Choice choice = choice_of("nystroem", "Nystroem", set_to("m", landmarks),
                            fovea::NystroemAttention{{.landmarks = landmarks}}, landmarks);
  choice.obstacle = why_not_cut(rows, landmarks);
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
  Choice choice = choice_of("sinkhorn", "Sinkhorn", set_to("b", block),
                            fovea::SinkhornAttention{{.block = block}});
  choice.has_pairs = false;  // its keys are mixtures
  choice.obstacle = why_not_cut(rows, block);
  const auto logits = [=](const AllInputs<float>& in, const Result&, ThreadPool&) {
    const Index blocks = in.k.rows() / block;
    return Learned{{1, in.k.heads(), blocks, blocks}, detail::sorting_logits(in, block)};
  };
  return learning(choice, logits,
                  [](const Learned& made, AllInputs<float>& in) { in.sorting = made.view(); });
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
  const auto best = [=](const AllInputs<float>& in, const Result& full, ThreadPool& pool) {
    return Learned{{1, in.q.heads(), in.q.rows(), dominants},
                   detail::best_queries(in, full, dominants, pool)};
  };
  return learning(choice_of("fsat", "FSAT, best graph", set_to("M", dominants), op, dominants),
                  best,
                  [](const Learned& made, AllInputs<float>& in) { in.dominant = made.view(); });
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
