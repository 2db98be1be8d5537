// SPDX-License-Identifier: MIT
/// \file
/// Symbols that the object of a forward pass must not contain: one of each kind.
namespace fovea {

#if defined(OTHER_PASS)
void softmax_grad();
void softmax_grad() {}
#elif defined(DECODING)
struct Decoder {
  void step();
};
void Decoder::step() {}
#elif defined(OTHER_FAMILY)
void linear_stream();
void linear_stream() {}
#elif defined(OTHER_STORAGE)
enum class Storage : unsigned char { native, bfloat16 };
template <Storage S>
void pack_rows() {}
template void pack_rows<Storage::bfloat16>();
#endif

}  // namespace fovea
