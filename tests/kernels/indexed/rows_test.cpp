// SPDX-License-Identifier: MIT
/// \file
/// The kernels of attention over lists of keys against plain loops, forward and backward: any width
/// and length of list, any strides, what is not visible poisoned, every level; and by bits between
/// the levels that have a fused multiply-add. Consecutive lists of any length, and factors.
#include "fovea/kernels/indexed/rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/attention/indexed/entry_places.hpp"
#include "fovea/kernels/indexed/table.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test::kernels_indexed_rows {

using fovea::KeyLists;
using fovea::Matrix;

struct Sizes {
  Index rows = 7;
  Index keys = 150;
  Index length = 20;  // K
  Index width = 16;
  Index value_width = 16;
  bool causal = false;
  Index innermost = 1;  // stride of columns, and of entries
  bool packed = false;  // consecutive lists that contain only what the row sees
  bool factors = false;
};

/// The arguments of the kernels, and expected results.
template <class T>
class Call {
 public:
  using W = Wide<T>;
  static constexpr double kScale = 0.37;

  explicit Call(const Sizes& sizes)
      : s_(sizes),
        layout_{.innermost = sizes.innermost, .guard = Guard::behind},
        q_({1, 1, s_.rows, s_.width}, layout_),
        k_({1, 1, s_.keys, s_.width}, layout_),
        v_({1, 1, s_.keys, s_.value_width}, layout_),
        d_out_({1, 1, s_.rows, s_.value_width}, layout_),
        list_({1, 1, s_.rows, s_.length}, layout_) {
    q_.fill(gaussian(1));
    k_.fill(gaussian(2));
    v_.fill(gaussian(3));
    d_out_.fill(gaussian(4));
    list_.fill([](Index, Index, Index, Index) { return -1.0; });
    for (Index r = 0; r < s_.rows; ++r) {
      const Index entries = r == 2 ? 0 : r == 3 ? s_.length / 2 : s_.length;
      Index key = static_cast<Index>(hash(5, r, 0, 0, 0) % 3);
      for (Index n = 0; n < entries && key < s_.keys; ++n) {
        list_(0, 0, r, n) = key;
        key += 1 + static_cast<Index>(hash(6, r, n, 0, 0) % 3);
      }
    }
    pack();
    poison();
  }

  struct Result {
    std::vector<T> out, lse, d_q, d_k, d_v;
    std::vector<T> d_factors;  // [rows, K]
  };

  /// \param at_once rows of a call of the forward pass
  Result run(Index at_once = 1 << 20) const {
    const Shape rows = {1, 1, s_.rows, s_.value_width};
    const Tensor<T> out(rows, layout_);
    const Tensor<T> lse({1, 1, s_.rows, 1}, layout_);
    const Tensor<T> d_q(q_.shape(), layout_);
    const Tensor<T> d_k(k_.shape(), layout_);
    const Tensor<T> d_v(v_.shape(), layout_);
    std::vector<T> scratch(
        as_size(std::max(fovea::indexed_grad_scratch(s_.width, s_.value_width, s_.length),
                         fovea::indexed_short_scratch(s_.width, s_.length))) +
        16);
    fovea::IndexedRowsArgs<T> forward;
    forward.q = stored(read(q_));
    forward.k = stored(read(k_));
    forward.v = stored(read(v_));
    forward.out = output(write(out));
    forward.lse = write(lse);
    forward.lists = lists();
    forward.factors = factors();
    forward.width = s_.width;
    forward.value_width = s_.value_width;
    forward.scale = static_cast<T>(kScale);
    forward.scratch = scratch.data();
    for (Index r = 0; r < s_.rows; r += at_once) {
      forward.first = r;
      forward.count = std::min(at_once, s_.rows - r);
      fovea::IndexedKernels<T>{}.rows(forward);
    }
    const std::vector<T> d_factors = backward(out, lse, d_q, d_k, d_v, scratch.data());
    EXPECT_EQ(out.changed_gaps() + d_q.changed_gaps() + d_k.changed_gaps() + d_v.changed_gaps(), 0);
    return {out.values(), lse.values(), d_q.values(), d_k.values(), d_v.values(), d_factors};
  }

  struct Expectation {
    Reference<T> out, lse, d_q, d_k, d_v, d_factors;
  };

  Expectation expected() const {
    const auto zeros = [](const Shape& shape) {
      const std::vector<W> zero(as_size(size_of(shape)));
      return Reference<T>{shape, zero, zero};
    };
    Expectation to{zeros({1, 1, s_.rows, s_.value_width}),
                   zeros({1, 1, s_.rows, 1}),
                   zeros(q_.shape()),
                   zeros(k_.shape()),
                   zeros(v_.shape()),
                   zeros(list_.shape())};
    for (Index r = 0; r < s_.rows; ++r) add_row(r, to);
    return to;
  }

 private:
  Index key_end() const { return s_.keys * 3 / 4; }

  bool sees(Index r, Index n) const {
    const Index key = list_(0, 0, r, n);
    return key >= 0 && key < key_end() && !(s_.causal && key > r + s_.keys - s_.rows - 60);
  }

  KeyLists lists() const {
    const View<const Index> view = list_.view();
    if (s_.packed) return {keys_.data(), 0, 1, s_.length, s_.keys, false, 0, begin_.data()};
    return {view.data(), view.strides()[2], view.strides()[3],     s_.length,
            key_end(),   s_.causal,         s_.keys - s_.rows - 60};
  }

  const T* factors() const { return s_.factors ? factors_.data() : nullptr; }

  /// The factor of entry n of row r; some are 0.
  W factor(Index r, Index n) const {
    if (!s_.factors) return 1;
    const std::uint64_t bits = hash(7, r, n, 0, 0);
    return bits % 7 == 0 ? 0 : static_cast<T>(uniform(bits) * 3 - 1);
  }

  /// The keys of rows as consecutive lists, and the factors of the entries, with nothing after the
  /// last one.
  void pack() {
    begin_.push_back(0);
    for (Index r = 0; r < s_.rows; ++r) {
      for (Index n = 0; n < s_.length; ++n) {
        if (s_.packed && !sees(r, n)) continue;
        keys_.push_back(list_(0, 0, r, n));
        factors_.push_back(static_cast<T>(factor(r, n)));
      }
      begin_.push_back(static_cast<Index>(keys_.size()));
    }
    keys_.shrink_to_fit();
    factors_.shrink_to_fit();
  }

  static Matrix<const T> read(const Tensor<T>& x) {
    const View<T> view = x.view();
    return {view.data(), view.strides()[2], view.strides()[3]};
  }
  static Matrix<T> write(const Tensor<T>& x) {
    const View<T> view = x.view();
    return {view.data(), view.strides()[2], view.strides()[3]};
  }

  /// Keys that no row sees.
  void poison() {
    std::vector<bool> seen(as_size(s_.keys));
    for_each_index(list_.shape(), [&](Index, Index, Index r, Index n) {
      if (sees(r, n)) seen[as_size(list_(0, 0, r, n))] = true;
    });
    for (Index j = 0; j < s_.keys; ++j) {
      if (seen[as_size(j)]) continue;
      const T x =
          j % 2 == 0 ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::infinity();
      for (Index c = 0; c < s_.width; ++c) k_(0, 0, j, c) = x;
      for (Index c = 0; c < s_.value_width; ++c) v_(0, 0, j, c) = x;
    }
  }

  /// Returns the gradients of factors.
  std::vector<T> backward(const Tensor<T>& out, const Tensor<T>& lse, const Tensor<T>& d_q,
                          const Tensor<T>& d_k, const Tensor<T>& d_v, T* scratch) const {
    std::vector<T> d_factors(as_size(s_.rows * s_.length));
    std::vector<fovea::KeyEntry<T>> entries(d_factors.size());
    fovea::IndexedGradRowsArgs<T> rows;
    rows.q = read(q_);
    rows.k = read(k_);
    rows.v = read(v_);
    rows.out = read(out);
    rows.d_out = read(d_out_);
    rows.lse = read(lse);
    rows.d_q = write(d_q);
    rows.lists = lists();
    rows.factors = factors();
    rows.d_factors = s_.factors ? d_factors.data() : nullptr;
    rows.width = s_.width;
    rows.value_width = s_.value_width;
    rows.scale = static_cast<T>(kScale);
    rows.entries = entries.data();
    rows.scratch = scratch;
    const Index pieces = 3;
    std::vector<Index> begin(as_size(pieces * s_.keys) + 1);
    const fovea::EntryPlaces places{begin.data(), s_.keys, pieces};
    const auto first_row = [&](Index piece) { return piece * s_.rows / pieces; };
    for (Index p = 0; p < pieces; ++p) {
      places.count_entries(rows.lists, p, first_row(p), first_row(p + 1) - first_row(p));
    }
    places.place_entries();
    for (Index p = 0; p < pieces; ++p) {
      rows.first = first_row(p);
      rows.count = first_row(p + 1) - rows.first;
      rows.next = places.next(p);
      fovea::IndexedGradKernels<T>{}.rows(rows);
    }
    const fovea::IndexedGradHead<T> head{rows.q, rows.d_out, entries.data(), begin.data()};
    fovea::IndexedGradKeysArgs<T> keys;
    keys.heads = &head;
    keys.head_count = 1;
    keys.d_k = write(d_k);
    keys.d_v = write(d_v);
    keys.width = s_.width;
    keys.value_width = s_.value_width;
    keys.scale = rows.scale;
    keys.count = keys.keys = s_.keys;
    fovea::IndexedGradKernels<T>{}.keys(keys);
    std::vector<T> by_row(d_factors.size());
    for (Index r = 0; r < s_.rows; ++r) {
      for (Index n = 0; n < rows.lists.visible(r); ++n) {
        by_row[as_size(r * s_.length + n)] = d_factors[as_size(rows.lists.place(r) + n)];
      }
    }
    return by_row;
  }

  static void add(Reference<T>& to, Index n, Index c, W term, W size) {
    const std::size_t at = as_size(n * to.shape[3] + c);
    to.value[at] += term;
    to.gauge[at] += size;
  }

  /// One row by MATHS.md, section 2, and its derivatives.
  void add_row(Index r, Expectation& to) const {
    const W scale = static_cast<T>(kScale);
    std::vector<Index> keys;
    std::vector<W> logit, d_weight, d_size, factor_of;
    W reach = 0;
    for (Index n = 0; n < s_.length; ++n) {
      if (!sees(r, n)) continue;
      const Index j = list_(0, 0, r, n);
      W z = 0, size = 0, dp = 0, dp_size = 0;
      for (Index c = 0; c < s_.width; ++c) {
        z += W{q_(0, 0, r, c)} * W{k_(0, 0, j, c)};
        size += std::abs(W{q_(0, 0, r, c)} * W{k_(0, 0, j, c)});
      }
      for (Index c = 0; c < s_.value_width; ++c) {
        dp += W{d_out_(0, 0, r, c)} * W{v_(0, 0, j, c)};
        dp_size += std::abs(W{d_out_(0, 0, r, c)} * W{v_(0, 0, j, c)});
      }
      keys.push_back(j);
      factor_of.push_back(factor(r, n));
      logit.push_back(scale * z);
      d_weight.push_back(dp);
      d_size.push_back(dp_size);
      reach = std::max(reach, scale * size);
    }
    const std::size_t row = as_size(r);
    to.lse.value[row] = -std::numeric_limits<W>::infinity();
    if (keys.empty()) return;
    W sum = 0, delta = 0, delta_size = 0;
    for (const W z : logit) sum += std::exp(z);
    const W lse = std::log(sum);
    to.lse.value[row] = lse;
    to.lse.gauge[row] = 1 + reach + std::abs(lse);
    for (std::size_t n = 0; n < keys.size(); ++n) {
      delta += std::exp(logit[n] - lse) * factor_of[n] * d_weight[n];
      delta_size += std::exp(logit[n] - lse) * std::abs(factor_of[n]) * d_size[n];
    }
    for (std::size_t n = 0; n < keys.size(); ++n) {
      const W p = std::exp(logit[n] - lse);
      const W f = factor_of[n];
      const W ds_size = scale * p * (std::abs(f) * d_size[n] + delta_size);
      W ds = scale * p * (f * d_weight[n] - delta);
      // Only the roundings of W have kept it from 0.
      if (std::abs(ds) <= 64 * std::numeric_limits<W>::epsilon() * ds_size) ds = 0;
      const auto weigh = [&](Reference<T>& x, Index at, Index c, W weight, W size, T other) {
        add(x, at, c, weight * W{other}, size * std::abs(W{other}) * (1 + reach));
      };
      for (Index c = 0; c < s_.width; ++c) {
        weigh(to.d_q, r, c, ds, ds_size, k_(0, 0, keys[n], c));
        weigh(to.d_k, keys[n], c, ds, ds_size, q_(0, 0, r, c));
      }
      for (Index c = 0; c < s_.value_width; ++c) {
        weigh(to.out, r, c, p * f, p * std::abs(f), v_(0, 0, keys[n], c));
        weigh(to.d_v, keys[n], c, p * f, p * std::abs(f), d_out_(0, 0, r, c));
      }
      if (s_.factors) {
        add(to.d_factors, r, static_cast<Index>(n), p * d_weight[n], p * d_size[n] * (1 + reach));
      }
    }
  }

  Sizes s_;
  Layout layout_;
  Tensor<T> q_, k_, v_, d_out_;
  Tensor<Index> list_;
  std::vector<Index> keys_, begin_;  // of consecutive lists
  std::vector<T> factors_;
};

template <class T>
class IndexedRows : public testing::Test {
 protected:
  static void expect_conforms(const Sizes& s) {
    SCOPED_TRACE("K " + std::to_string(s.length) + ", D " + std::to_string(s.width) + ", Dv " +
                 std::to_string(s.value_width) + (s.causal ? ", causal" : "") + ", columns " +
                 std::to_string(s.innermost) + (s.packed ? ", packed" : "") +
                 (s.factors ? ", factors" : ""));
    const Call<T> call(s);
    const auto expected = call.expected();
    std::vector<typename Call<T>::Result> fused;
    at_each_level([&] {
      const auto got = call.run();
      EXPECT_TRUE(within_ratio(got.out, expected.out, 16)) << "out";
      EXPECT_TRUE(within_ratio(got.lse, expected.lse, 8)) << "lse";
      EXPECT_TRUE(within_ratio(got.d_q, expected.d_q, 32)) << "d_q";
      EXPECT_TRUE(within_ratio(got.d_k, expected.d_k, 32)) << "d_k";
      EXPECT_TRUE(within_ratio(got.d_v, expected.d_v, 16)) << "d_v";
      EXPECT_TRUE(within_ratio(got.d_factors, expected.d_factors, 32)) << "d_factors";
      if (fovea::isa_level() != IsaLevel::baseline) fused.push_back(got);
    });
    for (std::size_t i = 1; i < fused.size(); ++i) {
      EXPECT_TRUE(same_bits(fused[0].out, fused[i].out)) << "out";
      EXPECT_TRUE(same_bits(fused[0].lse, fused[i].lse)) << "lse";
      EXPECT_TRUE(same_bits(fused[0].d_q, fused[i].d_q)) << "d_q";
      EXPECT_TRUE(same_bits(fused[0].d_k, fused[i].d_k)) << "d_k";
      EXPECT_TRUE(same_bits(fused[0].d_v, fused[i].d_v)) << "d_v";
      EXPECT_TRUE(same_bits(fused[0].d_factors, fused[i].d_factors)) << "d_factors";
    }
  }
};

using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(IndexedRows, Scalars);

TYPED_TEST(IndexedRows, AnyLengthOfLists) {
  for (const Index length : {0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 20, 40, 64, 65, 100}) {
    this->expect_conforms({.keys = 400, .length = length, .width = 64, .value_width = 64});
    this->expect_conforms({.length = length, .width = 5, .value_width = 3, .causal = true});
  }
}

TYPED_TEST(IndexedRows, AnyWidth) {
  for (const Index width : {0, 1, 3, 4, 8, 15, 16, 17, 32, 33, 64, 80, 128}) {
    this->expect_conforms({.width = width, .value_width = 128 - width});
    this->expect_conforms({.width = width, .value_width = width, .causal = true});
  }
}

TYPED_TEST(IndexedRows, AnyStrides) {
  for (const Index innermost : {2, 3}) {
    for (const Index width : {1, 16, 20, 64}) {
      this->expect_conforms({.width = width, .value_width = width, .innermost = innermost});
    }
  }
}

/// Consecutive lists of any length, with and without factors; rows with more entries than weights
/// in a cache line among short ones.
TYPED_TEST(IndexedRows, ConsecutiveLists) {
  for (const bool factors : {false, true}) {
    for (const Index length : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 40, 100}) {
      for (const bool causal : {false, true}) {
        Sizes s{.rows = 75, .keys = 400, .length = length, .width = 64, .value_width = 64};
        s.causal = causal;
        s.packed = true;
        s.factors = factors;
        this->expect_conforms(s);
      }
    }
    for (const Index width : {0, 1, 5, 16, 20, 32, 33, 128}) {
      for (const Index innermost : {1, 3}) {
        Sizes s{.rows = 40, .width = width, .value_width = 128 - width, .causal = true};
        s.innermost = innermost;
        s.packed = true;
        s.factors = factors;
        this->expect_conforms(s);
      }
    }
  }
}

TYPED_TEST(IndexedRows, FactorsOfEntries) {
  for (const Index length : {0, 1, 3, 8, 17, 64}) {
    for (const Index width : {5, 64}) {
      Sizes s{.length = length, .width = width, .value_width = width};
      s.factors = true;
      this->expect_conforms(s);
    }
  }
}

/// No bit of a row depends on which rows it is computed with, however they are cut.
TYPED_TEST(IndexedRows, ShortRowsDoNotDependOnEachOther) {
  using T = TypeParam;
  Sizes s{.rows = 120, .keys = 300, .length = 9, .width = 24, .value_width = 7, .causal = true};
  s.packed = s.factors = true;
  const Call<T> call(s);
  at_each_level([&] {
    const auto whole = call.run();
    for (const Index rows : {1, 7, 33}) {
      EXPECT_TRUE(same_bits(whole.out, call.run(rows).out)) << rows;
      EXPECT_TRUE(same_bits(whole.lse, call.run(rows).lse)) << rows;
    }
  });
}

/// A key that is in more lists than a reduction block of its gradient has.
TYPED_TEST(IndexedRows, ManyRowsOfAKey) {
  for (const Index rows : {63, 64, 65, 300}) {
    this->expect_conforms({.rows = rows, .keys = 9, .length = 4, .width = 20, .value_width = 6});
  }
}

}  // namespace fovea_test::kernels_indexed_rows
