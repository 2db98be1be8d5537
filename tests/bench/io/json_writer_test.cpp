// SPDX-License-Identifier: MIT
// The JSON writer: structure, numbers, and strings of any bytes.
#include "bench/io/json_writer.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>

namespace fovea_test::bench_io_json_writer {

using bench::json_number;
using bench::json_string;
using bench::JsonWriter;

TEST(Json, NestsObjectsAndArrays) {
  JsonWriter json;
  json.begin_object();
  json.member("n", 4096);
  json.member("name", "full");
  json.member("ok", true);
  json.begin_array("rows");
  json.value(0.5);
  json.begin_object();
  json.end();
  json.null();
  json.end();
  json.begin_array("none");
  json.end();
  json.end();
  EXPECT_EQ(json.text(),
            "{\n"
            "  \"n\": 4096,\n"
            "  \"name\": \"full\",\n"
            "  \"ok\": true,\n"
            "  \"rows\": [\n"
            "    0.5,\n"
            "    {},\n"
            "    null\n"
            "  ],\n"
            "  \"none\": []\n"
            "}");
}

TEST(Json, NumbersRoundTrip) {
  for (const double x : {0.0, 0.1, -1.0 / 3, 1e300, 5e-324, 123456789012.0}) {
    EXPECT_EQ(std::strtod(json_number(x).c_str(), nullptr), x);
  }
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_number(std::numeric_limits<double>::quiet_NaN()), "null");
}

TEST(Json, StringsAreEscaped) {
  EXPECT_EQ(json_string("a\"b\\c\n\t"), "\"a\\\"b\\\\c\\n\\u0009\"");
  EXPECT_EQ(json_string(std::string(1, '\0')), "\"\\u0000\"");
  EXPECT_EQ(json_string("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82"),
            "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82\"");
}

TEST(Json, InvalidUtf8IsReplaced) {
  for (const char* bytes : {"\xff", "\x80", "\xc0", "\xc3", "\xe2\x82", "\xed\xa0"}) {
    EXPECT_EQ(json_string(bytes).substr(0, 7), "\"\\ufffd") << bytes;
  }
  EXPECT_EQ(json_string("\xc3(x"), "\"\\ufffd(x\"");
}

}  // namespace fovea_test::bench_io_json_writer
