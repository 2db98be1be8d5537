// SPDX-License-Identifier: MIT
/// \file
/// Causal sums with fewer key heads than threads: each head's tokens are divided among threads.
#pragma once

#include <algorithm>

#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/linear/stream.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

/// The causal sums of all key heads of a call, kSharedSegments segments of tokens at a time: their
/// chunks are summed, then the states at their starts are computed, and then their rows are
/// computed. Each step is divided among threads. The bits are those of CausalStream::add over all
/// tokens.
/// Cost: that of CausalStream::add, and the features of each token are recomputed. Memory: 3.3 MB
/// for each key head and map with D = Dv = 64 in float, independent of the number of tokens.
/// \tparam Field a LinearTerms for the arithmetic of T
template <class T, class Field>
class SharedStream {
 public:
  /// The type of the arithmetic.
  using C = Compute<T>;
  /// Adds the tokens of a part to its rows.
  using Stream = CausalStream<T, Field>;
  /// One worker's memory.
  using Memory = typename Stream::Memory;

  /// Whether tokens are divided among that many workers: if there are fewer key heads, and
  /// sequences have several segments. (The delta rule is not a sum: its tokens are sequential.)
  static bool is_used(const AttentionShape& shape, const Field& far_field, Index workers) {
    return Field::kHasSums && !Field::kHasDelta && far_field.causal &&
           shape.batch * shape.key_heads < workers && shape.keys >= 2 * kStateSegment;
  }

  /// Allocates the memory for the sums.
  /// \param inputs checked inputs, which are not packed
  /// \param source the call's memory (memory_of)
  /// \throws std::bad_alloc
  template <class Source>
  SharedStream(const LinearFamilyInputs<T>& inputs, const Field& far_field, Source&& source)
      : inputs_(inputs),
        shape_(shape_of(inputs)),
        far_(far_field),
        sequences_(inputs, far_field.alignment),
        memory_(source.take(shape_.batch * shape_.key_heads,
                            head_elements(shape_, far_field) * Index{sizeof(C)})) {}

  /// The largest number of tasks of a step.
  Index most_tasks() const { return key_heads() * (std::max)(kSharedSegments, far_.map_count()); }

  /// Adds the far field to all rows.
  /// \param memory called as memory(worker), returns a Memory
  template <class MemoryOf>
  void run(const Stream& stream, const MemoryOf& memory, const ExecutorRef& executor) {
    for (Index first = 0; first == 0 || first < shape_.keys; first += kTokens) {
      for_each_task(executor, key_heads() * kSharedSegments, [&](Index task, Index worker) {
        sum_chunks(part(first, task), memory(worker));
      });
      for_each_task(executor, key_heads() * far_.map_count(),
                    [&](Index task, Index) { find_starts(first, task); });
      for_each_task(executor, key_heads() * kSharedSegments, [&](Index task, Index worker) {
        read(stream, part(first, task), memory(worker));
      });
    }
  }

 private:
  static constexpr Index kTokens = kSharedSegments * kStateSegment;

  static Index head_elements(const AttentionShape& shape, const Field& far_field) {
    return far_field.map_count() *
           linear_shared_elements<C>(far_field.features(shape.width), shape.value_width);
  }

  Index key_heads() const { return shape_.batch * shape_.key_heads; }

  /// A segment of a key head, and the rows at its positions.
  struct Part {
    Sequence s;
    Index key_head = 0;
    Index segment = 0;  // index among the segments that are summed together
    Index begin = 0;    // its tokens
    Index end = 0;
    Range rows;
  };

  /// \param first the first token of the first segment
  Part part(Index first, Index task) const {
    Part p;
    const Index head = task / kSharedSegments;
    p.s = sequences_[head / shape_.key_heads];
    p.key_head = head % shape_.key_heads;
    p.segment = task % kSharedSegments;
    p.begin = (std::min)(first + p.segment * kStateSegment, p.s.key_end);
    p.end = (std::min)(p.begin + kStateSegment, p.s.key_end);
    const bool is_first = first + p.segment == 0;
    if (p.begin == p.end && !is_first) return p;
    // The first segment also has the rows before it, and the last one those after it.
    const Index position = p.s.first_position;
    const Index queries = p.s.queries;
    p.rows.begin = is_first ? 0 : std::clamp(p.begin - position, Index{0}, queries);
    p.rows.end =
        p.end == p.s.key_end ? queries : std::clamp(p.end - position, p.rows.begin, queries);
    return p;
  }

  /// A key head's sums, for its segments from token `first` on.
  SharedSums<C> sums(const Sequence& s, Index key_head, Index first) {
    const Index head = s.index * shape_.key_heads + key_head;
    // A chunk is summed if there are tokens after it.
    const Index closed = (std::max)(s.key_end - 1 - first, Index{0}) / kLinearChunk;
    return {memory_.template data<C>() + head * head_elements(shape_, far_),
            far_.features(shape_.width), shape_.value_width, (std::min)(closed, kSharedChunks)};
  }
  SharedSums<C> sums(const Part& p) { return sums(p.s, p.key_head, p.begin / kTokens * kTokens); }

  void sum_chunks(const Part& p, const Memory& at) {
    LinearChunkArgs<C, kStorage<T>> args;
    if (p.begin == p.end) return;
    args.sums = sums(p);
    args.k = detail::head_stored(inputs_.k, p.s.batch, p.key_head, p.s.first_key + p.begin);
    args.v = detail::head_stored(inputs_.v, p.s.batch, p.key_head, p.s.first_key + p.begin);
    args.maps = far_.linear_maps(shape_.width);
    args.segment = p.segment;
    args.scratch = at.state;
    LinearKernels<C, kStorage<T>>{}.chunks(args);
  }

  void find_starts(Index first, Index task) {
    const Index head = task / far_.map_count();
    const Sequence s = sequences_[head / shape_.key_heads];
    LinearStartArgs<C> args;
    args.sums = sums(s, head % shape_.key_heads, first);
    args.map = task % far_.map_count();
    args.is_first = first == 0;
    LinearKernels<C, kStorage<T>>{}.starts(args);
  }

  void read(const Stream& stream, const Part& p, const Memory& at) {
    if (p.rows.is_empty()) return;
    stream.add(p.s.batch, p.key_head,
               {p.s.first_query + p.rows.begin, p.rows.end - p.rows.begin, p.s.first_key + p.begin,
                p.end - p.begin, p.begin, p.s.first_position + p.rows.begin},
               at, sums(p));
  }

  LinearFamilyInputs<T> inputs_;
  AttentionShape shape_;
  Field far_;
  Sequences<T> sequences_;
  Workspace memory_;
};

FOVEA_NAMESPACE_END
