// Values inside a chat template and the budget that everything made from them is charged to.
//
// Values are immutable and shared, but for namespaces, which belong to the evaluator: so no value can own itself, and
// freeing one never recurses deeper than kMaxValueDepth.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/template_text.h"

namespace halfbyte {

class TemplateBudget;
struct TemplateList;
struct TemplateDict;
struct TemplateNamespace;  // text/template_eval.h
struct TemplateCallable;   // text/template_eval.h

// Lists within lists; bounds every recursion over a value.
inline constexpr uint32_t kMaxValueDepth = 100;

enum class TemplateKind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kDouble,
  kString,
  kList,
  kDict,
  kNamespace,
  kCallable,
};

// A share of the budget, given back with the object that holds it. Movable.
class TemplateCharge {
 public:
  TemplateCharge() = default;
  TemplateCharge(TemplateBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}
  TemplateCharge(TemplateCharge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
  TemplateCharge& operator=(TemplateCharge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~TemplateCharge();

 private:
  TemplateBudget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

struct TemplateString {
  MarkedText text;
  TemplateCharge charge;  // none: a constant of the template
};

class TemplateValue {
 public:
  // Undefined without a name.
  TemplateValue() = default;
  // Undefined; the text says what was looked for: "'x' is undefined".
  static TemplateValue undefined(std::shared_ptr<const TemplateString> what) {
    return TemplateValue(Data(std::in_place_index<0>, std::move(what)));
  }
  static TemplateValue none() { return TemplateValue(Data(std::in_place_index<1>)); }
  static TemplateValue boolean(bool b) { return TemplateValue(Data(std::in_place_index<2>, b)); }
  static TemplateValue integer(int64_t i) { return TemplateValue(Data(std::in_place_index<3>, i)); }
  static TemplateValue real(double d) { return TemplateValue(Data(std::in_place_index<4>, d)); }
  // A string outside any budget: constants of the template, names.
  static TemplateValue constant(std::string text);
  explicit TemplateValue(std::shared_ptr<const TemplateString> s) : data_(std::in_place_index<5>, std::move(s)) {}
  explicit TemplateValue(std::shared_ptr<const TemplateList> l) : data_(std::in_place_index<6>, std::move(l)) {}
  explicit TemplateValue(std::shared_ptr<const TemplateDict> d) : data_(std::in_place_index<7>, std::move(d)) {}
  explicit TemplateValue(TemplateNamespace* n) : data_(std::in_place_index<8>, n) {}
  explicit TemplateValue(std::shared_ptr<const TemplateCallable> c) : data_(std::in_place_index<9>, std::move(c)) {}

  TemplateKind kind() const { return static_cast<TemplateKind>(data_.index()); }
  bool is_undefined() const { return kind() == TemplateKind::kUndefined; }
  bool is_none() const { return kind() == TemplateKind::kNone; }
  bool is_string() const { return kind() == TemplateKind::kString; }
  bool is_list() const { return kind() == TemplateKind::kList; }
  bool is_dict() const { return kind() == TemplateKind::kDict; }
  // bool, int or double, as in Python's arithmetic.
  bool is_number() const { return kind() >= TemplateKind::kBool && kind() <= TemplateKind::kDouble; }
  bool is_integral() const { return kind() == TemplateKind::kBool || kind() == TemplateKind::kInt; }

  bool as_bool() const { return std::get<2>(data_); }
  // A bool counts as 0 or 1.
  int64_t as_int() const { return kind() == TemplateKind::kBool ? as_bool() : std::get<3>(data_); }
  double as_double() const {
    return kind() == TemplateKind::kDouble ? std::get<4>(data_) : static_cast<double>(as_int());
  }
  const MarkedText& text() const { return std::get<5>(data_)->text; }
  const std::string& bytes() const { return text().bytes(); }
  const TemplateList& list() const { return *std::get<6>(data_); }
  const std::shared_ptr<const TemplateList>& shared_list() const { return std::get<6>(data_); }
  const TemplateDict& dict() const { return *std::get<7>(data_); }
  TemplateNamespace& name_space() const { return *std::get<8>(data_); }
  const TemplateCallable& callable() const { return *std::get<9>(data_); }

  // What an undefined value was: "'x' is undefined".
  std::string undefined_text() const;

 private:
  using Data =
      std::variant<std::shared_ptr<const TemplateString>, std::monostate, bool, int64_t, double,
                   std::shared_ptr<const TemplateString>, std::shared_ptr<const TemplateList>,
                   std::shared_ptr<const TemplateDict>, TemplateNamespace*, std::shared_ptr<const TemplateCallable>>;
  explicit TemplateValue(Data d) : data_(std::move(d)) {}
  Data data_;
};

// How a list came about; Python tells them apart when printing, comparing and asking for truth or length.
enum class ListFlavor : uint8_t { kList, kTuple, kGenerator };

struct TemplateList {
  std::vector<TemplateValue> items;
  ListFlavor flavor = ListFlavor::kList;
  uint32_t depth = 1;
  TemplateCharge charge;
};

struct TemplateDict {
  std::vector<std::pair<TemplateValue, TemplateValue>> items;  // in the order of first insertion
  uint32_t depth = 1;
  TemplateCharge charge;

  // The value of a key that is equal in Python's sense (1 == 1.0 == true), or null.
  const TemplateValue* find(const TemplateValue& key) const;
  const TemplateValue* find(std::string_view key) const;
  // Adds or replaces; false when the key is no string, number or none.
  bool insert(TemplateValue key, TemplateValue value);

 private:
  const TemplateValue* find_encoded(std::string_view key) const;
  std::unordered_map<std::string, size_t> index_;
};

// Steps, bytes and depth that one rendering may use. Not thread-safe.
class TemplateBudget {
 public:
  explicit TemplateBudget(const TemplateLimits& limits)
      : limits_(limits), steps_left_(limits.max_steps), bytes_left_(limits.max_output_bytes) {}

  // Every expression and statement costs a step, and so do each kBytesPerStep bytes read or written on the way.
  Status spend(uint64_t steps);
  Status spend_bytes(uint64_t bytes) { return spend(1 + bytes / kBytesPerStep); }
  Status take(uint64_t bytes);
  void give(uint64_t bytes) { bytes_left_ += bytes; }
  const TemplateLimits& limits() const { return limits_; }

  Result<TemplateValue> string(MarkedText text);
  Result<TemplateValue> string(std::string text) { return string(MarkedText(std::move(text))); }
  Result<TemplateValue> list(std::vector<TemplateValue> items, ListFlavor flavor = ListFlavor::kList);
  Result<TemplateValue> dict(std::vector<std::pair<TemplateValue, TemplateValue>> items);
  // Without its text when the budget is spent: the next step fails anyhow.
  TemplateValue undefined(std::string what);

  static constexpr uint64_t kBytesPerStep = 256;

 private:
  TemplateLimits limits_;
  uint64_t steps_left_, bytes_left_;
};

// Text under construction, charged while it grows, so that no join or replace outgrows the budget before it is noticed.
class TextBuilder {
 public:
  explicit TextBuilder(TemplateBudget& budget) : budget_(budget) {}
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;
  ~TextBuilder() { budget_.give(charged_); }

  Status append(std::string_view bytes, bool user = false) {
    HB_TRY(reserve(bytes.size()));
    text_.append(bytes, user);
    return {};
  }
  Status append(const MarkedText& text) { return append(text, 0, text.size()); }
  Status append(const MarkedText& text, size_t begin, size_t end) {
    HB_TRY(reserve(end - begin));
    text_.append(text, begin, end);
    return {};
  }
  const MarkedText& text() const { return text_; }
  MarkedText take() && { return std::move(text_); }
  Result<TemplateValue> value() && {
    budget_.give(charged_);
    charged_ = 0;
    return budget_.string(std::move(text_));
  }

 private:
  Status reserve(size_t more);
  TemplateBudget& budget_;
  MarkedText text_;
  uint64_t charged_ = 0;
};

// Python's name of the value's type: "str", "NoneType".
std::string_view type_name(const TemplateValue& v);
// Python's truth; false for undefined.
bool truth(const TemplateValue& v);
// Python's == ; step-bounded.
Result<bool> equal(TemplateBudget& budget, const TemplateValue& a, const TemplateValue& b);
// Python's < for numbers, strings, lists; an error for others.
Result<bool> less(TemplateBudget& budget, const TemplateValue& a, const TemplateValue& b);

}  // namespace halfbyte
