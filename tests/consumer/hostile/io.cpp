// SPDX-License-Identifier: MIT
/// \file
/// Files: what is written is read, by .npy and by safetensors, and its first bytes are known.
#include <cstdio>
#include <fovea/io.hpp>
#include <string>

#include "problem.hpp"

hostile::Result HOSTILE_UNIT(io)(int level, int threads);
hostile::Result HOSTILE_UNIT(io)(int level, int /*threads*/) {
  using namespace problem;
  Digest digest(level);
  const Numbers<float> written({1, 1, 5, 7}, 1);
  const auto* bytes = reinterpret_cast<const std::byte*>(written.values().data());
  const fovea::StoredTensor tensor{
      .dtype = fovea::Dtype::f32, .shape = {5, 7}, .bytes = {bytes, 5 * 7 * sizeof(float)}};
  const std::string npy = "hostile.npy", safetensors = "hostile.safetensors";
  fovea::write_npy(npy, tensor);
  fovea::TensorSet set;
  set.tensors.emplace("tensor", tensor);
  fovea::write_safetensors(safetensors, set);
  for (const fovea::TensorSet& read :
       {fovea::read_npy(npy), fovea::read_safetensors(safetensors)}) {
    const fovea::StoredTensor& found = read.tensors.at("tensor");
    std::vector<float> values(5 * 7);
    fovea::from_bytes(found.dtype, found.bytes.data(), found.size(), values.data());
    digest.add(values.data(), values.size());
  }
  // 0x3fc0 is 1.5 as a bfloat16; files are little-endian.
  const std::byte half[] = {std::byte{0xc0}, std::byte{0x3f}};
  float value = 0;
  fovea::from_bytes(fovea::Dtype::bf16, half, 1, &value);
  digest.add(&value, 1);
  std::remove(npy.c_str());
  std::remove(safetensors.c_str());
  return digest.result();
}
