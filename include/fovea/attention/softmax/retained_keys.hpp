// SPDX-License-Identifier: MIT
/// \file
/// Which of the tokens so far an operator's heads may still see, so that its decoder must keep
/// them.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/attention.hpp"
#include "fovea/attention/softmax/key_source.hpp"
#include "fovea/attention/softmax/operator_ref.hpp"

FOVEA_NAMESPACE_BEGIN

/// The tokens that heads of a causal or a bidirectional pattern see from later positions. These are
/// the last ones if every pass of every head looks back a bounded distance, or only at certain
/// columns of every `stride` keys; otherwise all tokens.
class RetainedKeys {
 public:
  /// \param shape the sizes of the decoder
  RetainedKeys(const HeadPatterns& op, const DecoderShape& shape)
      : period_(op.period(shape.query_heads)),
        first_columns_(static_cast<std::size_t>(shape.key_heads)) {
    for (Index h = 0; h < period_; ++h) patterns_.push_back(op.pattern(h, {}));
    for (const AnyPattern& p : patterns_) passes_ = (std::max)(passes_, p.pass_count());
    sources_.assign(static_cast<std::size_t>(period_ * passes_), KeySource::recent);
    if (!summarise(shape)) {
      columns_ = 0;
      std::ranges::fill(sources_, KeySource::recent);
    }
    receptive_field_ = {0, 0};
    for (Index h = 0; h < period_; ++h) {
      const AnyPattern& p = pattern(h);
      for (Index s = 0; s < p.pass_count(); ++s) {
        if (sources(h)[s] == KeySource::summary) continue;
        receptive_field_.before = (std::max)(receptive_field_.before, p.receptive_field(s).before);
        receptive_field_.after = (std::max)(receptive_field_.after, p.receptive_field(s).after);
      }
    }
  }

  /// The period of the heads' patterns.
  Index period() const { return period_; }

  /// The pattern of head h, for a sequence without tokens.
  const AnyPattern& pattern(Index h) const {
    return patterns_[static_cast<std::size_t>(h % period_)];
  }

  /// The key sources of head h's passes.
  const KeySource* sources(Index h) const { return sources_.data() + h % period_ * passes_; }

  /// The reach of the passes that find their keys among the recent ones.
  const ReceptiveField& receptive_field() const { return receptive_field_; }
  /// Whether those passes look back a bounded number of keys.
  bool is_bounded() const { return receptive_field_.before < kFarPosition; }

  /// The number of columns of every `stride()` keys that are kept for the other passes; 0 if there
  /// are no such passes.
  Index columns() const { return columns_; }
  /// The number of keys out of which `columns()` are kept.
  Index stride() const { return stride_; }
  /// The first column that is kept for a key head.
  Index first_column(Index key_head) const {
    return first_columns_[static_cast<std::size_t>(key_head)];
  }

 private:
  /// Finds which columns are kept. Returns false if all tokens must be kept.
  bool summarise(const DecoderShape& shape) {
    for (Index h = 0; h < period_; ++h) {
      const AnyPattern& p = pattern(h);
      for (Index s = 0; s < p.pass_count(); ++s) {
        if (p.receptive_field(s).before < kFarPosition) continue;
        const KeyColumns keys = p.key_columns(s);
        if (keys.are_all() || (stride_ > 1 && keys.stride != stride_)) return false;
        stride_ = keys.stride;
        sources_[static_cast<std::size_t>(h * passes_ + s)] = KeySource::summary;
      }
    }
    const Index group = detail::group_size(shape.query_heads, shape.key_heads);
    for (Index g = 0; g < shape.key_heads; ++g) {
      Range kept = {stride_, 0};
      for (Index h = g * group; h < (g + 1) * group; ++h) add_columns(h, kept);
      columns_ = (std::max)(columns_, kept.end - kept.begin);
      first_columns_[static_cast<std::size_t>(g)] = kept.begin;
    }
    // Every key head keeps the same number of columns, so some heads may have to begin earlier.
    for (Index& first : first_columns_) first = (std::min)(first, stride_ - columns_);
    return columns_ < stride_;
  }

  void add_columns(Index h, Range& kept) const {
    const AnyPattern& p = pattern(h);
    for (Index s = 0; s < p.pass_count(); ++s) {
      if (sources(h)[s] != KeySource::summary) continue;
      const Range columns = p.key_columns(s).columns;
      kept = {(std::min)(kept.begin, columns.begin), (std::max)(kept.end, columns.end)};
    }
  }

  Index period_;
  std::vector<AnyPattern> patterns_;  // [period_]
  Index passes_ = 1;
  std::vector<KeySource> sources_;  // [period_, stages_]
  ReceptiveField receptive_field_;
  Index stride_ = 1;
  Index columns_ = 0;
  std::vector<Index> first_columns_;  // [key heads]
};

FOVEA_NAMESPACE_END
