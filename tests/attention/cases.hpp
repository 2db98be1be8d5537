// SPDX-License-Identifier: MIT
/// \file
/// The operators of the conformance suite: each enters by one line of `all_cases`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fovea/attention.hpp"
#include "support/executors.hpp"
#include "support/oracle/softmax.hpp"

namespace fovea_test {

using fovea::AttentionShape;
using fovea::Inputs;
using fovea::Saved;

/// A query row and a key, and what their positions follow from.
struct Pair {
  Index b;
  Index h;
  Index row;
  Index j;
  Index queries;
  Index keys;

  /// The row's position: queries end where keys end (spec.md, section 1).
  Index i() const { return row + keys - queries; }
};

/// The law of a pattern: whether a row sees a key, key lengths apart. Written from spec.md.
using Law = std::function<bool(const Pair&)>;

/// One operator with its options, as the properties use it.
template <class T>
struct Case {
  std::string name;
  std::function<void(const Inputs<T>&, const View<T>&, const Saved<T>&, AnyExecutor*)> forward;
  std::function<Index(const AttentionShape&, Index workers)> workspace_bytes;
  std::function<Index(const AttentionShape&)> visible_pairs;
  Law visible;
  std::function<Expected<T>(const Inputs<T>&)> oracle;

  bool sees(const AttentionShape& s, Index b, Index h, Index row, Index j) const {
    return visible(Pair{b, h, row, j, s.queries, s.keys});
  }
};

/// A case without its oracle. `Op` meets fovea::Attention.
template <class T, class Op>
Case<T> make_case(std::string name, const Op& op, Law law) {
  static_assert(fovea::Attention<Op, T>);
  Case<T> made;
  made.name = std::move(name);
  made.forward = [op](const Inputs<T>& in, const View<T>& out, const Saved<T>& saved,
                      AnyExecutor* executor) {
    if (executor == nullptr) {
      op.forward(in, out, saved);
    } else {
      op.forward(in, out, saved, *executor);
    }
  };
  made.workspace_bytes = [op](const AttentionShape& shape, Index workers) {
    return op.template workspace_bytes<T>(shape, workers);
  };
  made.visible_pairs = [op](const AttentionShape& shape) { return op.visible_pairs(shape); };
  made.visible = std::move(law);
  return made;
}

/// An operator that is softmax attention over the pairs that the law shows.
template <class T, class Op>
Case<T> softmax_case(std::string name, const Op& op, Law law) {
  Case<T> made = make_case<T>(std::move(name), op, law);
  made.oracle = [op, law](const Inputs<T>& in) {
    const Wide<T> width = in.q.width() == 0 ? 1 : static_cast<Wide<T>>(in.q.width());
    const Wide<T> scale = op.options.scale ? Wide<T>{*op.options.scale} : 1 / std::sqrt(width);
    return softmax_oracle(in, scale, [&](Index b, Index h, Index row, Index j) {
      return law(Pair{b, h, row, j, in.q.rows(), in.k.rows()});
    });
  };
  return made;
}

/// A window around the position.
inline Law band(Index left, Index right) {
  return [=](const Pair& p) { return p.i() - left <= p.j && p.j <= p.i() + right; };
}

/// A window around the row number: top-left alignment.
inline Law top_left_band(Index left, Index right) {
  return [=](const Pair& p) { return p.row - left <= p.j && p.j <= p.row + right; };
}

/// Every operator under test. To enter one, add a line: a name, the operator, its law; and, if it
/// is no softmax attention, `make_case` with an oracle of its own.
template <class T>
const std::vector<Case<T>>& all_cases() {
  using fovea::FullAttention;
  using fovea::LocalAttention;
  constexpr auto top_left = fovea::CausalAlignment::top_left;
  constexpr Index all = 1 << 30;
  static const std::vector<Case<T>> cases = {
      softmax_case<T>("full", FullAttention{}, [](const Pair&) { return true; }),
      softmax_case<T>("causal", FullAttention{{.causal = true}}, band(all, 0)),
      softmax_case<T>("causal_top_left", FullAttention{{.causal = true, .alignment = top_left}},
                      top_left_band(all, 0)),
      softmax_case<T>("window", FullAttention{{.window = {9, 5}, .scale = -0.4}}, band(9, 5)),
      softmax_case<T>("causal_window", FullAttention{{.causal = true, .window = {70, 3}}},
                      band(70, 0)),
      softmax_case<T>("local_0_0", LocalAttention{}, band(0, 0)),
      softmax_case<T>("local_4_4", LocalAttention{{.left = 4, .right = 4}}, band(4, 4)),
      softmax_case<T>("local_3_0", LocalAttention{{.left = 3}}, band(3, 0)),
      softmax_case<T>("local_16_15", LocalAttention{{.left = 16, .right = 15}}, band(16, 15)),
      softmax_case<T>("local_128_128", LocalAttention{{.left = 128, .right = 128}}, band(128, 128)),
      softmax_case<T>("local_0_7", LocalAttention{{.right = 7, .scale = 0.3}}, band(0, 7)),
      softmax_case<T>("local_top_left",
                      LocalAttention{{.left = 20, .right = 2, .alignment = top_left}},
                      top_left_band(20, 2)),
  };
  return cases;
}

}  // namespace fovea_test
