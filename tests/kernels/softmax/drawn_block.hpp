// SPDX-License-Identifier: MIT
/// \file
/// Blocks that no window makes, drawn from a seed, and calls of the softmax kernel on them, with
/// scratch between guard pages.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "fovea/kernels/softmax/block.hpp"
#include "fovea/kernels/softmax/table.hpp"
#include "kernels/softmax/shows.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/memory.hpp"
#include "support/oracle/softmax.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::KeyRun;
using fovea::Matrix;
using fovea::QueryBlock;

constexpr Index kQueries = 1300;
constexpr Index kKeys = 2700;

/// A block and the storage of its bounds.
struct Block {
  QueryBlock block;
  std::vector<KeyRun> runs;
  std::vector<std::vector<Index>> bounds;  // lower and upper of each run, or empty
  Index key_end = kKeys;

  bool sees(Index r, Index j) const { return j < key_end && shows(runs, r, j); }

  /// The block of row r alone, with only the keys that it sees; tiles and segments must keep their
  /// positions.
  Block alone(Index r) const {
    Block one;
    one.runs = runs;
    one.key_end = key_end;
    for (KeyRun& run : one.runs) {
      if (run.lower == nullptr) continue;
      const Index low = run.lower[r];
      run.first += run.step * low;
      run.count = std::max<Index>(0, run.upper[r] - low);
      run.lower = run.upper = nullptr;
    }
    one.block = block;
    one.block.first = block.first + block.step * r;
    one.block.count = 1;
    return one;
  }

  /// The block of its rows `first`, first + step, ..., which see runs [begin, end).
  Block part(Index first, Index step, Index begin, Index end) const {
    Block made;
    made.key_end = key_end;
    made.block = block;
    made.block.first = block.first + block.step * first;
    made.block.step = block.step * step;
    made.block.count = (block.count - first + step - 1) / step;
    made.runs.assign(runs.begin() + begin, runs.begin() + end);
    made.bounds.resize(2 * made.runs.size());
    for (std::size_t n = 0; n < made.runs.size(); ++n) {
      KeyRun& run = made.runs[n];
      if (run.lower == nullptr) continue;
      for (Index r = first; r < block.count; r += step) {
        made.bounds[2 * n].push_back(run.lower[r]);
        made.bounds[2 * n + 1].push_back(run.upper[r]);
      }
      run.lower = made.bounds[2 * n].data();
      run.upper = made.bounds[2 * n + 1].data();
    }
    return made;
  }
};

/// Bounds of every row: narrow, wide, empty, growing like a causal pattern, sliding like a window,
/// or the same for some rows and then others.
inline void draw_bounds(Draw& draw, Index rows, Index count, std::vector<Index>& lower,
                        std::vector<Index>& upper) {
  const Index kind = draw(0, 4);
  const Index width = draw(0, count);
  const Index group = draw(1, 24);
  for (Index r = 0; r < rows; ++r) {
    if (kind == 0) {
      lower.push_back(draw(0, count));
      upper.push_back(std::min(count, lower.back() + draw(0, 5) - 1 + (lower.back() == 0 ? 1 : 0)));
    } else if (kind == 1) {
      lower.push_back(draw(0, count / 3));
      upper.push_back(draw(0, count));
    } else if (kind == 2) {
      lower.push_back(0);
      upper.push_back(count * (r + 1) / rows);
    } else if (kind == 3) {
      lower.push_back(std::clamp<Index>(r - width, 0, count));
      upper.push_back(std::min(count, r + 1));
    } else if (r % group == 0) {
      lower.push_back(draw(0, count));
      upper.push_back(draw(0, count));
    } else {
      lower.push_back(lower.back());
      upper.push_back(upper.back());
    }
  }
}

/// Consecutive runs of keys, each with its own step and bounds.
inline Block draw_block(std::uint64_t seed) {
  Draw draw(seed);
  Block made;
  made.block.step = draw(1, 3);
  made.block.count = draw(0, 3) == 0 ? draw(1, 400) : draw(1, 70);
  made.block.first = draw(0, kQueries - made.block.step * (made.block.count - 1) - 1);
  const Index runs = draw(0, 9) == 0 ? 0 : draw(0, 1) == 0 ? 1 : draw(2, 4);
  const Index reach = draw(0, 2) == 0 ? kKeys / std::max<Index>(1, runs) : 60;
  Index next = draw(0, 300);
  made.bounds.resize(as_size(2 * runs));  // filled below: the runs keep pointers into it
  for (Index n = 0; n < runs; ++n) {
    KeyRun run;
    run.step = draw(0, 1) == 0 ? 1 : draw(2, 5);
    run.first = std::min(next + draw(0, 9), kKeys);
    run.count = std::min(draw(0, reach), kKeys - run.first) / run.step;
    next = run.first + run.step * run.count;
    if (draw(0, 2) != 0) {
      std::vector<Index>& lower = made.bounds[as_size(2 * n)];
      std::vector<Index>& upper = made.bounds[as_size(2 * n + 1)];
      draw_bounds(draw, made.block.count, run.count, lower, upper);
      run.lower = lower.data();
      run.upper = upper.data();
    }
    made.runs.push_back(run);
  }
  if (draw(0, 2) == 0) made.key_end = draw(0, next);
  if (runs == 1 && made.runs[0].count <= fovea::kBandKeys) made.block.most_keys = fovea::kBandKeys;
  return made;
}

template <class T>
struct Data {
  explicit Data(std::uint64_t seed)
      : Data(seed, 1 + static_cast<Index>(seed * 7 % 20), 1 + static_cast<Index>(seed % 19)) {}
  Data(std::uint64_t seed, Index wide, Index value_wide) : width(wide), value_width(value_wide) {
    q = Tensor<T>({1, 1, kQueries, width});
    k = Tensor<T>({1, 1, kKeys, width}, k_layout(seed));
    v = Tensor<T>({1, 1, kKeys, value_width}, k_layout(seed / 2));
    q.fill(integers(seed, 8));
    k.fill(
        [&](Index b, Index h, Index n, Index d) { return integers(seed + 1, 8)(b, h, n, d) / 8; });
    v.fill(
        [&](Index b, Index h, Index n, Index d) { return integers(seed + 2, 99)(b, h, n, d) / 7; });
  }
  static Layout k_layout(std::uint64_t seed) {
    Layout layout;
    layout.innermost = seed % 4 == 3 ? 2 : 1;
    layout.gap = static_cast<Index>(seed % 3);
    return layout;
  }

  Index width;
  Index value_width;
  Tensor<T> q, k, v;
};

/// A score map and what it points to, and a sink.
template <class T>
struct Options {
  fovea::ScoreMap<T> map;
  std::optional<T> sink = {};
  Index first_position = 0;
};

template <class T>
struct Written {
  std::vector<T> out;  // [kQueries, Dv]
  std::vector<T> lse;  // [kQueries]
};

template <class T>
Matrix<const T> matrix_of(const Tensor<T>& x) {
  const View<T> view = x.view();
  return {view.data(), view.strides()[2], view.width() == 1 ? 1 : view.strides()[3]};
}

template <class T>
Written<T> nothing_written(const Data<T>& data) {
  return {std::vector<T>(as_size(kQueries * data.value_width), T{77}),
          std::vector<T>(as_size(kQueries), T{77})};
}

/// Everything of a call but the block's pointers and scratch.
template <class T>
fovea::SoftmaxBlockArgs<T> args_of(const Data<T>& data, const Options<T>& options,
                                   Written<T>& written) {
  fovea::SoftmaxBlockArgs<T> args;
  args.q = stored(matrix_of(data.q));
  args.k = stored(matrix_of(data.k));
  args.v = stored(matrix_of(data.v));
  args.out = {written.out.data(), data.value_width, 1};
  args.lse = {written.lse.data(), 1, 1};
  args.width = data.width;
  args.value_width = data.value_width;
  args.scale = T{0.25};
  args.map = options.map;
  args.sink = options.sink ? &*options.sink : nullptr;
  args.first_position = options.first_position;
  return args;
}

template <class T>
void call(const Block& block, Guard guard, fovea::SoftmaxBlockArgs<T> args) {
  const Index scratch =
      fovea::softmax_block_scratch(block.block.count, args.width, args.value_width);
  const Index padded = (scratch + 15) / 16 * 16;  // so that either end is aligned to 64 bytes
  const GuardedBytes bytes(as_size(padded) * sizeof(T), guard);
  args.scratch = reinterpret_cast<T*>(bytes.data());
  std::fill_n(args.scratch, padded, std::numeric_limits<T>::quiet_NaN());
  args.key_end = block.key_end;
  args.block = block.block;
  args.block.runs = block.runs.data();
  args.block.run_count = static_cast<Index>(block.runs.size());
  fovea::SoftmaxKernels<T>{}.block(args);
}

template <class T>
Written<T> call(const Block& block, const Data<T>& data, Guard guard,
                const Options<T>& options = {}) {
  Written<T> written = nothing_written(data);
  call(block, guard, args_of(data, options, written));
  return written;
}

/// Row r of a block in what was written, out then lse.
template <class T>
std::vector<T> row_of(const Written<T>& written, const Data<T>& data, const Block& block, Index r) {
  const Index row = block.block.first + block.block.step * r;
  const auto from = written.out.begin() + row * data.value_width;
  std::vector<T> all(from, from + data.value_width);
  all.push_back(written.lse[as_size(row)]);
  return all;
}

/// The expected row of a block, with all options and strided rows and keys.
template <class T>
class MappedBlock {
 public:
  explicit MappedBlock(std::uint64_t seed) : block(draw_block(seed)), data(seed) {
    block.block.most_keys = fovea::kUnboundedKeys;
    Draw draw(seed + 1);
    bias_ = Tensor<T>({1, 1, kQueries, kKeys}, Data<T>::k_layout(seed));
    mask_ = Tensor<bool>({1, 1, kQueries, kKeys}, Data<T>::k_layout(seed / 2));
    bias_.fill([=](Index, Index, Index i, Index j) {
      const std::uint64_t bits = hash(seed, 1, 0, i, j);
      return bits % 5 == 0 ? -std::numeric_limits<double>::infinity() : 2 * uniform(bits);
    });
    mask_.fill([=](Index, Index, Index i, Index j) {
      return hash(seed, 2, 0, i, j) % (i % 3 == 0 ? 40 : 3) == 1 ? 0 : 1;
    });
    options.map.soft_cap = draw(0, 1) == 0 ? T{1.5} : T{0};
    options.map.alibi_slope = draw(0, 1) == 0 ? T{0.0078125} : T{0};
    options.map.bias = matrix_of(bias_);
    options.map.mask = matrix_of(mask_);
    if (draw(0, 1) == 0) options.map.dropout = {0.25, seed, 3, 4};
    if (draw(0, 1) == 0) options.sink = T{0.5};
    options.first_position = draw(-100, 100);
  }

  /// Row r of the block, out then lse, with gauges.
  Reference<T> expected(Index r) const {
    using W = Wide<T>;
    const fovea::ScoreMap<T>& map = options.map;
    const Index row = block.block.first + block.block.step * r;
    const Index position = row + options.first_position;
    W sum = options.sink ? std::exp(W{*options.sink}) : 0;
    W largest = 0;
    Reference<T> made = zero_reference<T>({1, 1, 1, data.value_width + 1});
    bool any = false;
    for (Index j = 0; j < kKeys; ++j) {
      const W bias = bias_(0, 0, row, j);
      if (!block.sees(r, j) || std::isinf(bias) || !mask_(0, 0, row, j)) continue;
      any = true;
      W z = 0;
      for (Index c = 0; c < data.width; ++c) {
        z += W{0.25} * W{data.q(0, 0, row, c)} * W{data.k(0, 0, j, c)};
        largest = std::max(largest, std::abs(z));
      }
      if (map.soft_cap != 0) z = W{map.soft_cap} * std::tanh(z / W{map.soft_cap});
      const auto distance = static_cast<W>(std::abs(position - j));
      const W weight = std::exp(z + bias - W{map.alibi_slope} * distance);
      largest = std::max(largest, std::abs(bias) + W{map.alibi_slope} * distance);
      sum += weight;
      const bool dropped = map.drops() && fovea::uniform_draw<T>(
                                              map.dropout.seed, map.dropout.batch, map.dropout.head,
                                              position, j) < map.dropout.probability;
      const W kept = dropped ? 0 : weight / static_cast<W>(1 - map.dropout.probability);
      for (Index c = 0; c < data.value_width; ++c) {
        made.value[as_size(c)] += kept * W{data.v(0, 0, j, c)};
        made.gauge[as_size(c)] += kept * std::abs(W{data.v(0, 0, j, c)});
      }
    }
    for (W& x : made.value) x = any ? x / sum : 0;
    for (W& x : made.gauge) x = any ? x / sum * (2 + 2 * largest) : 0;
    made.value.back() = any ? std::log(sum) : -std::numeric_limits<W>::infinity();
    made.gauge.back() = 2 + 2 * largest + std::abs(made.value.back());
    return made;
  }

  Block block;
  Data<T> data;
  Options<T> options;

 private:
  Tensor<T> bias_;
  Tensor<bool> mask_;
};

}  // namespace fovea_test
