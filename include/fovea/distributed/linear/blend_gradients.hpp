// SPDX-License-Identifier: MIT
/// \file
/// The gradients of the logits of FMM attention's blend across ranks.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <vector>

#include "fovea/attention/fmm/blend.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/distributed/segments/range_sums.hpp"
#include "fovea/distributed/sharding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The gradients of the logits of one backward pass.
template <class T>
class BlendGradients {
 public:
  /// Allocates all memory. \param d_out of this rank's rows
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  BlendGradients(const FmmBlend<T>& blend, const View<const T>& d_out, const Sharding& rows)
      : blend_(blend),
        d_out_(d_out),
        near_(rows.ranks(), rows.layout(), d_out.heads(), d_out.width(), d_out.batch()) {
    if (!blend.is_same_for_columns()) {
      far_.emplace(rows.ranks(), rows.layout(), d_out.heads(), d_out.width(), d_out.batch());
    }
  }

  /// Sums the products of the near field. All messages are exchanged even if computing throws.
  /// \param out the near field of this rank's rows   \returns the exception that computing threw,
  /// or null
  std::exception_ptr add_near(const View<T>& out, const ExecutorRef& executor) {
    return add(near_, out, executor);
  }
  /// Likewise for the unweighted far field. \pre columns have separate weights
  std::exception_ptr add_far(const View<T>& out, const ExecutorRef& executor) {
    return add(*far_, out, executor);
  }

  /// Writes the gradients.
  /// \param far_field [Hq] the sums over batch and rows of <weight d_out, far>; not read if
  /// `add_far` was called
  void write(const std::vector<double>& far_field, const LinearFamilyGrads<T>& grads) {
    const Index width = d_out_.width();
    const auto columns = static_cast<std::size_t>(d_out_.heads() * width);
    std::vector<double> of_near(columns);
    std::vector<double> of_far(columns);
    for (Index h = 0; h < d_out_.heads(); ++h) {
      const auto first = static_cast<std::size_t>(h * width);
      for (Index c = 0; c < width; ++c) {
        const auto [w1, w2] = blend_.at(h, c);
        of_near[first + static_cast<std::size_t>(c)] = near_.of(h)[c] * w1;
        if (!far_) continue;
        of_far[first + static_cast<std::size_t>(c)] = far_->of(h)[c] * (w2 * blend_.share());
      }
      // The sums include the weights w2 / normaliser.
      if (width == 0 || far_) continue;
      of_far[first] = far_field[static_cast<std::size_t>(h)] * blend_.normaliser(h, 0);
    }
    blend_.write_gradients(of_near, of_far, grads);
  }

 private:
  using Sums = RangeSums<double>;  // [heads, Dv]

  std::exception_ptr add(Sums& to, const View<T>& out, const ExecutorRef& executor) {
    return to.run(
        [&](const ScanStep& scan_step, Index h, double* sums) {
          const Index end = scan_step.first + scan_step.rows.end - scan_step.rows.begin;
          for (Index n = scan_step.first; n < end; ++n) {
            for (Index c = 0; c < out.width(); ++c) {
              sums[c] += rounded(static_cast<double>(d_out_(scan_step.round, h, n, c)) *
                                 static_cast<double>(out(scan_step.round, h, n, c)));
            }
          }
        },
        executor);
  }

  FmmBlend<T> blend_;
  View<const T> d_out_;
  Sums near_;
  std::optional<Sums> far_;  // if columns have separate weights
};

}  // namespace distributed

FOVEA_NAMESPACE_END
