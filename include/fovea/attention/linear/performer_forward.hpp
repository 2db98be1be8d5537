// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Performer attention: which thread computes what, and where its scratch
/// memory is.
#pragma once

#include <optional>
#include <vector>

#include "fovea/attention/linear/feature_stream.hpp"
#include "fovea/attention/linear/segment_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// Whether rows of an operator see all keys, and where queries stand if they are fewer or more.
struct PerformerVisibility {
  bool causal = false;  ///< whether a row sees no key after its own position
  CausalAlignment alignment = CausalAlignment::bottom_right;  ///< of queries and keys

  /// The position of query row 0.
  Index first_position(const Sequence& s) const {
    return SequenceShape::of(s.queries, s.keys, alignment).first_position;
  }
  /// The tokens of a sequence that a row can see.
  Index seen(const Sequence& s) const {
    if (s.queries == 0) return 0;
    return causal ? std::clamp(first_position(s) + s.queries, Index{0}, s.key_end) : s.key_end;
  }
};

/// The sums of the features of all keys that a sequence shows, for rows that see them all: those of
/// a segment of tokens have the largest logits of the segment as their reference, and are brought
/// to the largest of all before they are folded.
template <class T>
class FeatureTotals {
 public:
  /// \param features must outlive this object
  FeatureTotals(const PerformerInputs<T>& inputs, const Sequences<T>& sequences,
                const PerformerVisibility& visibility, const RandomFeatures<T>& features,
                Index feature_count)
      : inputs_(inputs),
        sequences_(sequences),
        visibility_(visibility),
        features_(features),
        shape_{1, feature_count, inputs.v.width()},
        sums_(
            sequences, inputs.k.heads(), 1, shape_, [&](Index s) { return sequences[s].keys; },
            padded_row<T>(feature_count)) {}

  /// Bytes of memory.
  static Index bytes(const PerformerShape& shape) {
    return SegmentSums<T>::bytes(shape.batch * shape.key_heads, shape.keys,
                                 {1, shape.features, shape.value_width},
                                 padded_row<T>(shape.features));
  }
  /// Elements of scratch of a worker.
  static Index scratch_elements(const PerformerShape& shape) {
    return kLinearSegment * padded_row<T>(shape.features) +
           RandomFeatures<T>::scratch_elements(shape.width) +
           padded_row<T>(linear_sum_scratch<T>({1, shape.features, shape.value_width}));
  }

  /// The largest number of tasks of a step.
  Index most_tasks() const { return sums_.most_tasks(); }

  /// Takes the memory.
  /// \throws std::bad_alloc
  template <class Memory>
  void reserve(Memory&& memory) {
    sums_.reserve(memory);
  }

  /// Computes all totals.
  /// \param scratch called as scratch(worker), gives scratch_elements(...) elements
  template <class E, class Scratch>
  void compute(E&& executor, const Scratch& scratch) {
    sums_.compute(
        executor, [&](Index s) { return visibility_.seen(sequences_[s]); },
        [&](const SequenceTask& segment, T* sums, Index worker) {
          sum(segment, sums, scratch(worker));
        },
        [&](T* sums, Index segments, Index elements) {
          RandomFeatureKernels<T>{}.join(
              {sums, segments, elements, shape_.width, shape_.value_width});
        });
  }

  /// The total of a key head, as kernels of linear attention read it.
  /// \pre a key is visible
  const T* total(Index sequence, Index key_head) const { return sums_.total(sequence, key_head); }
  /// The reference of the total, [R padded].
  T* reference(Index sequence, Index key_head) const {
    return const_cast<T*>(total(sequence, key_head)) + linear_sum_elements<T>(shape_);
  }

 private:
  void sum(const SequenceTask& segment, T* sums, T* scratch) const {
    const Sequence s = sequences_[segment.sequence];
    const Index begin = segment.part * kLinearSegment;
    const Index tokens = (std::min)(kLinearSegment, visibility_.seen(s) - begin);
    T* const packed = scratch + kLinearSegment * features_.row();
    FeatureRowsArgs<T> rows;
    rows.features = shape_.width;
    rows.reference = sums + linear_sum_elements<T>(shape_);
    for (Index n = 0; n < tokens; n += kFeatureRows) {
      rows.count = (std::min)(kFeatureRows, tokens - n);
      rows.rows = scratch + n * features_.row();
      rows.is_first = n == 0;
      features_.logits(
          detail::head_matrix(inputs_.k, s.batch, segment.head, s.first_key + begin + n),
          rows.count, tokens - n - rows.count, true, rows.rows, packed);
      RandomFeatureKernels<T>{}.maxima(rows);
    }
    rows.rows = scratch;
    rows.count = tokens;
    RandomFeatureKernels<T>{}.keys(rows);
    LinearSumArgs<T> args;
    args.k = {scratch, features_.row(), 1};
    args.v = detail::head_stored(inputs_.v, s.batch, segment.head, s.first_key + begin);
    args.width = shape_.width;
    args.value_width = shape_.value_width;
    args.maps = made_features<T>();
    args.tokens = tokens;
    args.sums = sums;
    args.scratch = packed + RandomFeatures<T>::scratch_elements(inputs_.k.width());
    LinearKernels<T>{}.sum(args);
  }

  const PerformerInputs<T>& inputs_;
  const Sequences<T>& sequences_;
  PerformerVisibility visibility_;
  const RandomFeatures<T>& features_;
  LinearShape shape_;
  SegmentSums<T> sums_;
};

/// One forward pass. If causal, a task is a key head of a sequence with its query heads, which goes
/// over the tokens once. If not causal, the steps are the totals of the keys, and then blocks of
/// rows that read these.
template <class T>
class PerformerForward {
 public:
  /// \param inputs checked inputs, which must outlive this object
  PerformerForward(const PerformerInputs<T>& inputs, const PerformerVisibility& visibility,
                   const View<T>& out)
      : inputs_(inputs),
        shape_(shape_of(inputs)),
        visibility_(visibility),
        sequences_(inputs),
        out_(out) {}

  /// Bytes of scratch memory with that many workers.
  static Index workspace_bytes(const PerformerShape& shape, const PerformerVisibility& visibility,
                               Index workers) {
    const Index projection = RandomFeatures<T>::elements(shape.features, shape.width, false);
    const Index totals = visibility.causal ? 0 : FeatureTotals<T>::bytes(shape);
    return (projection + workers * slot_elements(shape, visibility)) * Index{sizeof(T)} + totals;
  }

  /// Computes the pass.
  /// \throws std::bad_alloc before anything is written
  template <class E>
  void run(E&& executor) {
    auto&& memory = memory_of(executor);
    const Index tasks = reserve_tasks(memory);
    slot_ = slot_elements(shape_, visibility_);
    scratch_ = memory.take(worker_count(executor, tasks), slot_ * Index{sizeof(T)});
    rows_.resize(static_cast<std::size_t>(worker_count(executor, tasks) * group()));
    projection_ = memory.take(
        1, RandomFeatures<T>::elements(shape_.features, shape_.width, false) * Index{sizeof(T)});
    memory.require();
    if (tasks == 0) return;
    if (!inputs_.projection.is_none()) {
      features_.pack(inputs_.projection, false, projection_.template data<T>());
    }
    if (visibility_.causal) {
      run_causal(executor);
    } else {
      run_not_causal(executor);
    }
  }

 private:
  /// Rows of a task that is not causal.
  static constexpr Index kReadRows = 2 * kFeatureRows;

  static Index slot_elements(const PerformerShape& shape, const PerformerVisibility& visibility) {
    const Index group = detail::group_size(shape.query_heads, shape.key_heads);
    if (visibility.causal) {
      return FeatureStream<T>::state_elements(shape.features, shape.value_width) +
             FeatureStream<T>::scratch_elements(shape.features, shape.width, shape.value_width,
                                                group);
    }
    const Index read =
        kFeatureRows * padded_row<T>(shape.features) +
        RandomFeatures<T>::scratch_elements(shape.width) +
        padded_row<T>(linear_read_scratch<T>({1, shape.features, shape.value_width}));
    return (std::max)(read, FeatureTotals<T>::scratch_elements(shape));
  }

  Index group() const { return detail::group_size(shape_.query_heads, shape_.key_heads); }
  T* scratch(Index worker) { return scratch_.template data<T>() + worker * slot_; }

  template <class Memory>
  Index reserve_tasks(Memory&& memory) {
    if (visibility_.causal) return sequences_.count() * shape_.key_heads;
    totals_.emplace(inputs_, sequences_, visibility_, features_, shape_.features);
    totals_->reserve(memory);
    blocks_.emplace(sequences_, shape_.query_heads, [&](Index s, Index) {
      return (sequences_[s].queries + kReadRows - 1) / kReadRows;
    });
    return (std::max)(totals_->most_tasks(), blocks_->count());
  }

  template <class E>
  void run_causal(E&& executor) {
    const FeatureStream<T> stream(inputs_, shape_, features_, out_);
    const Index state = FeatureStream<T>::state_elements(shape_.features, shape_.value_width);
    for_each_task(executor, sequences_.count() * shape_.key_heads, [&](Index task, Index worker) {
      const Sequence s = sequences_[task / shape_.key_heads];
      if (s.queries == 0) return;
      typename FeatureStream<T>::Strip strip;
      strip.first_row = s.first_query;
      strip.rows = s.queries;
      strip.first_token = s.first_key;
      strip.tokens = visibility_.seen(s);
      strip.first_position = visibility_.first_position(s);
      stream.add(s.batch, task % shape_.key_heads, strip,
                 {scratch(worker), scratch(worker) + state, rows_.data() + worker * group()});
    });
  }

  template <class E>
  void run_not_causal(E&& executor) {
    totals_->compute(executor, [&](Index worker) { return scratch(worker); });
    for_each_task(executor, blocks_->count(), [&](Index task, Index worker) {
      const auto [sequence, head, part] = (*blocks_)[task];
      const Sequence s = sequences_[sequence];
      const Index end = (std::min)((part + 1) * kReadRows, s.queries);
      for (Index first = part * kReadRows; first < end; first += kFeatureRows) {
        read(s, head, first, (std::min)(kFeatureRows, end - first), scratch(worker));
      }
    });
  }

  void read(const Sequence& s, Index head, Index first, Index count, T* scratch) const {
    if (visibility_.seen(s) == 0) {
      for (Index n = first; n < first + count; ++n) {
        for (Index c = 0; c < shape_.value_width; ++c) {
          out_(s.batch, head, s.first_query + n, c) = T(0);
        }
      }
      return;
    }
    T* const packed = scratch + kFeatureRows * features_.row();
    features_.queries(detail::head_matrix(inputs_.q, s.batch, head, s.first_query + first), count,
                      s.queries - first - count, totals_->reference(s.index, head / group()),
                      scratch, packed);
    LinearReadArgs<T> args;
    args.rows.q = {scratch, features_.row(), 1};
    args.rows.out = detail::head_output(out_, s.batch, head, s.first_query + first);
    args.row_count = count;
    args.width = shape_.features;
    args.value_width = shape_.value_width;
    args.maps = made_features<T>();
    args.total = totals_->total(s.index, head / group());
    args.scratch = packed + RandomFeatures<T>::scratch_elements(shape_.width);
    LinearKernels<T>{}.read(args);
  }

  const PerformerInputs<T>& inputs_;
  PerformerShape shape_;
  PerformerVisibility visibility_;
  Sequences<T> sequences_;
  View<T> out_;
  RandomFeatures<T> features_;
  Index slot_ = 0;
  Workspace scratch_;                       // [workers]
  Workspace projection_;                    // one, for all
  std::vector<LinearRows<T>> rows_;         // [workers, group]
  std::optional<FeatureTotals<T>> totals_;  // only if not causal
  std::optional<SequenceTasks> blocks_;     // only if not causal
};

FOVEA_NAMESPACE_END
