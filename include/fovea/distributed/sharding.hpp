// SPDX-License-Identifier: MIT
/// \file
/// A sharded sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "fovea/core/view.hpp"
#include "fovea/distributed/messages/collective_check.hpp"
#include "fovea/distributed/row_layout.hpp"
#include "fovea/distributed/rows/row_window.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The ranks of a call, and the assignment of the sequence's rows to them. All ranks create it
/// together, once, for any number of successive calls. Between calls it keeps the memory of the
/// keys and values of the last pass, since reallocating it costs as much as filling it. (The
/// backward pass of softmax attention, and a forward pass that receives keys in blocks, keep
/// nothing.)
class Sharding {
 public:
  /// \param ranks must outlive this object
  /// \throws std::invalid_argument, on all ranks, if the layout has another number of ranks, or
  /// differs between ranks
  Sharding(const Communicator& ranks, RowLayout layout)
      : ranks_(&ranks), layout_(std::move(layout)) {
    const std::string text = std::string("Sharding with ").append(layout_.text());
    number_ = detail::hash_of(text);
    detail::together(ranks, text, [&] {
      if (layout_.ranks() == ranks.size()) return;
      refuse("Sharding", "the number of ranks of the layout", std::to_string(layout_.ranks()),
             std::to_string(ranks.size()) + ", the size of the communicator");
    });
  }

  /// The ranks.
  const Communicator& ranks() const { return *ranks_; }
  /// The layout.
  const RowLayout& layout() const { return layout_; }
  /// A hash of the layout.
  std::uint64_t number() const { return number_; }
  /// The same rows, for calls that also check another number collectively.
  Sharding with_check_hash(std::uint64_t number) const {
    Sharding made = *this;
    made.number_ ^= number;
    return made;
  }
  /// The rows of this rank, as ascending ranges.
  const std::vector<Range>& own() const { return layout_.of(ranks_->rank()); }
  /// The number of rows of this rank.
  Index own_count() const { return layout_.count(ranks_->rank()); }
  /// The number of rows of the sequence.
  Index count() const { return layout_.rows(); }

  /// The memory kept between calls; copies share it.
  RowWindow& kept_memory() const { return *kept_; }
  /// Frees this rank's memory kept between calls.
  void free_memory() const { *kept_ = RowWindow(); }

 private:
  const Communicator* ranks_;
  RowLayout layout_;
  std::uint64_t number_ = 0;
  std::shared_ptr<RowWindow> kept_ = std::make_shared<RowWindow>();
};

namespace detail {

/// The sizes of a sharded tensor that are equal on every rank: batch, heads and width.
template <class T>
std::string sizes_text(const View<T>& x) {
  std::string text = std::to_string(x.batch());
  text.append("x").append(std::to_string(x.heads())).append("x");
  return text.append(std::to_string(x.width()));
}

}  // namespace detail

}  // namespace distributed

FOVEA_NAMESPACE_END
