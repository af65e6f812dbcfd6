#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace halfbyte {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<JsonDocument> parsed(std::string_view text, JsonLimits limits = {}) {
  auto document = JsonDocument::parse(text, "test.json", limits);
  EXPECT_TRUE(document.ok()) << document.status().message();
  return document.ok() ? std::move(document).value() : nullptr;
}

// The message of the refusal; the test fails if the text is accepted.
std::string refusal(std::string_view text, JsonLimits limits = {}) {
  auto document = JsonDocument::parse(text, "test.json", limits);
  EXPECT_FALSE(document.ok()) << text.substr(0, 100);
  if (document.ok()) return "";
  EXPECT_EQ(document.status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(document.status().message(), Not(HasSubstr("\n")));
  return document.status().message();
}

std::string nested(size_t depth, const std::string& open, const std::string& close, const std::string& core) {
  std::string s;
  for (size_t i = 0; i < depth; ++i) s += open;
  s += core;
  for (size_t i = 0; i < depth; ++i) s += close;
  return s;
}

TEST(Json, ReadsEveryKind) {
  const auto d = parsed(
      R"({"n":null,"t":true,"f":false,"i":-7,"u":18446744073709551615,"d":0.5,"s":"a\u00e9\n","a":[1,[2]],"o":{}})");
  const JsonValue root = d->root();
  EXPECT_EQ(root.kind(), JsonKind::kObject);
  EXPECT_TRUE(root.at("n")->is_null());
  EXPECT_TRUE(*root.at("t")->as_bool());
  EXPECT_FALSE(*root.at("f")->as_bool());
  EXPECT_EQ(*root.at("i")->as_int(-10, 10), -7);
  EXPECT_EQ(root.at("u")->kind(), JsonKind::kInt);
  EXPECT_EQ(*root.at("u")->as_double(), 18446744073709551615.0);
  EXPECT_EQ(root.at("d")->kind(), JsonKind::kDouble);
  EXPECT_EQ(*root.at("d")->as_double(), 0.5);
  EXPECT_EQ(*root.at("i")->as_double(), -7.0);
  EXPECT_EQ(*root.at("s")->as_string(), "a\xC3\xA9\n");
  const auto a = root.at("a")->elements();
  ASSERT_TRUE(a.ok());
  ASSERT_EQ(a->size(), 2u);
  EXPECT_EQ(*(*a)[0].as_int(0, 9), 1);
  EXPECT_TRUE((*a)[1].is_array());
  EXPECT_TRUE(root.at("o")->is_object());
  EXPECT_TRUE(root.at("o")->members()->empty());
}

TEST(Json, MembersKeepFileOrder) {
  const auto d = parsed(R"({"z":1,"a":{"x":[1,2,{"k":3}]},"m":2.5})");
  const auto m = d->root().members();
  ASSERT_EQ(m->size(), 3u);
  EXPECT_EQ((*m)[0].first, "z");
  EXPECT_EQ((*m)[1].first, "a");
  EXPECT_EQ((*m)[2].first, "m");
  EXPECT_EQ(*(*m)[2].second.as_double(), 2.5);
}

TEST(Json, RootMayBeAScalar) {
  EXPECT_EQ(*parsed("3")->root().as_int(0, 3), 3);
  EXPECT_EQ(*parsed("\"x\"")->root().as_string(), "x");
  EXPECT_TRUE(parsed("null")->root().is_null());
  EXPECT_EQ(parsed("[]")->root().path(), "");
}

TEST(Json, FindAndFindSet) {
  const auto d = parsed(R"({"a":null,"b":1})");
  EXPECT_TRUE(d->root().find("a").has_value());
  EXPECT_FALSE(d->root().find_set("a").has_value());
  EXPECT_TRUE(d->root().find_set("b").has_value());
  EXPECT_FALSE(d->root().find("c").has_value());
  EXPECT_FALSE(d->root().find("b")->find("x").has_value());
}

TEST(Json, IntegerRanges) {
  const auto d =
      parsed(R"([5, 5.0, 5.5, 9223372036854775807, 9223372036854775808, -9223372036854775808, 1e300, -1, 1e18])");
  const auto v = *d->root().elements();
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(*v[0].as_int(5, 5), 5);
  EXPECT_FALSE(v[0].as_int(6, 9).ok());
  EXPECT_FALSE(v[0].as_int(0, 4).ok());
  EXPECT_EQ(*v[1].as_int(low, high), 5);
  EXPECT_FALSE(v[2].as_int(low, high).ok());
  EXPECT_EQ(*v[3].as_int(low, high), high);
  EXPECT_FALSE(v[4].as_int(low, high).ok());
  EXPECT_EQ(*v[5].as_int(low, high), low);
  EXPECT_FALSE(v[6].as_int(low, high).ok());
  EXPECT_FALSE(v[7].as_int(0, high).ok());
  EXPECT_EQ(*v[8].as_int(low, high), 1000000000000000000);
  EXPECT_EQ(v[0].as_int(6, 9).status().message(), "test.json: [0]: found 5, expected an integer from 6 to 9");
}

TEST(Json, MessagesNameDocumentPathAndKinds) {
  const auto d = parsed(R"({"rope_scaling":{"factor":"x"},"layers":[{"n":1},{"a b":[true]}],"":{"é":0}})");
  const JsonValue root = d->root();
  EXPECT_EQ(root.at("rope_scaling")->at("factor")->as_double().status().message(),
            "test.json: rope_scaling.factor: found a string, expected a number");
  const auto layers = *root.at("layers")->elements();
  EXPECT_EQ(layers[0].at("n")->path(), "layers[0].n");
  EXPECT_EQ(layers[0].at("n")->as_string().status().message(),
            "test.json: layers[0].n: found an integer, expected a string");
  EXPECT_EQ((*layers[1].at("a b")->elements())[0].path(), "layers[1]['a b'][0]");
  EXPECT_EQ(root.at("")->at("é")->path(), "['']['é']");
  EXPECT_EQ(layers[0].at("missing").status().message(), "test.json: layers[0]: the key 'missing' is missing");
  EXPECT_EQ(root.at("missing").status().message(), "test.json: the key 'missing' is missing");
  EXPECT_EQ(root.elements().status().message(), "test.json: found an object, expected an array");
  EXPECT_EQ(layers[0].at("n")->members().status().message(),
            "test.json: layers[0].n: found an integer, expected an object");
  EXPECT_EQ(layers[0].at("n")->at("x").status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(root.error("no").message(), "test.json: no");
}

TEST(Json, EveryPathLeadsBack) {
  const auto d = parsed(R"([1, 2.5, "s", [], {}, {"a": [[[3]], null], "b": {"c": false}}, 18446744073709551615, -1])");
  const auto v = *d->root().elements();
  for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(v[i].path(), "[" + std::to_string(i) + "]");
  EXPECT_EQ(v[5].at("b")->at("c")->path(), "[5].b.c");
  const auto a = *v[5].at("a")->elements();
  EXPECT_EQ((*(*(a[0].elements()))[0].elements())[0].path(), "[5].a[0][0][0]");
  EXPECT_EQ(a[1].path(), "[5].a[1]");
}

TEST(Json, DepthLimitIsExact) {
  for (size_t limit : {1u, 2u, 5u, 64u}) {
    JsonLimits limits;
    limits.max_depth = limit;
    EXPECT_NE(parsed(nested(limit, "[", "]", "1"), limits), nullptr) << limit;
    EXPECT_NE(parsed(nested(limit, "[", "]", ""), limits), nullptr) << limit;
    EXPECT_NE(parsed(nested(limit, "{\"a\":", "}", "1"), limits), nullptr) << limit;
    EXPECT_THAT(refusal(nested(limit + 1, "[", "]", "1"), limits),
                HasSubstr("deeper than the limit of " + std::to_string(limit)));
    EXPECT_THAT(refusal(nested(limit + 1, "{\"a\":", "}", "1"), limits), HasSubstr("deeper"));
  }
  EXPECT_THAT(refusal(nested(1'000'000, "[", "]", "")), HasSubstr("deeper than the limit of 64"));
  EXPECT_THAT(refusal(std::string(1'000'000, '[')), HasSubstr("deeper"));
}

TEST(Json, SizeLimitIsExact) {
  JsonLimits limits;
  limits.max_bytes = 100;
  EXPECT_NE(parsed("\"" + std::string(98, 'x') + "\"", limits), nullptr);
  EXPECT_EQ(refusal("\"" + std::string(99, 'x') + "\"", limits), "test.json: 101 B of JSON, the limit is 100 B");
}

TEST(Json, RefusesDuplicateKeys) {
  EXPECT_EQ(refusal(R"({"a":1,"a":2})"), "test.json: the key 'a' stands twice in one object");
  EXPECT_EQ(refusal(R"({"m":[0,{"x":{"k":1,"j":2,"\u006b":3}}]})"),
            "test.json: m[1].x: the key 'k' stands twice in one object");
  EXPECT_NE(parsed(R"({"a":{"a":{"a":1}},"b":{"a":[{"a":1},{"a":1}]}})"), nullptr);
  for (size_t n : {2u, 7u, 8u, 9u, 10u, 100u}) {  // both ways to look
    for (size_t twin : {size_t{0}, n / 2, n - 1}) {
      std::string unique = "{", doubled = "{";
      for (size_t i = 0; i < n; ++i) unique += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
      doubled = unique + ",\"k" + std::to_string(twin) + "\":1}";
      unique += "}";
      EXPECT_NE(parsed(unique), nullptr);
      EXPECT_THAT(refusal(doubled), HasSubstr("'k" + std::to_string(twin) + "'"));
    }
  }
}

TEST(Json, ManyKeysAndManyObjects) {
  // Quadratic work on these would be 10^11 comparisons: the test would not end.
  std::string text = "{";
  for (int i = 0; i < 400'000; ++i) text += "\"key" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  text += "\"last\":[";
  for (int i = 0; i < 200'000; ++i) text += i ? ",{\"a\":1,\"b\":2}" : "{}";
  text += "]}";
  const auto d = parsed(text);
  ASSERT_NE(d, nullptr);
  const auto members = *d->root().members();
  ASSERT_EQ(members.size(), 400'001u);
  int64_t sum = 0;
  for (size_t i = 0; i < 400'000; ++i) sum += *members[i].second.as_int(0, 400'000);
  EXPECT_EQ(sum, int64_t{399'999} * 400'000 / 2);
  EXPECT_EQ(members[400'000].second.elements()->size(), 200'000u);
  EXPECT_EQ(members[399'999].second.path(), "key399999");
}

TEST(Json, BigIntegersBecomeDoubles) {
  // What tokenizer_config.json files hold for "no limit".
  const auto d = parsed(
      R"({"model_max_length": 1000000000000000019884624838656, "s": "99999999999999999999999 \" 88888888888888888888888",
      "list": [-1000000000000000019884624838656,18446744073709551616,18446744073709551615,-9223372036854775808,
      -9223372036854775809, 0.12345678901234567890123456789, 1e00000000000000000000001, 1E-0000000000000000000000001], "i": 9223372036854775807})");
  ASSERT_NE(d, nullptr);
  const JsonValue root = d->root();
  EXPECT_EQ(root.at("model_max_length")->kind(), JsonKind::kDouble);
  EXPECT_EQ(*root.at("model_max_length")->as_double(), 1e30);
  EXPECT_FALSE(root.at("model_max_length")->as_int(0, std::numeric_limits<int64_t>::max()).ok());
  EXPECT_EQ(*root.at("s")->as_string(), "99999999999999999999999 \" 88888888888888888888888");
  const auto list = *root.at("list")->elements();
  EXPECT_EQ(*list[0].as_double(), -1e30);
  EXPECT_EQ(*list[1].as_double(), 18446744073709551616.0);
  EXPECT_EQ(list[2].kind(), JsonKind::kInt);
  EXPECT_EQ(list[3].kind(), JsonKind::kInt);
  EXPECT_EQ(*list[4].as_double(), -9223372036854775808.0);
  EXPECT_EQ(*list[5].as_double(), 0.12345678901234567890123456789);
  EXPECT_EQ(*list[6].as_double(), 10.0);
  EXPECT_EQ(*list[7].as_double(), 0.1);
  EXPECT_EQ(*root.at("i")->as_int(0, std::numeric_limits<int64_t>::max()), std::numeric_limits<int64_t>::max());
}

TEST(Json, NumbersBeyondADoubleAreRefused) {
  EXPECT_EQ(refusal("[1, 1e400]"), "test.json: line 1, column 5: the number '1e400' is beyond the range of a double");
  EXPECT_THAT(refusal("[-" + std::string(400, '9') + "]"), HasSubstr("beyond the range of a double"));
  EXPECT_EQ(*parsed("1e-400")->root().as_double(), 0.0);
}

TEST(Json, SyntaxErrorsSayWhere) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "the text is empty, expected JSON"},
      {"  \n", "the text is empty, expected JSON"},
      {"{\"a\": 1\n \"b\": 2}", "line 2, column 2: expected ',' or '}', found '\"'"},
      {"[1, 2", "line 1, column 6: expected ',' or ']', found the end of the text"},
      {"[1 2]", "line 1, column 4: expected ',' or ']', found '2'"},
      {"[1,]", "line 1, column 4: expected a value, found ']'"},
      {"{\"a\":1,}", "line 1, column 8: expected a key in double quotes, found '}'"},
      {"{a:1}", "line 1, column 2: expected a key in double quotes, found 'a'"},
      {"{\"a\" 1}", "line 1, column 6: expected ':', found '1'"},
      {"[1] x", "line 1, column 5: expected the end of the text, found 'x'"},
      {"{} {}", "line 1, column 4: expected the end of the text, found '{'"},
      {"[tru]", "line 1, column 2: expected a value, found 't'"},
      {"[NaN]", "line 1, column 2: expected a value, found 'N'"},
      {"[01]", "line 1, column 3: expected no digit after a leading 0, found '1'"},
      {"[-]", "line 1, column 3: expected a digit, found ']'"},
      {"[1.]", "line 1, column 4: expected a digit, found ']'"},
      {"[1e]", "line 1, column 4: expected a digit, found ']'"},
      {"[+1]", "line 1, column 2: expected a value, found '+'"},
      {"\"abc", "line 1, column 5: expected '\"', found the end of the text"},
      {"[\"a\nb\"]", "line 1, column 4: expected no bare control character in a string, found '\\n'"},
      {"[\"\\q\"]", "line 1, column 3: expected a known escape in a string, found '\\'"},
      {"[\"\\u12g4\"]", "line 1, column 3: expected four hex digits after \\u, found '\\'"},
      {"[\"\\ud800\"]", "line 1, column 3: expected a pair of surrogates, found half of one, found '\\'"},
  };
  for (const auto& c : cases) EXPECT_EQ(refusal(c.text), std::string("test.json: ") + c.message) << c.text;
}

// What Python writes where a number is missing is neither a number nor a text, and says what it is.
TEST(Json, PythonNumbers) {
  const std::string text = R"({"a": NaN, "b": [-Infinity, Infinity], "c": "NaN \" Infinity", "NaN": "NaN"})";
  EXPECT_EQ(without_python_numbers(text, PythonNumbers::kNull),
            R"({"a": null, "b": [null, null], "c": "NaN \" Infinity", "NaN": "NaN"})");
  const auto document = JsonDocument::parse(without_python_numbers(text), "test.json");
  ASSERT_TRUE(document.ok()) << document.status().message();
  const JsonValue root = (*document)->root(), a = *root.find("a");
  EXPECT_EQ(a.python_number(), "NaN");
  EXPECT_EQ(a.as_string().status().message(), "test.json: a: found NaN, expected a string");
  EXPECT_EQ(a.as_double().status().message(), "test.json: a: found NaN, expected a number");
  EXPECT_EQ(a.as_bool().status().message(), "test.json: a: found NaN, expected a boolean");
  EXPECT_EQ(root.find("b")->elements()->front().as_int(0, 1).status().message(),
            "test.json: b[0]: found -Infinity, expected an integer");
  for (const char* key : {"c", "NaN"}) {
    EXPECT_FALSE(root.find(key)->python_number());
    EXPECT_TRUE(root.find(key)->as_string().ok());
  }
}

TEST(Json, RefusesBrokenUtf8) {
  EXPECT_EQ(refusal("[\"ab\xC3\"]"), "test.json: line 1, column 5: expected UTF-8, found '\\xc3'");
  for (std::string_view bad : {"\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5", "\xE2\x82", "\xFF"}) {
    EXPECT_THAT(refusal("{\"k\":\"" + std::string(bad) + "\"}"), HasSubstr("expected UTF-8"));
    EXPECT_THAT(refusal("{\"" + std::string(bad) + "\":1}"), HasSubstr("expected UTF-8"));
  }
}

TEST(Json, SurrogateEscapes) {
  EXPECT_EQ(*parsed(R"("\ud83d\ude00")")->root().as_string(), "\xF0\x9F\x98\x80");
  refusal(R"("\ud83d")");
  refusal(R"("\ude00")");
  refusal(R"("\ud83dx")");
  refusal(R"("\ud83d\u0041")");
  EXPECT_EQ(parsed(R"("a\u0000b")")->root().as_string()->size(), 3u);
}

TEST(Json, SkipsAByteOrderMark) {
  EXPECT_TRUE(*parsed("\xEF\xBB\xBF[true]")->root().elements()->at(0).as_bool());
}

TEST(Json, EveryPrefixOfADocumentIsRefusedOrRead) {
  const std::string text = R"({"a": [1, -2.5e3, "x\u00e9\\", true, null], "b": {"c": 12345678901234567890123}})";
  for (size_t n = 0; n < text.size(); ++n) {
    const std::string message = refusal(text.substr(0, n));
    EXPECT_TRUE(message.find("line") != std::string::npos || message.find("empty") != std::string::npos) << message;
  }
  EXPECT_NE(parsed(text), nullptr);
}

TEST(Json, HostileKeysStayOnOneShortLine) {
  const std::string key = std::string(10'000, 'k') + "\\n\\u001b[31m";
  const std::string message = refusal("{\"" + key + "\":1,\"" + key + "\":2}");
  EXPECT_LT(message.size(), 300u);
  const auto d = parsed(R"({"a\n\u001b[31mb": 1})");
  EXPECT_EQ((*d->root().members())[0].second.path(), "['a\\n\\x1b[31mb']");
}

}  // namespace
}  // namespace halfbyte
