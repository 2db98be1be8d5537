// SPDX-License-Identifier: MIT
/// \file
/// Small tensors of fixed numbers, and a digest of results. All of it is local to its unit: units
/// have different flags, and must not hand each other functions of the test either.
#pragma once

#include <bit>
#include <cmath>
#include <fovea/core/thread_pool.hpp>
#include <fovea/core/view.hpp>
#include <fovea/simd/isa.hpp>
#include <type_traits>
#include <vector>

#include "result.hpp"

namespace {
namespace problem {

using fovea::Index;
using fovea::Shape;
using fovea::View;

/// A dense tensor of numbers in [-1, 1], which every compiler makes exactly, or of zeros.
template <class T>
class Numbers {
 public:
  explicit Numbers(const Shape& shape, std::uint32_t seed = 0) : shape_(shape) {
    values_.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    std::uint32_t state = seed * 2654435761u;
    for (T& x : values_) {
      state = state * 1664525u + 1013904223u;
      if (seed != 0) x = static_cast<T>(static_cast<float>(state >> 16) / 32768.0f - 1.0f);
    }
  }

  /// The results of an operator.
  View<T> to() { return View<T>(values_.data(), shape_); }
  View<const T> view() const { return View<const T>(values_.data(), shape_); }
  std::vector<T>& values() { return values_; }
  const std::vector<T>& values() const { return values_; }

 private:
  Shape shape_;
  std::vector<T> values_;
};

}  // namespace problem
}  // namespace

/// Inputs take numbers as they take Eigen's tensors.
template <class T>
struct fovea::ViewTraits<problem::Numbers<T>> {
  using Scalar = T;
  static fovea::View<const T> view(const problem::Numbers<T>& x) { return x.view(); }
};

namespace {
namespace problem {

/// The bits and the sum of all that was added.
class Digest {
 public:
  explicit Digest(int level) { fovea::cap_isa_level(static_cast<fovea::IsaLevel>(level)); }

  template <class T>
  void add(const T* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if constexpr (sizeof(T) == 8) {
        mix(std::bit_cast<std::uint64_t>(values[i]));
      } else if constexpr (sizeof(T) == 4) {
        mix(std::bit_cast<std::uint32_t>(values[i]));
      } else {
        mix(std::bit_cast<std::uint16_t>(values[i]));
      }
      const double weight = static_cast<double>(++count_ * 37 % 101) / 50 - 0.75;
      // The lse of a row without keys is infinite; a NaN stays one.
      const auto value = static_cast<double>(values[i]);
      const double product = std::isinf(value) ? weight : weight * value;
      sum_ += product;
      size_ += std::fabs(product);
    }
  }
  template <class... X>
  void add(const Numbers<X>&... results) {
    (add(results.values().data(), results.values().size()), ...);
  }

  hostile::Result result() const {
    return {static_cast<int>(fovea::isa_level()), bits_, sum_, size_};
  }

 private:
  void mix(std::uint64_t bits) { bits_ = (bits_ ^ bits) * 0x100000001b3u; }

  std::uint64_t bits_ = 0xcbf29ce484222325u;
  std::uint64_t count_ = 0;
  double sum_ = 0;
  double size_ = 0;
};

/// The sizes of a problem: 2 sequences, 4 query heads on 2 key heads, 150 tokens, enough for
/// operators to use threads.
inline constexpr Shape kQ{2, 4, 150, 24};
inline constexpr Shape kKey{2, 2, 150, 24};
inline constexpr Shape kRow{2, 4, 150, 1};
/// The tokens of a decoder: some at first, then one by one.
inline constexpr Shape kPrompt{2, 4, 9, 24};
inline constexpr Shape kKeyPrompt{2, 2, 9, 24};
inline constexpr Shape kToken{2, 4, 1, 24};
inline constexpr Shape kKeyToken{2, 2, 1, 24};

/// Both passes of an operator on q and k of kQ and kKey. \param saved besides lse, if any
template <class Op>
void train(const Op& op, const typename Op::template Inputs<float>& inputs, fovea::ThreadPool& pool,
           Digest& digest, typename Op::template Saved<float> saved = {}) {
  const Numbers<float> d_out(kQ, 4);
  Numbers<float> out(kQ), lse(kRow), d_q(kQ), d_k(kKey), d_v(kKey);
  if constexpr (requires { saved.lse; }) saved.lse = lse.to();
  op.forward(inputs, out.to(), saved, pool);
  typename Op::template Grads<float> grads;
  grads.q = d_q.to();
  grads.k = d_k.to();
  grads.v = d_v.to();
  op.backward(inputs, out.to(), saved, d_out, grads, pool);
  digest.add(out, lse, d_q, d_k, d_v);
}

}  // namespace problem
}  // namespace
