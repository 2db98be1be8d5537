// SPDX-License-Identifier: MIT
/// \file
/// The operators of fovea_quality, with many choices of their options, causal or not. Those that
/// have no causal form are in quality_mixed.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/io/document_sketch.hpp"
#include "bench/measure/weight_found.hpp"
#include "fovea/attention/big_bird.hpp"
#include "fovea/attention/fixed.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/longformer.hpp"
#include "fovea/attention/performer.hpp"
#include "fovea/attention/strided.hpp"

namespace bench {

/// An operator with one choice of its options.
struct Choice {
  std::string system;     ///< its colour
  std::string series;     ///< its line in the plot
  std::string parameter;  ///< which point of the line
  /// Runs it. \param to its lse is written where the operator has one
  std::function<void(const AllInputs<float>& in, const Result& to, ThreadPool& pool)> run;
  std::function<Index(const AttentionShape& shape)> workspace_bytes;
  bool has_pairs = true;  ///< whether it is a softmax over visible pairs
  /// Prepares the other inputs of `run`; its time is not counted.
  std::function<void(const AllInputs<float>& in, const Result& full, ThreadPool& pool)> prepare =
      {};
  std::string obstacle = {};  ///< why it cannot run at this length; empty: it can

  std::string name() const { return series + (parameter.empty() ? "" : ", " + parameter); }
};

/// An operator with a choice of its options. \param beyond as of shape_for
template <class Op>
Choice choice_of(std::string system, std::string series, std::string parameter, const Op& op,
                 Index beyond = 0) {
  constexpr bool has_pairs = std::same_as<fovea::SavedOf<Op, float>, fovea::SoftmaxSaved<float>>;
  Choice choice;
  choice.system = std::move(system);
  choice.series = std::move(series);
  choice.parameter = std::move(parameter);
  choice.has_pairs = has_pairs;
  choice.run = [op](const AllInputs<float>& in, const Result& to, ThreadPool& pool) {
    if constexpr (has_pairs) {
      op.forward(in, to.out_view, {to.lse_view}, pool);
    } else {
      op.forward(in, to.out_view, pool);
    }
  };
  choice.workspace_bytes = [=](const AttentionShape& shape) {
    return op.template workspace_bytes<float>(shape_for<Op>(shape, beyond), 1);
  };
  return choice;
}

/// "K = 20".
inline std::string set_to(const char* letter, Index value) {
  return std::string(letter) + " = " + std::to_string(value);
}

/// A tensor that an operator would learn.
struct Learned {
  Shape shape;
  std::vector<float> numbers;
  View<const float> view() const { return View<const float>(numbers.data(), shape); }
};

/// A choice that reads more than q, k and v, which is computed before it is timed.
/// \param learn learn(in, full, pool): what it is   \param put put(what, inputs) adds it to them
template <class Learn, class Put>
Choice learning(Choice choice, const Learn& learn, const Put& put) {
  using What = std::invoke_result_t<Learn, const AllInputs<float>&, const Result&, ThreadPool&>;
  const auto what = std::make_shared<What>();
  choice.prepare = [=](const AllInputs<float>& in, const Result& full, ThreadPool& pool) {
    *what = learn(in, full, pool);
  };
  choice.run = [=, run = choice.run](AllInputs<float> in, const Result& to, ThreadPool& pool) {
    put(*what, in);
    run(in, to, pool);
  };
  return choice;
}

namespace detail {

/// The query heads that read key head `group`, and what they read.
inline AllInputs<float> group_of(const AllInputs<float>& in, Index group) {
  const Index heads = in.q.heads() / in.k.heads();
  const Shape shape = {1, heads, in.q.rows(), in.q.width()};
  return {View<const float>(in.q.data() + group * heads * in.q.strides()[1], shape, in.q.strides()),
          head_of(in.k, group), head_of(in.v, group)};
}

/// The heads [first, first + count) of an output.
inline View<float> heads_from(const View<float>& x, Index first, Index count) {
  return View<float>(x.data() + first * x.strides()[1], {1, count, x.rows(), x.width()},
                     x.strides());
}

}  // namespace detail

/// Smart Bird attention. The heads that share a key head have one sketch: the best approximation of
/// their logits in 4 dimensions.
inline Choice smart_bird_choice(const char* series, fovea::SamplingPolicy policy, Index keys,
                                bool causal = true) {
  const fovea::SmartBirdAttention op({.keys_per_row = keys, .policy = policy, .causal = causal});
  const auto sketches = std::make_shared<std::vector<Sketch<float>>>();
  Choice choice = choice_of("smart_bird", series, set_to("K", keys), op, kSketchWidth);
  choice.has_pairs = true;
  choice.prepare = [sketches](const AllInputs<float>& in, const Result&, ThreadPool&) {
    sketches->clear();
    for (Index g = 0; g < in.k.heads(); ++g) {
      sketches->push_back(document_sketch(detail::group_of(in, g), kSketchWidth));
    }
  };
  choice.run = [op, sketches](const AllInputs<float>& in, const Result& to, ThreadPool& pool) {
    const Index heads = in.q.heads() / in.k.heads();
    for (Index g = 0; g < in.k.heads(); ++g) {
      op.forward((*sketches)[static_cast<std::size_t>(g)].beside(detail::group_of(in, g)),
                 detail::heads_from(to.out_view, g * heads, heads),
                 {detail::heads_from(to.lse_view, g * heads, heads)}, pool);
    }
  };
  choice.workspace_bytes = [=, of_heads = choice.workspace_bytes](AttentionShape shape) {
    shape.query_heads /= shape.key_heads;
    shape.key_heads = 1;
    return of_heads(shape);
  };
  return choice;
}

inline Choice performer_choice(Index features, bool causal) {
  const fovea::PerformerAttention op({.causal = causal});
  const auto draw = [=](const AllInputs<float>& in, const Result&, ThreadPool&) {
    Learned drawn{{1, 1, features, in.q.width()},
                  std::vector<float>(static_cast<std::size_t>(features * in.q.width()))};
    fovea::draw_projection(1, View<float>(drawn.numbers.data(), drawn.shape));
    return drawn;
  };
  return learning(choice_of("performer", "performer", set_to("R", features), op, features), draw,
                  [](const Learned& drawn, AllInputs<float>& in) { in.projection = drawn.view(); });
}

namespace detail {

/// The logits of the weights in (0, 1) of near and far that come nearest to full: least squares,
/// for each head. A weight outside is brought to the edge.
inline std::array<Learned, 2> blend_logits(const Result& near_field, const Result& far_field,
                                           const Result& full) {
  static constexpr double edge = 1e-3;
  const auto logit = [](double weight) {
    const double inside = std::clamp(weight, edge, 1 - edge);
    return static_cast<float>(std::log(inside / (1 - inside)));
  };
  const View<float>& out = full.out_view;
  const Shape of_heads = {1, out.heads(), 1, 1};
  std::array<Learned, 2> logits = {{{of_heads, {}}, {of_heads, {}}}};
  for (Index h = 0; h < out.heads(); ++h) {
    double nn = 0, nf = 0, ff = 0, na = 0, fa = 0;  // products
    for (Index n = 0; n < out.rows(); ++n) {
      for (Index c = 0; c < out.width(); ++c) {
        const double a = near_field.out_view(0, h, n, c);
        const double b = far_field.out_view(0, h, n, c);
        nn += a * a, nf += a * b, ff += b * b;
        na += a * out(0, h, n, c), fa += b * out(0, h, n, c);
      }
    }
    const double determinant = nn * ff - nf * nf;
    double w1 = (na * ff - fa * nf) / determinant;
    double w2 = (fa * nn - na * nf) / determinant;
    if (!(w1 > edge)) w1 = edge, w2 = (fa - w1 * nf) / ff;
    if (!(w2 > edge)) w2 = edge, w1 = (na - w2 * nf) / nn;
    logits[0].numbers.push_back(logit(w1));
    logits[1].numbers.push_back(logit(w2));
  }
  return logits;
}

}  // namespace detail

/// FMM attention whose blend is fitted to full attention; nothing else in it is trained.
template <class... Maps>
Choice fmm_choice(Index half_width, bool causal = true) {
  const fovea::FmmAttention<Maps...> op(
      {.band = fovea::Band::half_width(half_width), .causal = causal});
  const auto fit = [=](const AllInputs<float>& in, const Result& full, ThreadPool& pool) {
    const Result near_field(in);
    const Result far_field(in);
    op.near_field().forward(in, near_field.out_view, pool);
    fovea::LinearAttention<Maps...>({.causal = causal}).forward(in, far_field.out_view, pool);
    return detail::blend_logits(near_field, far_field, full);
  };
  const auto put = [](const std::array<Learned, 2>& logits, AllInputs<float>& in) {
    in.near_logits = logits[0].view();
    in.far_logits = logits[1].view();
  };
  return learning(
      choice_of("fmm", "FMM, rank " + std::to_string(sizeof...(Maps)), set_to("k", half_width), op),
      fit, put);
}

/// K of Figure 4 and 5 of the Smart Bird paper.
inline constexpr std::array<Index, 5> kKeysOfFigure = {5, 10, 20, 40, 80};

namespace detail {

/// Softmax over patterns. A window of W keys ends with the row if causal, and has as many keys on
/// both sides otherwise.
inline void add_patterns(bool causal, std::vector<Choice>& all) {
  using fovea::HeadAssignment;
  // The row itself is one of them.
  const auto of_window = [=](Index w) { return set_to("W", causal ? w : w + 1); };
  const auto left = [causal](Index w) { return causal ? w - 1 : w / 2; };
  const auto right = [causal](Index w) { return causal ? 0 : w / 2; };
  for (const Index w : {32, 64, 128, 256, 512}) {
    all.push_back(
        choice_of("local", "window", of_window(w), fovea::LocalAttention{{left(w), right(w)}}));
  }
  for (const Index w : {32, 64, 128, 256, 512}) {
    all.push_back(
        choice_of("longformer", "window, 4 sinks", of_window(w),
                  fovea::LongformerAttention(
                      {.left = left(w), .right = right(w), .first_global = 4, .causal = causal})));
  }
  for (const Index l : {32, 64, 128, 256}) {
    all.push_back(choice_of(
        "strided", "strided", set_to("l", l),
        fovea::StridedAttention{{.stride = l, .heads = HeadAssignment::merged, .causal = causal}}));
  }
  for (const Index l : {32, 64, 128, 256}) {
    all.push_back(choice_of(
        "fixed", "fixed, c = 8", set_to("l", l),
        fovea::FixedAttention{
            {.stride = l, .summary = 8, .heads = HeadAssignment::merged, .causal = causal}}));
  }
  for (const Index b : {16, 32, 64}) {
    all.push_back(choice_of("bigbird", "BigBird", "block " + std::to_string(b),
                            fovea::BigBirdAttention({.block = b, .causal = causal})));
  }
}

}  // namespace detail

/// The first one is full attention, which the others are measured against.
inline std::vector<Choice> quality_choices(bool causal = true) {
  using fovea::EluMinusPlusOne;
  using fovea::EluPlusOne;
  using fovea::TanhPlusOne;
  std::vector<Choice> all;
  all.push_back(choice_of("full", "full", "", fovea::FullAttention{{.causal = causal}}));
  detail::add_patterns(causal, all);
  using fovea::SamplingPolicy;
  for (const Index k : kKeysOfFigure) {
    all.push_back(smart_bird_choice("Smart Bird", SamplingPolicy::squared_inverse_log, k, causal));
  }
  for (const Index k : kKeysOfFigure) {
    all.push_back(smart_bird_choice("Smart Bird, top K", SamplingPolicy::top_k, k, causal));
  }
  all.push_back(choice_of("linear", "linear", "rank 1",
                          fovea::LinearAttention<EluPlusOne>({.causal = causal})));
  all.push_back(choice_of("linear", "linear", "rank 2",
                          fovea::LinearAttention<EluPlusOne, EluMinusPlusOne>({.causal = causal})));
  all.push_back(choice_of(
      "linear", "linear", "rank 3",
      fovea::LinearAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>({.causal = causal})));
  for (const Index r : {64, 256}) all.push_back(performer_choice(r, causal));
  for (const Index k : {5, 20, 64, 128}) all.push_back(fmm_choice<EluPlusOne>(k, causal));
  for (const Index k : {5, 20, 64, 128}) {
    all.push_back(fmm_choice<EluPlusOne, EluMinusPlusOne>(k, causal));
  }
  for (const Index k : {5, 20, 64, 128}) {
    all.push_back(fmm_choice<EluPlusOne, EluMinusPlusOne, TanhPlusOne>(k, causal));
  }
  return all;
}

}  // namespace bench
