// SPDX-License-Identifier: MIT
// fovea_test(ALONE)
/// \file
/// kernels/score_map.inl.hpp and score_map_tile.inl.hpp against loops over pairs, at every level:
/// any strides and steps, tails and padding, NaN in memory that must not be read, storage between
/// guard pages.
#include "fovea/kernels/softmax/score_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "fovea/kernels/softmax/block.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace {

using fovea::Index;

constexpr int kTileLanes = 32;

/// A tile and its position; see TilePlace of the kernels.
template <class T>
struct TileCase {
  fovea::ScoreMap<T> map;
  Index row = 0, row_step = 1, rows = 0;
  Index key = 0, key_step = 1;
  Index first_position = 0;
  const Index* lower = nullptr;  // [kTileLanes], or null
  const Index* upper = nullptr;
  Index begin = 0, end = 0;
};

/// The functions of score_map_body.inl.hpp for one level.
template <class T, class Integer>
struct TileOperations {
  void (*cap)(const TileCase<T>&, T* scores, T* most);
  void (*shift)(const TileCase<T>&, T* scores, Integer* seen, T* most);
  void (*visibility)(const TileCase<T>&, Integer* visible);
  void (*drop)(const TileCase<T>&, T* weights, T* factors);
};

}  // namespace

#define FOVEA_LEVEL_BODY "kernels/softmax/score_map_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace fovea_test {
namespace {

template <class T>
using Signed = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
template <class T>
TileOperations<T, Signed<T>> at_level() {
  return FOVEA_AT_LEVEL(fovea::isa_level(), operations<T>());
}

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

/// log2(e) / 2: from natural logits to those of the kernels.
constexpr double kUnit = 0.72134752044448170368;

/// A tile with everything that its map points to.
template <class T>
struct DrawnTile {
  explicit DrawnTile(std::uint64_t seed) : seed_(seed) {
    tile.row_step = draw(1, 3);
    tile.rows = draw(0, 3) == 0 ? draw(1, 70) : draw(1, kTileLanes);
    tile.row = draw(0, 50);
    tile.key_step = draw(0, 2) == 0 ? 2 : 1;
    tile.key = draw(0, 50);
    tile.first_position = draw(-60, 60);
    keys = draw(1, 150);
    tile.begin = draw(0, 2) == 0 ? draw(0, keys - 1) : 0;
    tile.end = draw(0, 2) == 0 ? draw(tile.begin, keys) : keys;
    rows = tile.row + tile.row_step * (tile.rows - 1) + 1;
    columns = tile.key + tile.key_step * (keys - 1) + 1;
  }

  void add_bias() {
    bias = Tensor<T>({1, 1, rows, columns}, layout());
    bias.fill([&](Index, Index, Index i, Index j) {
      const std::uint64_t h = hash(seed_, 1, 0, same(0) ? 0 : i, same(1) ? 0 : j);
      return h % 7 == 0 ? -std::numeric_limits<double>::infinity() : 4 * uniform(h) - 2;
    });
    tile.map.bias = matrix(bias);
  }

  void add_mask() {
    mask = Tensor<bool>({1, 1, rows, columns}, layout());
    mask.fill([&](Index, Index, Index i, Index j) {
      return hash(seed_, 2, 0, same(2) ? 0 : i, same(3) ? 0 : j) % 4 != 0;
    });
    tile.map.mask = matrix(mask);
  }

  void add_bounds() {
    for (int lane = 0; lane < kTileLanes; ++lane) {
      lower.push_back(draw(0, 2) == 0 ? draw(0, keys) : 0);
      upper.push_back(draw(0, 2) == 0 ? draw(0, keys) : keys);
    }
    tile.lower = lower.data();
    tile.upper = upper.data();
  }

  bool sees(Index lane, Index j) const {
    const Index i = tile.row + tile.row_step * lane;
    const Index key = tile.key + tile.key_step * j;
    if (tile.lower != nullptr && !(lower[as_size(lane)] <= j && j < upper[as_size(lane)])) {
      return false;
    }
    if (tile.map.bias.data != nullptr && bias(0, 0, i, key) == -kInfinity<T>) return false;
    return tile.map.mask.data == nullptr || mask(0, 0, i, key);
  }

  Index position(Index lane) const { return tile.row + tile.row_step * lane + tile.first_position; }
  Index key_position(Index j) const { return tile.key + tile.key_step * j; }
  Index lanes() const { return std::min<Index>(tile.rows, kTileLanes); }

  /// Logits [keys, kTileLanes]: NaN and infinities where the pair is hidden and in the padding.
  std::vector<T> logits(double scale) const {
    std::vector<T> s(as_size(keys * kTileLanes));
    for (Index j = 0; j < keys; ++j) {
      for (Index lane = 0; lane < kTileLanes; ++lane) {
        const std::uint64_t h = hash(seed_, 3, 0, lane, j);
        const bool visible = lane < lanes() && sees(lane, j);
        s[as_size(j * kTileLanes + lane)] = visible ? static_cast<T>(scale * (2 * uniform(h) - 1))
                                            : h % 2 == 0 ? kNaN<T>
                                                         : kInfinity<T>;
      }
    }
    return s;
  }

  Index draw(Index low, Index high) {
    return low + static_cast<Index>(hash(seed_, ++count_, 0, 0, 0) %
                                    static_cast<std::uint64_t>(high - low + 1));
  }

  TileCase<T> tile;
  Index keys = 0;
  Index rows = 0, columns = 0;  // of bias and mask
  Tensor<T> bias;
  Tensor<bool> mask;
  std::vector<Index> lower, upper;

 private:
  /// Row-major, transposed, with gaps or a stride, broadcast over queries, keys or both.
  Layout layout() {
    Layout chosen;
    chosen.guard = draw(0, 1) == 0 ? Guard::before : Guard::behind;
    if (draw(0, 2) == 0) chosen.order = {0, 1, 3, 2};
    if (draw(0, 3) == 0) chosen.innermost = draw(2, 3);
    chosen.gap = draw(0, 2);
    chosen.broadcast[2] = draw(0, 3) == 0;
    chosen.broadcast[3] = draw(0, 3) == 0;
    same_.push_back(chosen.broadcast[2]);
    same_.push_back(chosen.broadcast[3]);
    return chosen;
  }

  bool same(std::size_t n) const { return same_[n]; }

  template <class X>
  static fovea::Matrix<const X> matrix(const Tensor<X>& x) {
    return {x.view().data(), x.view().strides()[2], x.view().strides()[3]};
  }

  std::uint64_t seed_;
  Index count_ = 0;
  std::vector<bool> same_;
};

template <class T>
class ScoreMapTile : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(ScoreMapTile, Scalars);

/// One drawn tile with some of bias, mask, ALiBi, bounds; against the sum in higher precision.
template <class T>
void expect_shifted(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  DrawnTile<T> drawn(seed);
  const Index parts = drawn.draw(0, 15);
  drawn.add_bias();
  drawn.add_mask();
  drawn.add_bounds();
  if ((parts & 1) == 0) drawn.tile.map.bias = {};
  if ((parts & 2) == 0) drawn.tile.map.mask = {};
  if ((parts & 4) == 0) drawn.tile.lower = drawn.tile.upper = nullptr;
  if ((parts & 8) != 0) drawn.tile.map.alibi_slope = T{0.25};
  const TileCase<T>& tile = drawn.tile;
  const std::vector<T> before = drawn.logits(3);
  std::optional<std::vector<T>> fused;  // of the first level with fused multiply-add
  at_each_level([&] {
    std::vector<T> scores = before;
    std::vector<Signed<T>> seen(kTileLanes, 0);
    std::vector<T> most(kTileLanes, T{77});
    std::vector<Signed<T>> visible(as_size(drawn.keys * kTileLanes), 7);
    at_level<T>().shift(tile, scores.data(), seen.data(), most.data());
    at_level<T>().visibility(tile, visible.data());
    std::vector<T> real;  // without the padding
    for (Index lane = 0; lane < drawn.lanes(); ++lane) {
      bool any = false;
      T largest = -kInfinity<T>;
      for (Index j = 0; j < drawn.keys; ++j) {
        const auto at = as_size(j * kTileLanes + lane);
        const bool inside = tile.begin <= j && j < tile.end;
        real.push_back(scores[at]);
        if (!inside) {
          EXPECT_EQ(std::memcmp(&scores[at], &before[at], sizeof(T)), 0) << "key " << j;
          continue;
        }
        const bool sees = drawn.sees(lane, j);
        EXPECT_EQ(visible[at], sees ? -1 : 0) << "key " << j;
        any = any || sees;
        largest = std::max(largest, scores[at]);
        if (!sees) {
          EXPECT_EQ(scores[at], -kInfinity<T>) << "key " << j;
          continue;
        }
        const Index i = tile.row + tile.row_step * lane;
        const Wide<T> bias =
            tile.map.bias.data == nullptr ? 0 : Wide<T>{drawn.bias(0, 0, i, drawn.key_position(j))};
        const auto distance =
            static_cast<Wide<T>>(std::abs(drawn.position(lane) - drawn.key_position(j)));
        const Wide<T> alibi = Wide<T>{tile.map.alibi_slope} * distance;
        const Wide<T> expected = Wide<T>{before[at]} + Wide<T>{kUnit} * (bias - alibi);
        const Wide<T> gauge = std::abs(Wide<T>{before[at]}) + std::abs(bias) + alibi;
        EXPECT_LE(error_ratio<T>(scores[at], expected, gauge), 4) << "key " << j;
      }
      EXPECT_EQ(seen[as_size(lane)], any ? -1 : 0);
      EXPECT_EQ(most[as_size(lane)], largest);
    }
    if (fovea::isa_level() == IsaLevel::baseline) return;
    if (!fused) fused = real;
    EXPECT_TRUE(same_bits(*fused, real));
  });
}

TYPED_TEST(ScoreMapTile, ShiftsAndHides) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) expect_shifted<TypeParam>(seed);
}

TYPED_TEST(ScoreMapTile, SeenIsKeptAndNothingIsWrittenToNull) {
  using T = TypeParam;
  DrawnTile<T> drawn(3);
  drawn.add_mask();
  drawn.mask.fill(constant(0));
  const std::vector<T> before = drawn.logits(3);
  at_each_level([&] {
    std::vector<T> scores = before;
    std::vector<Signed<T>> seen(kTileLanes, -1);
    at_level<T>().shift(drawn.tile, scores.data(), seen.data(), nullptr);
    EXPECT_EQ(seen, std::vector<Signed<T>>(kTileLanes, -1));
    at_level<T>().shift(drawn.tile, scores.data(), nullptr, nullptr);
  });
}

TYPED_TEST(ScoreMapTile, SoftCapIsWithinSixUlp) {
  using T = TypeParam;
  for (const double cap : {1e-30, 0.3, 30.0, 1e30}) {
    TileCase<T> tile;
    tile.map.soft_cap = static_cast<T>(cap);
    tile.end = 500;
    const T c = static_cast<T>(static_cast<double>(static_cast<T>(cap)) * kUnit);
    std::vector<T> before(as_size(tile.end * kTileLanes));
    for (std::size_t n = 0; n < before.size(); ++n) {
      const std::uint64_t h = hash(5, static_cast<Index>(n), 0, 0, 0);
      const double size = std::exp2(16 * uniform(h) - 12);
      before[n] = c * static_cast<T>(h % 2 == 0 ? size : -size);
    }
    before[0] = kInfinity<T>;
    before[1] = -kInfinity<T>;
    before[2] = kNaN<T>;
    before[3] = 0;
    before[4] = std::numeric_limits<T>::max();
    std::optional<std::vector<T>> fused;
    at_each_level([&] {
      std::vector<T> scores = before;
      std::vector<T> most(kTileLanes);
      at_level<T>().cap(tile, scores.data(), most.data());
      EXPECT_EQ(scores[0], c);
      EXPECT_EQ(scores[1], -c);
      EXPECT_TRUE(std::isnan(scores[2]));
      EXPECT_EQ(scores[3], 0);
      EXPECT_EQ(scores[4], c);
      EXPECT_EQ(most[0], c);
      for (std::size_t n = 5; n < before.size(); ++n) {
        const Wide<T> expected = Wide<T>{c} * std::tanh(Wide<T>{before[n]} / Wide<T>{c});
        EXPECT_LE(error_ratio<T>(scores[n], expected, 2 * std::abs(expected)), 6) << before[n];
        EXPECT_FALSE(scores[n] > most[n % kTileLanes]);  // which may be NaN in the NaN's lane
      }
      if (fovea::isa_level() == IsaLevel::baseline) return;
      if (!fused) fused = scores;
      EXPECT_TRUE(
          std::memcmp(fused->data() + 3, scores.data() + 3, (scores.size() - 3) * sizeof(T)) == 0);
    });
  }
}

TYPED_TEST(ScoreMapTile, DropoutMatchesScalarDraws) {
  using T = TypeParam;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    DrawnTile<T> drawn(seed);
    fovea::DropoutMap& map = drawn.tile.map.dropout;
    map = {0, hash(seed, 9, 0, 0, 0), drawn.draw(0, 9), drawn.draw(0, 9)};
    // The first pair's own draw, and others.
    const T own = fovea::uniform_draw<T>(map.seed, map.batch, map.head, drawn.position(0),
                                         drawn.key_position(drawn.tile.begin));
    const auto drawn_once = static_cast<double>(own);
    const double probabilities[] = {drawn_once, std::nextafter(drawn_once, 1), 0.1, 0.5,
                                    1 - 0x1p-30};
    map.probability = probabilities[seed % 5];
    at_each_level([&] {
      std::vector<T> weights(as_size(drawn.keys * kTileLanes), T{0.75});
      std::vector<T> factors = weights;
      at_level<T>().drop(drawn.tile, weights.data(), factors.data());
      for (Index j = drawn.tile.begin; j < drawn.tile.end; ++j) {
        for (Index lane = 0; lane < drawn.lanes(); ++lane) {
          const T draw = fovea::uniform_draw<T>(map.seed, map.batch, map.head, drawn.position(lane),
                                                drawn.key_position(j));
          const T factor =
              draw >= map.probability ? static_cast<T>(1 / (1 - map.probability)) : T{0};
          const auto at = as_size(j * kTileLanes + lane);
          EXPECT_EQ(factors[at], factor);
          EXPECT_EQ(weights[at], T{0.75} * factor);
        }
      }
    });
  }
}

}  // namespace
}  // namespace fovea_test
