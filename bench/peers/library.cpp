// SPDX-License-Identifier: MIT
/// \file
/// fovea as C functions, for peers.py. Every tensor is dense, [1, heads, rows, width or
/// value_width]. A function that returns an int returns 0, or -1 if fovea refused:
/// `fovea_peers_error` then says why.
#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "bench/measure/machine.hpp"
#include "bench/measure/probe.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/core/eigen.hpp"
#include "fovea/core/thread_pool.hpp"

#define FOVEA_PEERS_API extern "C" __attribute__((visibility("default")))

/// What peers.py says of a row (fovea_library.py has the same struct).
struct PeersRow {
  std::int64_t heads, key_heads, queries, keys, width, value_width;
  std::int64_t left, right;  ///< the window; -1: this side has no end
  std::int32_t storage;      ///< fovea::Storage: 0 float, 1 bfloat16, 2 half
};

namespace {

using fovea::Index;
using fovea::View;

std::string& last_error() {
  thread_local std::string text;
  return text;
}

/// call(), whose exceptions must not reach C.
template <class F>
int guarded(const F& call) noexcept {
  try {
    call();
    return 0;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return -1;
  }
}

/// call.operator()<T>() with the type of the row's tensors.
template <class F>
void with_scalar(const PeersRow& row, const F& call) {
  switch (static_cast<fovea::Storage>(row.storage)) {
    case fovea::Storage::native:
      return call.template operator()<float>();
    case fovea::Storage::bfloat16:
      return call.template operator()<Eigen::bfloat16>();
    case fovea::Storage::float16:
      return call.template operator()<Eigen::half>();
  }
  fovea::refuse("fovea_peers", "storage", std::to_string(row.storage), "0, 1 or 2");
}

fovea::Shape query_shape(const PeersRow& row) { return {1, row.heads, row.queries, row.width}; }
fovea::Shape key_shape(const PeersRow& row) { return {1, row.key_heads, row.keys, row.width}; }
fovea::Shape value_shape(const PeersRow& row) {
  return {1, row.key_heads, row.keys, row.value_width};
}
fovea::Shape out_shape(const PeersRow& row) { return {1, row.heads, row.queries, row.value_width}; }

template <class T>
View<const T> read(const void* data, const fovea::Shape& shape) {
  return View<const T>(static_cast<const T*>(data), shape);
}

template <class T>
View<T> written(void* data, const fovea::Shape& shape) {
  return View<T>(static_cast<T*>(data), shape);
}

fovea::FullAttention attention(const PeersRow& row) {
  fovea::FullOptions options;
  if (row.left >= 0) options.window.left = row.left;
  if (row.right >= 0) options.window.right = row.right;
  return fovea::FullAttention(options);
}

template <class T>
fovea::SoftmaxInputs<T> inputs(const PeersRow& row, const void* q, const void* k, const void* v) {
  return {.q = read<T>(q, query_shape(row)),
          .k = read<T>(k, key_shape(row)),
          .v = read<T>(v, value_shape(row))};
}

/// Where lse goes; nowhere if it is null.
template <class T>
fovea::SoftmaxSaved<T> saved(const PeersRow& row, float* lse) {
  if (lse == nullptr) return {};
  return {View<float>(lse, {1, row.heads, row.queries, 1})};
}

/// A decoder whose type of tensors only its making knows.
class AnyDecoder {
 public:
  virtual ~AnyDecoder() = default;
  virtual void step(const void* q, void* out, fovea::ThreadPool& pool) = 0;
};

template <class T>
class DecoderOf final : public AnyDecoder {
 public:
  DecoderOf(const PeersRow& row, const void* k, const void* v)
      : row_(row),
        decoder_(attention(row).decoder<T>({.batch = 1,
                                            .query_heads = row.heads,
                                            .key_heads = row.key_heads,
                                            .width = row.width,
                                            .value_width = row.value_width,
                                            .reserve = row.keys})) {
    decoder_.append(read<T>(k, key_shape(row)), read<T>(v, value_shape(row)));
  }

  void step(const void* q, void* out, fovea::ThreadPool& pool) override {
    // As a program does around its loop of steps.
    if (awake_ == nullptr) awake_.reset(new fovea::ThreadPool::Awake(pool.stay_awake()));
    decoder_.step({.q = read<T>(q, query_shape(row_))}, written<T>(out, out_shape(row_)), pool);
  }

 private:
  PeersRow row_;
  std::unique_ptr<fovea::ThreadPool::Awake> awake_;
  decltype(fovea::FullAttention{}.decoder<T>({})) decoder_;
};

}  // namespace

/// Why the last call of this thread was refused.
FOVEA_PEERS_API const char* fovea_peers_error() { return last_error().c_str(); }

/// "key\tvalue\n" for each fact of the machine and the build; null if FOVEA_ISA is wrong.
FOVEA_PEERS_API const char* fovea_peers_facts() {
  static std::string text;
  const int status = guarded([] {
    text.clear();
    for (const auto& [key, value] : bench::machine_facts()) {
      if (key != "baseline_flags") text += key + "\t" + value + "\n";  // no baseline is here
    }
  });
  return status == 0 ? text.c_str() : nullptr;
}

/// Adds a burst to the sample of the peak of float multiply-adds on one thread, which begins anew
/// if `is_first`; best and sustained take what it says now, in flops per second.
FOVEA_PEERS_API void fovea_peers_peak_burst(bool is_first, double* best, double* sustained) {
  static bench::PeakSample sample;
  if (is_first) sample = {};
  sample.add(bench::fma_burst<float>());
  *best = sample.best();
  *sustained = sample.sustained();
}

/// Threads for the calls below, including the calling one; null if allocation fails.
FOVEA_PEERS_API fovea::ThreadPool* fovea_peers_pool(int threads) {
  fovea::ThreadPool* pool = nullptr;
  guarded([&] { pool = new fovea::ThreadPool(threads); });
  return pool;
}

FOVEA_PEERS_API void fovea_peers_pool_delete(fovea::ThreadPool* pool) { delete pool; }

/// \param mask [1, 1, queries, keys], or null
/// \param lse [1, heads, queries, 1], or null
FOVEA_PEERS_API int fovea_peers_forward(fovea::ThreadPool* pool, const PeersRow* row, const void* q,
                                        const void* k, const void* v, const bool* mask, void* out,
                                        float* lse) {
  return guarded([&] {
    with_scalar(*row, [&]<class T>() {
      auto in = inputs<T>(*row, q, k, v);
      if (mask != nullptr) in.mask = read<bool>(mask, {1, 1, row->queries, row->keys});
      attention(*row).forward(in, written<T>(out, out_shape(*row)), saved<T>(*row, lse), *pool);
    });
  });
}

/// The gradients of q, k and v in float, after a forward pass that filled out and lse.
FOVEA_PEERS_API int fovea_peers_backward(fovea::ThreadPool* pool, const PeersRow* row,
                                         const float* q, const float* k, const float* v,
                                         const float* out, float* lse, const float* d_out,
                                         float* d_q, float* d_k, float* d_v) {
  return guarded([&] {
    const fovea::Shape of_q = query_shape(*row);
    const fovea::Shape of_k = key_shape(*row);
    const fovea::Shape of_v = value_shape(*row);
    const fovea::Shape of_out = out_shape(*row);
    attention(*row).backward(
        inputs<float>(*row, q, k, v), read<float>(out, of_out), saved<float>(*row, lse),
        read<float>(d_out, of_out),
        {.q = View<float>(d_q, of_q), .k = View<float>(d_k, of_k), .v = View<float>(d_v, of_v)},
        *pool);
  });
}

/// A decoder that holds the keys and values; null if it is refused.
FOVEA_PEERS_API AnyDecoder* fovea_peers_decoder(const PeersRow* row, const void* k, const void* v) {
  std::unique_ptr<AnyDecoder> decoder;
  guarded([&] {
    with_scalar(*row, [&]<class T>() { decoder = std::make_unique<DecoderOf<T>>(*row, k, v); });
  });
  return decoder.release();
}

/// The attention of the row's queries as the last positions. The decoder stays as it was.
FOVEA_PEERS_API int fovea_peers_step(AnyDecoder* decoder, fovea::ThreadPool* pool, const void* q,
                                     void* out) {
  return guarded([&] { decoder->step(q, out, *pool); });
}

FOVEA_PEERS_API void fovea_peers_decoder_delete(AnyDecoder* decoder) { delete decoder; }
