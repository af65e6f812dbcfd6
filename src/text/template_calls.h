// Arguments of a call inside a template, and what can be called without the evaluator: filters, tests, methods of
// strings, lists and dictionaries.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template_value.h"

namespace halfbyte {

struct CallArgs {
  std::vector<TemplateValue> positional;
  std::vector<std::pair<std::string, TemplateValue>> named;
};

// Binds arguments to parameter names, as a Python function with these parameters would.
class BoundArgs {
 public:
  // At most 6 parameters. The first `required` of them must be given.
  static Result<BoundArgs> bind(std::string_view function, const CallArgs& args,
                                std::initializer_list<std::string_view> parameters, size_t required = 0);

  // The argument, or null.
  const TemplateValue* get(size_t i) const { return given_[i]; }
  bool flag(size_t i, bool otherwise) const { return given_[i] == nullptr ? otherwise : truth(*given_[i]); }
  // Type errors name function and parameter.
  Result<std::string> text(size_t i, std::string_view otherwise) const;
  Result<int64_t> integer(size_t i, int64_t otherwise) const;
  // None counts as not given.
  const TemplateValue* set(size_t i) const {
    return given_[i] == nullptr || given_[i]->is_none() ? nullptr : given_[i];
  }

 private:
  std::string function_;
  std::vector<std::string_view> parameters_;
  const TemplateValue* given_[6] = {};
};

Result<TemplateValue> apply_filter(TemplateBudget& budget, std::string_view name, const TemplateValue& input,
                                   const CallArgs& args);
Result<bool> apply_test(TemplateBudget& budget, std::string_view name, const TemplateValue& input,
                        const CallArgs& args);

// Whether Python's type of `self` has a method of this name (also those outside the subset, which then cannot be
// called).
bool has_method(const TemplateValue& self, std::string_view name);
Result<TemplateValue> call_method(TemplateBudget& budget, const TemplateValue& self, std::string_view name,
                                  const CallArgs& args);

// Case and white space of text; marks are kept. Shared by filters and methods.
// kTitle is str.title(), kTitleWords Jinja's filter, which starts words after white space and "-({[<" only.
enum class CaseChange { kUpper, kLower, kTitle, kTitleWords, kCapitalize };
Result<TemplateValue> change_case(TemplateBudget& budget, const MarkedText& text, CaseChange change);
// `chars` null: white space.
Result<TemplateValue> strip(TemplateBudget& budget, const MarkedText& text, const std::string* chars, bool left,
                            bool right);
Result<TemplateValue> replace(TemplateBudget& budget, const MarkedText& text, const MarkedText& from,
                              const MarkedText& to, int64_t count);
Result<TemplateValue> join(TemplateBudget& budget, const std::vector<TemplateValue>& items, const MarkedText& separator,
                           bool strings_only);
// str.splitlines(), without line ends.
Result<std::vector<TemplateValue>> split_lines(TemplateBudget& budget, const MarkedText& text);

}  // namespace halfbyte
