// SPDX-License-Identifier: MIT
/// \file
/// One causal pass over a key head's tokens with random features, and the query heads that read it.
/// The forward pass runs it over all tokens, a decoder as they arrive.
#pragma once

#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/linear/random_features.hpp"

FOVEA_NAMESPACE_BEGIN

/// The default observer of a FeatureStream's tokens: does nothing.
struct NoObserver {
  /// The logits of tokens from `position` on.
  template <class T>
  void take(Index /*position*/, const T* /*logits*/, Index /*count*/) const {}
  /// The token at `position` is about to raise the reference.
  void raise(Index /*position*/) const {}
};

/// The stream of one call. Keys' features are exp(logit - reference), where each feature's
/// reference was set by the last token that raised it: 16 above its logit, so that few tokens raise
/// any. On a raise, the state is multiplied by the exponential of the difference. So a row depends
/// only on the tokens up to its own, and nothing overflows. Between two raises the sums are those
/// of linear attention, whose kernels accept any division of the tokens.
/// \tparam T float or double
template <class T>
class FeatureStream {
 public:
  /// One worker's memory.
  struct Memory {
    T* state = nullptr;             ///< [state_elements] the state of the sums, and the reference
    T* scratch = nullptr;           ///< [scratch_elements]
    LinearRows<T>* rows = nullptr;  ///< [group]
  };

  /// Rows, and tokens that the state does not contain yet.
  struct RowBlock {
    Index first_row = 0;       ///< first row of q and out
    Index rows = 0;            ///< number of rows of each query head
    Index first_token = 0;     ///< first row of k and v
    Index tokens = 0;          ///< number of tokens to add
    Index length = 0;          ///< number of tokens in the state
    Index first_position = 0;  ///< position of the first row; negative only if `length` is 0
  };

  /// \param inputs must outlive this object, and so must `features`
  /// \param shape the call's sizes: heads, R, D and Dv
  FeatureStream(const PerformerInputs<T>& inputs, const PerformerShape& shape,
                const RandomFeatures<T>& features, const View<T>& out)
      : inputs_(inputs),
        shape_(shape),
        group_(detail::group_size(shape.query_heads, shape.key_heads)),
        features_(features),
        out_(out) {}

  /// Elements of a key head's state without its reference.
  static Index sums_elements(Index features, Index value_width) {
    return padded_row<T>(linear_state_elements<T>({1, features, value_width}));
  }
  /// Elements of a key head's state.
  static Index state_elements(Index features, Index value_width) {
    return sums_elements(features, value_width) + padded_row<T>(features);
  }
  /// Elements of scratch.
  static Index scratch_elements(Index features, Index width, Index value_width, Index group) {
    const Index rows = kFeatureRows * padded_row<T>(features);
    return (1 + group) * rows + padded_row<T>(features) +
           RandomFeatures<T>::scratch_elements(width) +
           padded_row<T>(linear_stream_scratch<T>({1, features, value_width}));
  }

  /// Adds tokens to a key head's state, and computes rows from it on the way.
  /// \param observer is notified of the tokens (NoObserver)
  template <class Observer = NoObserver>
  void add(Index b, Index key_head, const RowBlock& row_block, const Memory& at,
           Observer&& observer = {}) const {
    const Parts parts(*this, at);
    const Index end = row_block.length + row_block.tokens;
    Index row =
        end == 0 ? row_block.rows : std::clamp(-row_block.first_position, Index{0}, row_block.rows);
    if (row > 0) read(b, key_head, row_block, {0, 0, row_block.length, 0, row, {}}, parts);
    for (Index token = 0; token < row_block.tokens || row < row_block.rows;) {
      const Index count = (std::min)(kFeatureRows, row_block.tokens - token);
      Matrix<const T> v;
      if (count > 0) {
        const Index first = row_block.first_token + token;
        features_.logits(detail::head_matrix(inputs_.k, b, key_head, first), count,
                         row_block.tokens - token - count, true, parts.keys, parts.packed);
        observer.take(row_block.length + token, parts.keys, count);
        v = detail::head_matrix(inputs_.v, b, key_head, first);
      }
      row = add_block(b, key_head, row_block, token, count, row, v, parts, observer);
      token += count;
    }
  }

  /// Adds tokens again from their stored logits.
  /// \param logits [tokens, R padded], at most kFeatureRows
  /// \param v their values
  void replay(const T* logits, const Matrix<const T>& v, Index tokens, Index length,
              const Memory& at) const {
    const Parts parts(*this, at);
    std::copy(logits, logits + tokens * row(), parts.keys);
    RowBlock row_block;
    row_block.tokens = tokens;
    row_block.length = length;
    add_block(0, 0, row_block, 0, tokens, 0, v, parts, NoObserver{});
  }

 private:
  /// The parts of a worker's memory.
  struct Parts {
    Parts(const FeatureStream& of, const Memory& memory) : at(memory) {
      const Index row = of.row();
      reference = at.state + sums_elements(of.shape_.features, of.shape_.value_width);
      keys = at.scratch;
      queries = keys + kFeatureRows * row;
      factors = queries + of.group_ * kFeatureRows * row;
      packed = factors + row;
      kernel = packed + RandomFeatures<T>::scratch_elements(of.shape_.width);
    }

    const Memory& at;
    T* reference;  // [row]
    T* keys;       // [kFeatureRows, row]
    T* queries;    // [group, kFeatureRows, row]
    T* factors;    // [row]
    T* packed;     // scratch of logits
    T* kernel;     // scratch of the stream
  };

  Index row() const { return padded_row<T>(shape_.features); }

  /// Tokens with one reference, and rows.
  struct Piece {
    Index first = 0;   // of the tokens in `keys`
    Index tokens = 0;  // how many
    Index length = 0;  // tokens of the state before them
    Index row = 0;     // first row
    Index rows_end = 0;
    Matrix<const T> v;  // of the first token of the block
  };

  /// Adds a block's tokens, whose logits are computed, piece by piece.
  /// \return one past the last row computed
  template <class Observer>
  Index add_block(Index b, Index key_head, const RowBlock& row_block, Index token, Index count,
                  Index row, const Matrix<const T>& v, const Parts& parts,
                  const Observer& observer) const {
    Index done = 0;
    do {
      const Index length = row_block.length + token + done;
      const Index taken = count == 0 ? 0 : map_keys(done, count, length, parts, observer);
      const bool is_last = token + done + taken == row_block.tokens;
      const Index seeing = length + taken - row_block.first_position;
      const Index end = is_last ? row_block.rows : std::clamp(seeing, row, row_block.rows);
      read(b, key_head, row_block, {done, taken, length, row, end, v}, parts);
      row = end;
      done += taken;
    } while (done < count);
    return row;
  }

  /// Converts logits to features, up to the next token that raises the reference.
  /// \param first the first token of the block to take
  /// \param count tokens of the block
  /// \param position that of the first one
  /// \return the number of tokens taken, at least one
  template <class Observer>
  Index map_keys(Index first, Index count, Index position, const Parts& parts,
                 const Observer& observer) const {
    const RandomFeatureKernels<T> kernels;
    FeatureRowsArgs<T> args;
    args.rows = parts.keys + first * row();
    args.count = count - first;
    args.features = shape_.features;
    args.reference = parts.reference;
    if (position > 0) kernels.keys(args);
    if (args.mapped > 0) return args.mapped;
    observer.raise(position);
    kernels.raise({args.rows, args.features, parts.reference, position == 0, parts.factors});
    if (position > 0) {
      kernels.scale({parts.at.state, args.features, shape_.value_width, parts.factors});
    }
    kernels.keys(args);
    return args.mapped;
  }

  /// Adds a piece's tokens to the state, and computes its rows.
  void read(Index b, Index key_head, const RowBlock& row_block, const Piece& piece,
            const Parts& parts) const {
    const Index row = this->row();
    LinearStreamArgs<T> args;
    args.width = shape_.features;
    args.value_width = shape_.value_width;
    args.maps = made_features<T>();
    args.rows = parts.at.rows;
    args.state = parts.at.state;
    args.scratch = parts.kernel;
    args.k = {parts.keys + piece.first * row, row, 1};
    args.v = {piece.v.data + piece.first * piece.v.row, piece.v.row, piece.v.column};
    args.tokens = piece.tokens;
    args.length = piece.length;
    for (Index first = piece.row; args.tokens > 0 || first < piece.rows_end;) {
      const Index count = (std::min)(kFeatureRows, piece.rows_end - first);
      const bool sees = piece.length + piece.tokens > 0 && row_block.first_position + first >= 0;
      for (Index g = 0; g < group_ && count > 0; ++g) {
        const Index head = key_head * group_ + g;
        T* const features = parts.queries + g * kFeatureRows * row;
        if (sees) {
          features_.queries(detail::head_matrix(inputs_.q, b, head, row_block.first_row + first),
                            count, row_block.rows - first - count, parts.reference, features,
                            parts.packed);
        }
        LinearRows<T>& to = parts.at.rows[g];
        to = {};
        to.q = {features, row, 1};
        to.out = detail::head_output(out_, b, head, row_block.first_row + first);
      }
      args.heads = count == 0 ? 0 : group_;
      args.row_count = count;
      args.first_position = row_block.first_position + first;
      LinearKernels<T>{}.stream(args);
      args.length += args.tokens;
      args.tokens = 0;
      first += count;
    }
  }

  const PerformerInputs<T>& inputs_;
  PerformerShape shape_;
  Index group_;
  const RandomFeatures<T>& features_;
  View<T> out_;
};

FOVEA_NAMESPACE_END
