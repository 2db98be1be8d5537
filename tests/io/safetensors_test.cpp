// SPDX-License-Identifier: MIT
// fovea_test(NEEDS io)
#include "fovea/io/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <tuple>

#include "bench/io/read_file.hpp"
#include "fovea/io/npy.hpp"
#include "support/scratch_folder.hpp"

namespace fovea_test::io_safetensors {

using fovea::Dtype;
using fovea::Index;
using fovea::parse_safetensors;
using fovea::StoredTensor;
using fovea::TensorSet;

/// A file with this header, its length (unless it should be wrong), and that many bytes of data, 0,
/// 1, 2, ...
std::string file(const std::string& header, std::size_t data, std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  for (std::size_t i = 0; i < data; ++i) bytes += static_cast<char>(i);
  return bytes;
}
std::string file(const std::string& header, std::size_t data) {
  return file(header, data, header.size());
}

TensorSet parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span<const char>(bytes)), "x");
}

std::string message_of(const std::string& bytes) {
  try {
    (void)parse(bytes);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& place) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + place + "}";
}

const std::string kTwo = R"({"__metadata__":{"made":"by hand"},"a":)" +
                         tensor("U8", "[2,3]", "[2,8]") + R"(,"b.c":)" +
                         tensor("I16", "[1]", "[0,2]") + "}  ";

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string bytes = file(kTwo, 8);
  const TensorSet set = parse(bytes);
  EXPECT_EQ(set.metadata, (std::map<std::string, std::string>{{"made", "by hand"}}));
  EXPECT_EQ(set.string_at("made"), "by hand");
  EXPECT_THROW((void)set.string_at("sold"), std::runtime_error);
  ASSERT_EQ(set.tensors.size(), 2u);
  const StoredTensor& a = set.at("a");
  EXPECT_EQ(a.dtype, Dtype::u8);
  EXPECT_EQ(a.shape, (std::vector<Index>{2, 3}));
  std::vector<double> values(6);
  a.read(values.data());
  EXPECT_EQ(values, (std::vector<double>{2, 3, 4, 5, 6, 7}));
  double first = 0;
  set.at("b.c").read(&first);
  EXPECT_EQ(first, 256);
  EXPECT_EQ(parse(file("{}", 0)).tensors.size(), 0u);
  EXPECT_EQ(message_of(file(R"({"__metadata__":null})", 0)), "accepted");
}

TEST(Safetensors, ConvertsFloatsOfEverySize) {
  // 1.5, -2 and 2^-24 (a subnormal number of 16 bits, which a bfloat16 need not round).
  const auto read = [](const std::string& dtype, const auto& values) {
    const std::string size = std::to_string(sizeof(values[0]) * values.size());
    std::string bytes = file(R"({"x":)" + tensor(dtype, "[3]", "[0," + size + "]") + "}", 0);
    bytes.append(reinterpret_cast<const char*>(values.data()), sizeof(values[0]) * values.size());
    std::vector<float> floats(3);
    const TensorSet set = parse(bytes);
    set.at("x").read(floats.data());
    return floats;
  };
  const std::vector<float> expected = {1.5F, -2, 0x1p-24F};
  EXPECT_EQ(read("F64", std::vector<double>{1.5, -2, 0x1p-24}), expected);
  EXPECT_EQ(read("F32", expected), expected);
  EXPECT_EQ(read("F16", std::vector<std::uint16_t>{0x3e00, 0xc000, 1}), expected);
  EXPECT_EQ(read("BF16", std::vector<std::uint16_t>{0x3fc0, 0xc000, 0x3380}), expected);
}

/// All 256 elements of a type of 8 bits.
template <class T = float>
std::vector<T> all_of_a_byte(const std::string& dtype) {
  const TensorSet set = parse(file(R"({"x":)" + tensor(dtype, "[256]", "[0,256]") + "}", 256));
  std::vector<T> values(256);
  set.at("x").read(values.data());
  return values;
}

TEST(Safetensors, WidensFloatsOf8BitsExactly) {
  struct Format {
    const char* name;
    int mantissa, bias;
    bool has_negative_zero, has_infinity;
  };
  for (const Format& format :
       {Format{"F8_E4M3", 3, 7, true, false}, Format{"F8_E5M2", 2, 15, true, true},
        Format{"F8_E4M3FNUZ", 3, 8, false, false}, Format{"F8_E5M2FNUZ", 2, 16, false, false}}) {
    const std::vector<float> floats = all_of_a_byte(format.name);
    const std::vector<double> doubles = all_of_a_byte<double>(format.name);
    const auto halves = all_of_a_byte<Eigen::half>(format.name);
    for (int bits = 0; bits < 256; ++bits) {
      const auto i = static_cast<std::size_t>(bits);
      const int rest = bits & 127, exponent = rest >> format.mantissa;
      const int mantissa = rest & ((1 << format.mantissa) - 1);
      double expected = std::ldexp(mantissa + (exponent == 0 ? 0 : 1 << format.mantissa),
                                   std::max(exponent, 1) - format.bias - format.mantissa);
      if (format.has_infinity && exponent == 31) expected = mantissa == 0 ? INFINITY : NAN;
      if (!format.has_infinity && format.has_negative_zero && rest == 127) expected = NAN;
      if (!format.has_negative_zero && bits == 128) expected = NAN;
      if (bits > 127) expected = -expected;
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(floats[i]) && std::isnan(doubles[i])) << format.name << bits;
        continue;
      }
      EXPECT_EQ(static_cast<double>(floats[i]), expected) << format.name << ' ' << bits;
      EXPECT_EQ(std::signbit(floats[i]), bits > 127) << format.name << ' ' << bits;
      EXPECT_EQ(doubles[i], expected);
      EXPECT_EQ(static_cast<double>(halves[i]), expected) << "binary16 has all of them";
    }
  }
  const std::vector<float> scales = all_of_a_byte("F8_E8M0");
  for (int bits = 0; bits < 255; ++bits) {
    EXPECT_EQ(scales[static_cast<std::size_t>(bits)], std::ldexp(1.0F, bits - 127)) << bits;
  }
  EXPECT_TRUE(std::isnan(scales[255]));
}

TEST(Safetensors, RefusesUnsupportedTypesWhenTensorsAreRead) {
  for (const auto& [dtype, shape, size] : {std::tuple{"F4", "[2,8]", 8},
                                           {"F6_E2M3", "[4]", 3},
                                           {"F6_E3M2", "[8]", 6},
                                           {"C64", "[1]", 8}}) {
    const std::string end = std::to_string(size), all = std::to_string(size + 4);
    const std::string bytes =
        file(R"({"odd":)" + tensor(dtype, shape, "[0," + end + "]") + R"(,"w":)" +
                 tensor("F32", "[1,1]", "[" + end + "," + all + "]") + "}",
             static_cast<std::size_t>(size) + 4);
    const TensorSet set = parse(bytes);
    float w = 0;
    set.at("w").read(&w);
    EXPECT_NE(w, 0);
    const auto said = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const std::runtime_error& error) {
        return error.what();
      }
      return "accepted";
    };
    const std::string why = fovea::why_not_converted(set.tensors.at("odd").dtype);
    EXPECT_TRUE(why.starts_with("its type is " + std::string(dtype) + ": ")) << why;
    EXPECT_EQ(said([&] { (void)set.at("odd"); }), "x: 'odd' cannot be read: " + why);
    const StoredTensor& odd = set.tensors.at("odd");
    std::vector<float> floats(static_cast<std::size_t>(odd.size()), 7);
    EXPECT_EQ(said([&] { odd.read(floats.data()); }), why);
    EXPECT_EQ(floats, std::vector<float>(floats.size(), 7));
    // It is written as it was read.
    const ScratchFolder folder;
    fovea::write_safetensors(folder / "x", set);
    const TensorSet again = fovea::read_safetensors(folder / "x");
    EXPECT_EQ(again.tensors.at("odd").dtype, odd.dtype);
    EXPECT_TRUE(std::ranges::equal(again.tensors.at("odd").bytes, odd.bytes));
  }
  EXPECT_EQ(message_of(file(R"({"w":)" + tensor("F4", "[3]", "[0,1]") + "}", 1)),
            "x: 'w' has 1 bytes of data, which does not match [3] of F4");
}

TEST(Safetensors, ReportsTheFileAndTheError) {
  EXPECT_EQ(message_of(""), "x: it is too short for a safetensors file");
  EXPECT_NE(message_of(file("{}", 0, 3)).find("its header has 3 bytes"), std::string::npos);
  EXPECT_NE(message_of(file("{}", 0, ~std::uint64_t{0})).find("its header"), std::string::npos);
  for (const char* header : {"", "[]", "{", "nonsense", "{}{}", "\"a\"", "{\"\xff\":1}", "null"}) {
    EXPECT_NE(message_of(file(header, 0)).find("not a JSON object"), std::string::npos) << header;
  }
  // The JSON parser takes a NUL as the end of its input, and skips a byte order mark.
  for (const std::string behind : {"", "{}", "\xff", "}"}) {
    const std::string header = "{}" + std::string(1, '\0') + behind;
    EXPECT_EQ(message_of(file(header, 0)), "x: its header is not a JSON object of tensors")
        << behind;
  }
  EXPECT_EQ(message_of(file("\xef\xbb\xbf{}", 0)), "x: its header is not a JSON object of tensors");
  const auto of_one = [](const std::string& described, std::size_t data = 4) {
    return message_of(file(R"({"w":)" + described + "}", data));
  };
  EXPECT_EQ(of_one("1"), "x: 'w' is not a JSON object");
  EXPECT_EQ(of_one("{}"), "x: 'w' has no dtype");
  EXPECT_EQ(of_one(R"({"dtype":1})"), "x: 'w' has no dtype");
  EXPECT_EQ(of_one(tensor("F3", "[1]", "[0,4]")),
            "x: the dtype of 'w' is 'F3', which is not supported");
  for (const char* shape : {"1", "[-1]", "[1.5]", "[\"1\"]", "[1e30]", "[18446744073709551615]"}) {
    EXPECT_EQ(of_one(tensor("F32", shape, "[0,4]")), "x: the shape of 'w' is not a list of sizes");
  }
  for (const char* place : {"[0]", "[0,4,4]", "{}", "[-4,0]"}) {
    EXPECT_EQ(of_one(tensor("F32", "[1]", place)),
              "x: the data_offsets of 'w' is not a list of 2 sizes");
  }
  for (const char* place : {"[4,0]", "[4,8]", "[0,9223372036854775807]"}) {
    EXPECT_NE(of_one(tensor("F32", "[1]", place)).find("of 4 bytes"), std::string::npos) << place;
  }
  EXPECT_EQ(of_one(tensor("F32", "[2]", "[0,4]")),
            "x: 'w' has 4 bytes of data, which does not match [2] of F32");
  EXPECT_NE(of_one(tensor("F32", "[4294967296,4294967296]", "[0,4]")).find("does not match"),
            std::string::npos);
  EXPECT_EQ(of_one(tensor("F32", "[1]", "[4,8]"), 8),
            "x: the data of 'w' begins at byte 4; expected 0, the end of the data before it");
  EXPECT_EQ(of_one(tensor("F32", "[1]", "[0,4]"), 5),
            "x: it has 5 bytes of data; its tensors have 4");
  EXPECT_EQ(message_of(file(R"({"__metadata__":[]})", 0)), "x: its metadata is not a JSON object");
  EXPECT_EQ(message_of(file(R"({"__metadata__":{"a":1}})", 0)),
            "x: 'a' in its metadata is not a string");
}

TEST(Safetensors, RefusesNamesThatAppearTwiceAndBytesOfTwoTensors) {
  const std::string one = tensor("U8", "[2]", "[0,2]");
  const std::string other = tensor("U8", "[3]", "[1,4]");
  EXPECT_EQ(message_of(file(R"({"w":)" + one + R"(,"w":)" + one + "}", 2)),
            "x: 'w' appears twice in its header");
  EXPECT_EQ(
      message_of(file(R"({"w":{"dtype":"U8","dtype":"F32","shape":[2],"data_offsets":[0,2]}})", 2)),
      "x: 'dtype' appears twice in its header");
  EXPECT_EQ(message_of(file(R"({"w":)" + one + R"(,"v":)" + other + "}", 4)),
            "x: the data of 'v' begins at byte 1; expected 2, the end of the data before it");
}

TEST(Safetensors, RefusesDeeplyNestedHeaders) {
  const std::size_t depth = 1'000'000;
  EXPECT_NE(message_of(file(std::string(depth, '['), 0)).find("not a JSON"), std::string::npos);
  const std::string nested = R"({"w":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  EXPECT_NE(message_of(file(nested, 0)).find("not a JSON"), std::string::npos);
}

TEST(Safetensors, NamesInMessagesAreShortAndPrintable) {
  const std::string name(5000, '\x7f');
  const std::string message = message_of(file("{\"" + name + "\":1}", 0));
  EXPECT_EQ(message, "x: '" + std::string(100, '?') + "...' is not a JSON object");
}

TEST(Safetensors, RefusesTruncatedFiles) {
  const std::string whole = file(kTwo, 8);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(message_of(whole.substr(0, size)), "accepted") << size;
  }
  EXPECT_EQ(message_of(whole), "accepted");
  EXPECT_NE(message_of(whole + "x"), "accepted");
}

/// Changed bytes are refused with a message, or read as other tensors within the file.
TEST(Safetensors, ChangedBytesDoNoHarm) {
  const std::string whole = file(kTwo, 8);
  std::mt19937 random(1);
  const std::string odd = R"({}[]",:0123456789-+eE.\untf)";
  Index accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = whole;
    for (int change = 0; change <= round % 4; ++change) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = odd[random() % odd.size()];
          break;
        case 2:
          bytes.erase(at, random() % 9);
          break;
        default:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 9));
          break;
      }
      if (bytes.empty()) bytes = "{";
    }
    try {
      const TensorSet set = parse(bytes);
      ++accepted;
      for (const auto& [name, x] : set.tensors) {
        ASSERT_GE(static_cast<const void*>(x.bytes.data()), bytes.data());
        ASSERT_LE(static_cast<const void*>(x.bytes.data() + x.bytes.size()),
                  bytes.data() + bytes.size());
        ASSERT_EQ(static_cast<Index>(x.bytes.size()), fovea::stored_bytes(x.dtype, x.shape));
      }
    } catch (const std::runtime_error& error) {
      ASSERT_EQ(std::string(error.what()).find("x: "), 0u) << error.what();
    }
  }
  EXPECT_GT(accepted, 100) << "bytes of data, of names and of the metadata may be any";
}

/// Nothing that is read waits: the alarm would end the program.
TEST(Safetensors, RefusesIrregularFilesAtOnce) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mknod((folder / "socket").c_str(), S_IFSOCK | 0600, 0), 0);
  std::filesystem::create_symlink(folder / "pipe", folder / "link");
  std::filesystem::create_directory(folder / "set");
  ASSERT_EQ(::mkfifo((folder / "set/w.npy").c_str(), 0600), 0);
  ::alarm(60);
  const auto expect_refused = [](const std::string& path, const auto& read) {
    try {
      (void)read(path);
      ADD_FAILURE() << path;
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), path + ": cannot be read: it is not a regular file");
    }
  };
  for (const std::string& path :
       {folder / "pipe", folder / "socket", folder / "link", folder / "set", folder / "set/w.npy",
        std::string("/dev/null"), std::string("/dev/zero")}) {
    expect_refused(path, [](const std::string& file) { return fovea::read_safetensors(file); });
    expect_refused(path, [](const std::string& file) { return fovea::read_npy(file); });
    expect_refused(path, [](const std::string& file) { return bench::read_file(file); });
  }
  expect_refused(folder / "set/w.npy",
                 [&](const std::string&) { return fovea::read_npy_folder(folder / "set"); });
  ::alarm(0);
}

TensorSet two_tensors(const std::vector<float>& values) {
  TensorSet set;
  set.tensors["b"] = {.dtype = Dtype::f32,
                      .shape = {2, 2},
                      .bytes = std::as_bytes(std::span<const float>(values).first(4))};
  set.tensors["a \"quoted\""] = {.dtype = Dtype::bf16,
                                 .shape = {2},
                                 .bytes = std::as_bytes(std::span<const float>(values).last(1))};
  set.tensors["empty"] = {.dtype = Dtype::i64, .shape = {0, 7}};
  set.metadata = {{"step", "12"}, {"note", "caf\u00e9"}};
  return set;
}

TEST(Safetensors, ReadsWhatItWrote) {
  const ScratchFolder folder;
  const std::vector<float> values = {1, 2, 3, 4, 5};
  const TensorSet set = two_tensors(values);
  const std::string path = folder / "x.safetensors";
  fovea::write_safetensors(path, set);
  const TensorSet read = fovea::read_safetensors(path);
  EXPECT_EQ(read.origin, path);
  EXPECT_EQ(read.metadata, set.metadata);
  ASSERT_EQ(read.tensors.size(), set.tensors.size());
  for (const auto& [name, x] : set.tensors) {
    const StoredTensor& y = read.at(name);
    EXPECT_EQ(y.dtype, x.dtype);
    EXPECT_EQ(y.shape, x.shape);
    ASSERT_EQ(y.bytes.size(), x.bytes.size());
    EXPECT_TRUE(std::equal(y.bytes.begin(), y.bytes.end(), x.bytes.begin()));
  }
  // A copy of the set keeps the file mapped, even if the file is gone.
  TensorSet copy;
  {
    const TensorSet first = fovea::read_safetensors(path);
    copy = first;
  }
  std::filesystem::remove(path);
  std::vector<float> b(4);
  copy.at("b").read(b.data());
  EXPECT_EQ(b, (std::vector<float>{1, 2, 3, 4}));
}

TEST(Safetensors, DataBeginsAtAMultipleOfEight) {
  const ScratchFolder folder;
  const std::vector<float> values(5, 1);
  for (std::size_t length = 1; length < 20; ++length) {
    TensorSet set = two_tensors(values);
    set.metadata["pad"] = std::string(length, 'x');
    const std::string path = folder / "x.safetensors";
    fovea::write_safetensors(path, set);
    std::ifstream stream(path, std::ios::binary);
    std::uint64_t header = 1;
    stream.read(reinterpret_cast<char*>(&header), 8);
    EXPECT_EQ(header % 8, 0u);
  }
}

TEST(Safetensors, WritesNothingIfItRefuses) {
  const ScratchFolder folder;
  const std::string path = folder / "x.safetensors";
  const auto refused = [&](const TensorSet& set) {
    EXPECT_THROW(fovea::write_safetensors(path, set), std::runtime_error);
    EXPECT_FALSE(std::filesystem::exists(path));
  };
  TensorSet named;
  named.tensors["__metadata__"] = {.dtype = Dtype::u8, .shape = {0}};
  refused(named);
  TensorSet column_major;
  column_major.tensors["w"] = {.dtype = Dtype::u8, .shape = {0}, .column_major = true};
  refused(column_major);
  TensorSet no_text;
  no_text.tensors["\xff"] = {.dtype = Dtype::u8, .shape = {0}};
  refused(no_text);
  EXPECT_THROW(fovea::write_safetensors(folder / "none/x", TensorSet{}), std::runtime_error);
  EXPECT_THROW((void)fovea::read_safetensors(folder / "none"), std::runtime_error);
  EXPECT_THROW((void)fovea::read_safetensors(folder / "."), std::runtime_error);
}

}  // namespace fovea_test::io_safetensors
